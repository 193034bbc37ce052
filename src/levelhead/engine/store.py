"""The content-addressed store: results under the hash of everything they depend on.

    FOLDER/levelhead-store.json    marks the folder as a store and states its format
    FOLDER/units/ab/abcdef...      one result each: a line with key, length and SHA-256, then bytes
    FOLDER/tmp/                    unfinished files; never read

Files are written atomically, by rename or by the upload of an object, and their checksum is
verified at every read. So readers never see a partial file, writers may share a store, and data
that a disk loses in a power cut cost a computation but never give a wrong number.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import (
    Url,
    absolute_url,
    join_url,
    open_filesystem,
    read_bytes,
    remove_abandoned,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "levelhead-store.json"
FORMAT = to_canonical_json({"format": 1, "kind": "levelhead store"}) + b"\n"


class ForeignFolderError(LevelheadError):
    """A non-empty folder that is not a store: nothing is written to it."""


class NotStoredError(LevelheadError):
    """The key is not stored, or the folder is no store."""


class DamagedFileError(LevelheadError):
    """A file whose bytes differ from what was written; its content is never used."""


@final
@dataclass(frozen=True)
class Store:
    """Results by key. `open_store` opens a store; iteration yields the keys."""

    url: str

    def put(self, key: str, payload: bytes, *, namespace: str = "units") -> None:
        """Store a result atomically.

        Args:
            key: key of the task.
            payload: bytes of the result.
            namespace: folder of the store.
        """
        # Unfinished files have a folder of their own: `keys` never lists one, and removing those of
        # dead processes scans one folder instead of 256.
        scratch = join_url(self.url, "tmp")
        write_atomic(
            self.path(key, namespace=namespace), _encode_entry(key, payload), scratch=scratch
        )

    def get(self, key: str, *, namespace: str = "units") -> bytes:
        """Return a result; raise `NotStoredError` or `DamagedFileError` if that is not possible.

        Args:
            key: key of the task.
            namespace: folder of the store.
        """
        path = self.path(key, namespace=namespace)
        try:
            entry = read_bytes(path)
        except FileNotFoundError:
            raise NotStoredError(
                f"nothing is stored under {key} in {self.url}",
                hint="run the job that computes it",
            ) from None
        payload = entry.partition(b"\n")[2]
        # Re-encoding checks key, length and checksum in one comparison.
        if entry != _encode_entry(key, payload):
            raise DamagedFileError(
                f"{path} is damaged: its bytes differ from what was written",
                hint="run the job again to compute the result; check the disk if this recurs",
            )
        return payload

    def has(self, key: str) -> bool:
        """Return whether a result is stored; raise `DamagedFileError` if its file is damaged."""
        try:
            self.get(key)
        except NotStoredError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Yield every key with a file, in order; `get` and `has` verify the files."""
        return self.keys()

    def keys(self, *, namespace: str = "units") -> Iterator[str]:
        """Yield the keys of one namespace of the store."""
        fs, path = open_filesystem(join_url(self.url, namespace))
        if not fs.exists(path):
            return
        # Not fs.find: it treats a folder that it cannot list as empty.
        for folder in sorted(map(_basename, fs.ls(path, detail=False))):
            # Other names, such as a file manager's, are no results.
            names = map(_basename, fs.ls(join_url(path, folder), detail=False))
            yield from sorted(name for name in names if len(name) == 64 and name[:2] == folder)

    def path(self, key: str, *, namespace: str = "units") -> str:
        """Return the URL of the file of a result, which need not exist."""
        # 256 subfolders: some file systems are slow with very many files in one folder.
        return join_url(self.url, namespace, key[:2], key)

    def remove_abandoned_files(self) -> None:
        """Remove unfinished files that killed processes of this machine left behind."""
        remove_abandoned(join_url(self.url, "tmp"))
        # The marker is written in the folder itself, before `tmp` exists.
        remove_abandoned(self.url)


def open_store(url: Url) -> Store:
    """Open a store, or create one in a new or empty folder; raise an error for other folders."""
    try:
        return open_existing_store(url)
    except NotStoredError:
        pass
    foreign = _foreign_names(url)
    if not foreign:
        write_atomic(join_url(absolute_url(url), MARKER), FORMAT)
    try:
        # Another process may have created the store since the first check.
        return open_existing_store(url)
    except NotStoredError:
        raise ForeignFolderError(
            f"{url} contains {len(foreign)} files or folders and is no levelhead store "
            f"(the first is {foreign[0]!r})",
            hint="name a new or empty folder; nothing was written",
        ) from None


def open_existing_store(url: Url) -> Store:
    """Open an existing store without writing; raise `NotStoredError` if there is none."""
    marker = join_url(absolute_url(url), MARKER)
    try:
        content = read_bytes(marker)
    except (FileNotFoundError, NotADirectoryError):
        raise NotStoredError(f"{url} is no levelhead store", hint="name a run's folder") from None
    if content == FORMAT:
        return Store(absolute_url(url))
    try:
        found_format = json.loads(content)["format"]
    except (ValueError, TypeError, KeyError):
        raise DamagedFileError(
            f"{marker} is damaged: it contains {content[:80]!r}",
            hint=f"if this is a run's folder, write this line into it: {FORMAT.decode().strip()}",
        ) from None
    raise ForeignFolderError(
        f"{url} is a store of format {found_format}, and this version of levelhead writes format 1",
        hint="open it with the version of levelhead that wrote it, or use another folder",
    )


def _foreign_names(url: Url) -> list[str]:
    """Return names in a folder that no interrupted creation of a store can have left."""
    fs, path = open_filesystem(url)
    if fs.isfile(path):
        return [path]
    paths = fs.ls(path, detail=False) if fs.exists(path) else []
    return sorted(name for name in map(_basename, paths) if not name.startswith(f".{MARKER}."))


def _basename(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _encode_entry(key: str, payload: bytes) -> bytes:
    """Encode an entry: a header with key, length and checksum, then the payload."""
    digest = hashlib.sha256(payload).hexdigest()
    header = to_canonical_json({"bytes": len(payload), "key": key, "sha256": digest})
    return header + b"\n" + payload
