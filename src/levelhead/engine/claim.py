"""One job at a time in a folder.

On a local disk the claim is a lock that the system drops with its process, however that ends. An
object store knows no such lock: there the claim is an object that only one can create, and whoever
is killed leaves it behind, to be removed by hand after a look.
"""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from levelhead.core.canonical import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import Url, is_local, join, located

if TYPE_CHECKING:
    from collections.abc import Iterator


class FolderInUse(LevelheadError):
    """Another job is running in the folder."""


@contextmanager
def claimed(folder: Url) -> Iterator[None]:
    """Hold a folder for this process; `FolderInUse` if another one has it."""
    fs, path = located(join(folder, "lock"))
    if is_local(folder):
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise FolderInUse(
                f"another job is running in {folder}",
                mend="wait for it to end, or use another folder",
            ) from None
        try:
            yield
        finally:
            lock.release()
        return
    holder = canonical({"host": platform.node(), "pid": os.getpid()})
    try:
        fs.pipe_file(path, holder, mode="create")
    except FileExistsError:
        raise FolderInUse(
            f"{folder} is claimed by {bytes(fs.cat_file(path)).decode()}",
            mend=f"wait for it to end; if that process is gone, remove {path}",
        ) from None
    try:
        yield
    finally:
        fs.rm_file(path)
