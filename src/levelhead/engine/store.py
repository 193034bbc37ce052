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
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import (
    Url,
    absolute,
    join,
    located,
    read_bytes,
    remove_abandoned,
    write_atomic,
)

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
    """Results by key. Open one with `open_store`; iterate over it for the keys."""

    url: str

    def put(self, key: str, payload: bytes, *, room: str = "units") -> None:
        """Keep a result. Readers see it whole or not at all."""
        scratch = join(self.url, "tmp")
        write_atomic(self.path(key, room=room), _sealed(key, payload), scratch=scratch)

    def get(self, key: str, *, room: str = "units") -> bytes:
        """A result, its checksum verified; `NotStored` or `DamagedFile` otherwise."""
        place = self.path(key, room=room)
        try:
            sealed = read_bytes(place)
        except FileNotFoundError:
            raise NotStored(
                f"nothing is stored under {key} in {self.url}",
                mend="run the job that computes it",
            ) from None
        payload = sealed.partition(b"\n")[2]
        if sealed != _sealed(key, payload):
            raise DamagedFile(
                f"{place} is damaged: its bytes are not those that were written",
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
        return self.keys()

    def keys(self, *, room: str = "units") -> Iterator[str]:
        """The keys of one room of the store."""
        fs, path = located(join(self.url, room))
        if not fs.exists(path):
            return
        # Not fs.find: a folder that it cannot list reads as an empty one.
        for folder in sorted(map(_name, fs.ls(path, detail=False))):
            names = map(_name, fs.ls(join(path, folder), detail=False))
            yield from sorted(name for name in names if len(name) == 64 and name[:2] == folder)

    def path(self, key: str, *, room: str = "units") -> str:
        """The URL of the file that holds, or would hold, a result."""
        return join(self.url, room, key[:2], key)

    def sweep(self) -> None:
        """Remove what killed writers of this machine left unfinished."""
        remove_abandoned(join(self.url, "tmp"))
        remove_abandoned(self.url)


def open_store(url: Url) -> Store:
    """Open a store, or make one in an empty or new folder; a foreign folder is refused."""
    try:
        return open_existing(url)
    except NotStored:
        pass
    foreign = _foreign(url)
    if not foreign:
        write_atomic(join(absolute(url), MARKER), FORMAT)
    try:
        # Another process may have made the store between our two looks.
        return open_existing(url)
    except NotStored:
        raise ForeignFolder(
            f"{url} holds {len(foreign)} files or folders and is no levelhead store "
            f"(the first is {foreign[0]!r})",
            mend="name a new or empty folder; nothing was written",
        ) from None


def open_existing(url: Url) -> Store:
    """Open a store to read it; nothing is written. `NotStored` if there is none."""
    marker = join(absolute(url), MARKER)
    try:
        found = read_bytes(marker)
    except (FileNotFoundError, NotADirectoryError):
        raise NotStored(f"{url} is no levelhead store", mend="name a run's folder") from None
    if found == FORMAT:
        return Store(absolute(url))
    try:
        known = json.loads(found)["format"]
    except (ValueError, TypeError, KeyError):
        raise DamagedFile(
            f"{marker} is damaged: it holds {found[:80]!r}",
            mend=f"if this is a run's folder, write this line into it: {FORMAT.decode().strip()}",
        ) from None
    raise ForeignFolder(
        f"{url} is a store of format {known}, and this version of levelhead writes format 1",
        mend="open it with the version of levelhead that wrote it, or use another folder",
    )


def _foreign(url: Url) -> list[str]:
    """The names in a folder that a process killed while making a store here cannot have left."""
    fs, path = located(url)
    if fs.isfile(path):
        return [path]
    found = fs.ls(path, detail=False) if fs.exists(path) else []
    return sorted(name for name in map(_name, found) if not name.startswith(f".{MARKER}."))


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _sealed(key: str, payload: bytes) -> bytes:
    """The bytes of a file: what it holds, how long that is and its checksum, then the payload."""
    digest = hashlib.sha256(payload).hexdigest()
    head = canonical({"bytes": len(payload), "key": key, "sha256": digest})
    return head + b"\n" + payload
