"""The local runner: spawned processes, each with a pipe of its own.

Not concurrent.futures: its pool breaks as a whole when one process dies, and libraries below us do
abort their process when memory ends. With a pipe each, a death belongs to one unit, which is tried
again in a fresh process and given up after a few deaths, while the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, Literal, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.events import Failed, Retried
from levelhead.engine.runners import Cancelled, Computed, Outcome, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.context import SpawnProcess

    from levelhead.engine.units import Unit

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")
READY: Final = "ready"
_SPAWN = multiprocessing.get_context("spawn")


@final
@dataclass(frozen=True)
class LocalProcesses:
    """Units over spawned processes of this machine.

    Scripts that use it need the usual `if __name__ == "__main__":`, because a spawned process
    imports the script anew.
    """

    workers: int
    threads: int = 1
    """Threads of numpy, torch and polars in each worker: sums depend on it in the last bits."""
    attempts: int = 3
    """How many processes may die over one unit before it is given up."""

    def __post_init__(self) -> None:
        if min(self.workers, self.threads, self.attempts) < 1:
            raise LevelheadError(
                f"{self} cannot compute anything",
                mend="give workers, threads and attempts of 1 or more; InProcess() needs none",
            )

    def run(self, units: Sequence[Unit], *, cancel: threading.Event) -> Iterator[Outcome]:
        """Hand out units as workers become free; yield outcomes as they arrive."""
        todo = deque(units)
        deaths: Counter[str] = Counter()
        stillborn = 0
        busy: dict[Connection, _Worker] = {}
        idle: list[_Worker] = []
        try:
            while todo or busy:
                if cancel.is_set():
                    raise Cancelled
                while todo and len(busy) < self.workers:
                    worker = idle.pop() if idle else _Worker(self.threads)
                    busy[worker.pipe] = worker
                    worker.give(todo.popleft())
                for pipe in wait(list(busy), timeout=0.1):
                    worker = busy[pipe]  # type: ignore[index]  # wait gives back our own
                    answer = worker.answer()
                    if answer == READY:
                        worker.ready, stillborn = True, 0
                        continue
                    del busy[worker.pipe]
                    if answer is not None:
                        idle.append(worker)
                        yield answer
                        continue
                    unit, why = worker.unit, worker.buried()
                    if not worker.ready:
                        stillborn += 1
                        todo.appendleft(unit)
                        self._give_up_on_starting(stillborn, why)
                        continue
                    deaths[unit.key] += 1
                    if deaths[unit.key] < self.attempts:
                        todo.append(unit)
                        yield Retried(unit.key, why)
                    else:
                        yield Failed(unit.key, f"{why}, {self.attempts} times")
        finally:
            for worker in (*idle, *busy.values()):
                worker.end()

    def _give_up_on_starting(self, stillborn: int, why: str) -> None:
        if stillborn >= self.attempts:
            raise LevelheadError(
                f"{why} before it could begin, {stillborn} times in a row",
                mend="run it from a script file whose main part stands under "
                'if __name__ == "__main__": (its own errors are above), or use InProcess()',
            )


@final
class _Worker:
    """A spawned process, our end of its pipe, and the unit it is at."""

    unit: Unit
    ready = False

    def __init__(self, threads: int) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.process: SpawnProcess = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        with _environment(dict.fromkeys(THREADS, str(threads))):
            self.process.start()
        theirs.close()  # so that its death is seen here as the end of the pipe

    def give(self, unit: Unit) -> None:
        self.unit = unit
        with suppress(OSError):  # died while idle: the end of the pipe tells the caller
            self.pipe.send(unit)

    def answer(self) -> Computed | Failed | Literal["ready"] | None:
        """What it says: that it is ready, what became of the unit; None if it died."""
        try:
            said: Computed | Failed | Literal["ready"] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return said

    def buried(self) -> str:
        """Wait for a dead process to end, and say how it did."""
        self.end()
        code = self.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process died ({how})"

    def end(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.join(timeout=0.05)  # an idle worker leaves by itself when the pipe closes
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _serve(pipe: Connection) -> None:
    """In the worker: compute what comes until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the driver, which ends us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the driver closed the pipe, or is gone
        pipe.send(READY)
        while True:
            pipe.send(outcome_of(pipe.recv()))


def _die_with_parent() -> None:
    """A driver that was killed must not leave workers that burn the machine."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _environment(names: dict[str, str]) -> Iterator[None]:
    """Variables a child must be born with: libraries read them when they load."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
