"""A run's folder: what others put into a folder is neither overwritten nor removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.canonical_json import canonical
from levelhead.core.files import Url, absolute, expect_writable, join, located, write_atomic
from levelhead.engine.store import ForeignFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKER = "levelhead-run.json"
FORMAT = canonical({"format": 1, "kind": "levelhead run"}) + b"\n"


def own(folder: Url, writes: Iterable[str]) -> None:
    """Mark a folder as a run's; `ForeignFolder` if it is none and holds what the run would write.

    Args:
        folder: a path or URL; other files may lie there.
        writes: the names of the files and folders that the run writes into it.
    """
    url = absolute(folder)
    if is_own(url):
        return
    expect_writable(join(url, MARKER))
    taken = [name for name in writes if _holds(url, name)]
    if taken:
        raise ForeignFolder(
            f"{folder} holds {taken[0]!r} and is not the folder of a run, which would write that",
            mend="name another folder; nothing was written",
        )
    write_atomic(join(url, MARKER), FORMAT)


def is_own(folder: Url) -> bool:
    """Whether a folder is marked as a run's."""
    return _holds(absolute(folder), MARKER)


def _holds(url: str, name: str) -> bool:
    """Whether a file, or a folder with a file in it, lies there."""
    fs, path = located(join(url, name))
    return bool(fs.exists(path) and fs.find(path))
