"""One job at a time in a folder.

On a local disk the claim is a lock that the system drops with its process, however that ends. An
object store knows no such lock: there the claim is an object, created only if there is none, and
whoever is killed leaves it behind, to be removed by hand after a look. (A backend without
conditional writes can let two through that come within the same moment; the claim is read back, so
that one of them notices.)
"""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import is_local, join, located

if TYPE_CHECKING:
    from collections.abc import Iterator


class FolderInUse(LevelheadError):
    """Another job is running in the folder."""


@contextmanager
def claimed(folder: str) -> Iterator[None]:
    """Hold a folder for this process; `FolderInUse` if another one has it."""
    with _locked(folder) if is_local(folder) else _object(folder):
        yield


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    lock = FileLock(located(join(folder, "lock"))[1], timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FolderInUse(
            f"another job is running in {folder}", mend="wait for it to end, or use another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _object(folder: str) -> Iterator[None]:
    fs, path = located(join(folder, "lock"))
    ours = canonical({"host": platform.node(), "pid": os.getpid(), "token": secrets.token_hex(8)})

    def holder() -> bytes:
        try:
            return bytes(fs.cat_file(path))
        except FileNotFoundError:
            return b"nobody any more"

    try:
        fs.pipe_file(path, ours, mode="create")
        found = holder()
    except FileExistsError:
        found = holder()
    if found != ours:
        raise FolderInUse(
            f"{folder} is claimed by {found.decode(errors='replace')}",
            mend=f"wait for it to end; if that process is gone, remove {join(folder, 'lock')}",
        )
    try:
        yield
    finally:
        if holder() == ours:  # somebody may have broken the claim, and somebody else taken it
            fs.rm_file(path)
