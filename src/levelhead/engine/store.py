"""The content-addressed store: results under the hash of what they depend on.

    FOLDER/levelhead-store.json    says that the folder is a store, and of which format
    FOLDER/units/ab/abcdef...      one result each: a line with key, length and SHA-256, then bytes
    FOLDER/tmp/                    unfinished files; never read

A file comes into being whole, by rename (or by the upload of an object), and its checksum is
verified whenever it is read. So readers never see half a file, writers may share a store, and a
disk that forgot the last seconds before a power cut costs a computation, not a wrong number.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelhead.core.canonical import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import Url, join, located, read_bytes, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "levelhead-store.json"
FORMAT = canonical({"format": 1, "kind": "levelhead store"}) + b"\n"


class ForeignFolder(LevelheadError):
    """A folder with files in it that is not a store: nothing is written there."""


class NotStored(LevelheadError):
    """Nothing is stored here: no such key, or no store at all."""


class DamagedFile(LevelheadError):
    """A file that is not what was written; named, never read."""


@final
@dataclass(frozen=True)
class Store:
    """Results by key. Open one with `open_store`."""

    url: str

    def put(self, key: str, payload: bytes) -> None:
        """Keep a result. Readers see it whole or not at all."""
        write_atomic(self.path(key), _sealed(key, payload), scratch=join(self.url, "tmp"))

    def get(self, key: str) -> bytes:
        """A result, its checksum verified; `NotStored` or `DamagedFile` otherwise."""
        try:
            sealed = read_bytes(self.path(key))
        except FileNotFoundError:
            raise NotStored(
                f"nothing is stored under {key} in {self.url}",
                mend="run the job that computes it",
            ) from None
        payload = sealed.partition(b"\n")[2]
        if sealed != _sealed(key, payload):
            raise DamagedFile(
                f"{self.path(key)} is damaged: its bytes are not those that were written",
                mend="run the job again (it is computed anew); look at the disk if this recurs",
            )
        return payload

    def has(self, key: str) -> bool:
        """Whether a result is stored and whole; `DamagedFile` if it is stored and not whole."""
        try:
            self.get(key)
        except NotStored:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Every key with a file, in order; whether the file is whole, `get` and `has` tell."""
        fs, path = located(join(self.url, "units"))
        names = (str(name).rpartition("/")[2] for name in fs.find(path))
        yield from sorted(name for name in names if len(name) == 64)

    def path(self, key: str) -> str:
        """The URL of the file that holds, or would hold, a result."""
        return join(self.url, "units", key[:2], key)

    def sweep(self) -> None:
        """Remove unfinished files. Only for who is sure to be the only writer."""
        fs, path = located(join(self.url, "tmp"))
        for unfinished in fs.find(path):
            fs.rm_file(unfinished)


def open_store(url: Url) -> Store:
    """Open a store, or make one in an empty or new folder; a foreign folder is refused."""
    try:
        return open_existing(url)
    except NotStored:
        _refuse_foreign(url)
        write_atomic(join(url, MARKER), FORMAT)
        return Store(join(url))


def open_existing(url: Url) -> Store:
    """Open a store to read it; nothing is written. `NotStored` if there is none."""
    try:
        marker = read_bytes(join(url, MARKER))
    except FileNotFoundError:
        raise NotStored(f"{url} is no levelhead store", mend="name a run's folder") from None
    if marker != FORMAT:
        raise ForeignFolder(
            f"{url} is a store of another format: {marker[:80]!r}",
            mend="open it with the version of levelhead that wrote it, or use another folder",
        )
    return Store(join(url))


def _refuse_foreign(url: Url) -> None:
    fs, path = located(url)
    found = fs.ls(path, detail=False) if fs.exists(path) else []
    names = sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)
    # A process killed while it made the store leaves an unfinished marker: that is still ours.
    foreign = [name for name in names if not name.startswith(f".{MARKER}.")]
    if foreign:
        raise ForeignFolder(
            f"{url} holds {len(foreign)} files or folders and is no levelhead store "
            f"(the first is {foreign[0]!r})",
            mend="name a new or empty folder; nothing was written",
        )


def _sealed(key: str, payload: bytes) -> bytes:
    """The bytes of a file: what it holds, how long that is and its checksum, then the payload."""
    digest = hashlib.sha256(payload).hexdigest()
    head = canonical({"bytes": len(payload), "key": key, "sha256": digest})
    return head + b"\n" + payload
