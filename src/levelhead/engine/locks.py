"""Locks that allow one job at a time in a folder.

On a local disk the lock is a file lock, which the system releases when its process ends for any
reason. Object stores have no such lock: there it is a lease (`levelhead.engine.leases`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from levelhead.core.files import is_local, join_url, open_filesystem
from levelhead.engine.leases import FolderInUseError, hold_lease

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def exclusive_lock(folder: str) -> Iterator[None]:
    """Lock a folder for this process; raise `FolderInUseError` if another process holds it."""
    with _hold_file_lock(folder) if is_local(folder) else hold_lease(folder):
        yield


@contextmanager
def _hold_file_lock(folder: str) -> Iterator[None]:
    # timeout=0: a second job must report the conflict instead of waiting for hours.
    lock = FileLock(open_filesystem(join_url(folder, "lock"))[1], timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FolderInUseError(
            f"another job is running in {folder}", hint="wait for it to end, or use another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()
