"""Locks that allow one job at a time in a folder.

On a local disk the lock is a file lock, which the system releases when its process ends for any
reason. Object stores have no such lock: there the lock is an object that is created only if it does
not exist. A process that is killed leaves it behind, and the user removes it by hand. (On a backend
without conditional writes, two processes can create the object at the same moment; each reads it
back, so that one of them finds the other's claim.)
"""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import is_local, join_url, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator


class FolderInUseError(LevelheadError):
    """Another job is running in the folder."""


@contextmanager
def exclusive_lock(folder: str) -> Iterator[None]:
    """Lock a folder for this process; raise `FolderInUseError` if another process holds it."""
    with _file_lock(folder) if is_local(folder) else _object_lock(folder):
        yield


@contextmanager
def _file_lock(folder: str) -> Iterator[None]:
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


@contextmanager
def _object_lock(folder: str) -> Iterator[None]:
    fs, path = open_filesystem(join_url(folder, "lock"))
    # The token distinguishes two jobs of one process; host and process id are for the user.
    new_claim = to_canonical_json(
        {"host": platform.node(), "pid": os.getpid(), "token": secrets.token_hex(8)}
    )

    def read_claim() -> bytes:
        try:
            return bytes(fs.cat_file(path))
        except FileNotFoundError:
            return b"a process that has ended"

    try:
        fs.pipe_file(path, new_claim, mode="create")
        claim = read_claim()
    except FileExistsError:
        claim = read_claim()
    if claim != new_claim:
        raise FolderInUseError(
            f"{folder} is claimed by {claim.decode(errors='replace')}",
            hint=f"wait for it to end; if that process is gone, remove {join_url(folder, 'lock')}",
        )
    try:
        yield
    finally:
        # The user may have removed the lock, and another job may have created it again.
        if read_claim() == new_claim:
            fs.rm_file(path)
