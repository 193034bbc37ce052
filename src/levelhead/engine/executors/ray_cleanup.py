"""End what a killed driver leaves of its local Ray cluster.

Ray's own processes notice the end of their parent by themselves, but its agents do so late if the
driver is killed while the cluster starts: they were seen more than five seconds afterwards. So the
driver starts a process that remembers its descendants and, when the driver's end of a pipe closes
without a word, kills those that are left.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

# accelerate, which models are loaded with, depends on it. It has no type hints.
psutil: Any = import_module("psutil")

SECONDS_BETWEEN_LOOKS = 0.5
"""Time after which new descendants are noticed."""
SECONDS_TO_END = 2.0
"""Time that processes have to end by themselves after the driver."""
FINISHED = b"."
"""What a driver writes that has shut its cluster down itself."""


@contextmanager
def cleanup_after_kill() -> Iterator[None]:
    """While this lasts, the death of this process ends the processes that it has started."""
    watcher = subprocess.Popen(  # this file, in the interpreter that runs
        # As a file: neither levelhead nor Ray is imported. -P: nor is a neighbour of this file.
        [sys.executable, "-P", __file__, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # Ctrl-C is sent to the whole session of a terminal, and the watcher must outlive it.
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            watcher.communicate(FINISHED)


def watch(driver_id: int, pipe: BinaryIO) -> None:
    """Remember the descendants of the driver; end those that are left if it is killed.

    Args:
        driver_id: process id of the driver.
        pipe: the other end of a pipe that the driver holds open.
    """
    descendants: set[Any] = set()
    while True:
        has_closed = bool(select.select([pipe], [], [], SECONDS_BETWEEN_LOOKS)[0])
        descendants |= _list_descendants(driver_id, descendants)
        if has_closed:
            break
    if pipe.read(1) == FINISHED:
        return
    _, alive = psutil.wait_procs(descendants, timeout=SECONDS_TO_END)
    for process in alive:
        # psutil compares start times: another process that was given the same number is spared.
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _list_descendants(driver_id: int, known: set[Any]) -> set[Any]:
    """List the processes below the driver, and below those whose parent has ended."""
    found: set[Any] = set()
    try:
        roots = {psutil.Process(driver_id), *known}
    except psutil.NoSuchProcess:
        roots = set(known)
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            found.update(root.children(recursive=True))
    return {process for process in found if process.pid != os.getpid()}


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.stdin.buffer)
