"""Run folders: a run never overwrites or removes files of other programs in its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.files import (
    Url,
    absolute_url,
    check_writable,
    join_url,
    open_filesystem,
    write_atomic,
)
from levelhead.engine.store import ForeignFolderError

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKER = "levelhead-run.json"
FORMAT = to_canonical_json({"format": 1, "kind": "levelhead run"}) + b"\n"


def mark_owned(folder: Url, written_names: Iterable[str]) -> None:
    """Mark a folder as a run folder; raise `ForeignFolderError` if files would be overwritten.

    Args:
        folder: path or URL of the folder; it may contain other files.
        written_names: names of the files and folders that the run writes into it.
    """
    url = absolute_url(folder)
    # A folder that an earlier run marked may contain its results: the same run continues there.
    if is_owned(url):
        return
    check_writable(join_url(url, MARKER))
    conflicts = [name for name in written_names if _contains(url, name)]
    if conflicts:
        raise ForeignFolderError(
            f"{folder} contains {conflicts[0]!r}, which the run would overwrite, and is not the "
            "folder of a run",
            hint="name another folder; nothing was written",
        )
    # Before any result: a run that is killed later may continue in its folder.
    write_atomic(join_url(url, MARKER), FORMAT)


def is_owned(folder: Url) -> bool:
    """Return whether a folder is marked as a run folder."""
    return _contains(absolute_url(folder), MARKER)


def _contains(url: str, name: str) -> bool:
    """Return whether a file, or a folder that contains a file, exists."""
    fs, path = open_filesystem(join_url(url, name))
    # Empty folders do not count: nothing in them could be lost.
    return bool(fs.exists(path) and fs.find(path))
