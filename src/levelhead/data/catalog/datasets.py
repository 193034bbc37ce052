"""The data sets, one row each in datasets.toml: what it is, what it cannot tell, where it lives.

Nothing ships with levelhead. A file is looked for in the folder LEVELHEAD_DATA names, then in the
cache; `get` downloads it from its pinned revision. Its SHA-256 is checked before it is read.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, final

import pooch

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.files import file_hash
from levelhead.data.catalog.readers import READERS, BadRow, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.data.records import Item


class NotHere(LevelheadError):
    """A file that is neither in LEVELHEAD_DATA nor in the cache, and was not downloaded."""


class WrongFile(LevelheadError):
    """A file whose bytes are not those the table names."""


class File(NamedTuple):
    """One file of a data set."""

    path: str
    part: str
    items: int
    """How many items it holds; 0: whatever the user's copy holds."""
    bytes: int
    sha256: str
    """Empty for a user's own text, which has no published form."""
    url: str = ""


@final
@dataclass(frozen=True)
class Dataset:
    """A row of the table."""

    name: str
    folder: str
    about: str
    cannot: str
    """What it cannot tell."""
    licence: str
    serves: str
    reader: str
    get: Literal["download", "own copy"]
    files: tuple[File, ...] = field(repr=False)
    note: str = ""
    """Where a copy is to be had."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of its parts."""
        return tuple(file.part for file in self.files)

    def file(self, part: str) -> File:
        """The file of a part."""
        for file in self.files:
            if file.part == part:
                return file
        raise UnknownName(f"part of {self.name}", part, self.parts)

    def path(self, part: str) -> Path:
        """Where the file of a part lies here, its hash checked; an error says what to put where."""
        file = self.file(part)
        for folder in _folders():
            if (path := folder / self.folder / file.path).exists():
                _check(path, file)
                return path
        raise NotHere(
            f"{self.name} ({part}) is not on this machine",
            mend=self._how(file),
        )

    def fetched(self, part: str) -> Path:
        """As `path`, downloaded first if it must be and may be."""
        try:
            return self.path(part)
        except NotHere:
            if self.get != "download":
                raise
        return _download(self, self.file(part))

    def items(self, part: str) -> Iterator[Item]:
        """The items of a part, one after the other; an error if their number is not the table's."""
        file, count = self.file(part), 0
        try:
            text = self.fetched(part).read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise LevelheadError(
                f"{self.name} ({part}) is not UTF-8: {error}", mend="save your copy as UTF-8"
            ) from None
        try:
            for item in read(self.reader, text, part):
                count += 1
                yield item
        except BadRow as error:
            raise LevelheadError(f"{self.name} ({part}), {error.what}", mend=error.mend) from None
        if file.items and count != file.items:
            raise LevelheadError(
                f"{self.name} ({part}) gave {count} items, not {file.items}",
                mend="report it: the reader and the table disagree",
            )

    def _how(self, file: File) -> str:
        place = Path(os.environ.get("LEVELHEAD_DATA") or cache_folder()) / self.folder / file.path
        if self.get == "download":
            return f"levelhead data get {self.name}, or put {file.url} at {place}"
        return f"put your own copy at {place} ({self.note})"


def file_items(path: str | os.PathLike[str], reader: str) -> Iterator[Item]:
    """The items of a file of your own, by the name of the reader that fits it."""
    if reader not in READERS:
        raise UnknownName("reader", reader, READERS)
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="give a UTF-8 file") from None
    yield from read(reader, text, Path(path).stem)


def dataset(name: str) -> Dataset:
    """A data set, by name."""
    if name not in datasets():
        raise UnknownName("data set", name, datasets())
    return datasets()[name]


@cache
def datasets() -> dict[str, Dataset]:
    """The whole table, by name."""
    table = tomllib.loads(files("levelhead.data").joinpath("datasets.toml").read_text("utf-8"))
    return {
        row["name"]: Dataset(**(row | {"files": tuple(File(**file) for file in row["files"])}))
        for row in table["dataset"]
    }


def cache_folder() -> Path:
    """Where downloads are kept."""
    root = os.environ.get("LEVELHEAD_CACHE") or pooch.os_cache("levelhead")
    return Path(root) / "data"


def _folders() -> Iterator[Path]:
    if own := os.environ.get("LEVELHEAD_DATA"):
        yield Path(own)
    yield cache_folder()


def _check(path: Path, file: File) -> None:
    if file.sha256 and file_hash(path) != file.sha256:
        raise WrongFile(
            f"{path} is not the file the table names (SHA-256 {file.sha256[:12]}...)",
            mend="remove it and get it again; another version gives other numbers",
        )


def _download(row: Dataset, file: File) -> Path:
    """Into the cache, whole or not at all; pooch checks the hash before the file gets its name."""
    target = cache_folder() / row.folder / file.path
    # For tests and for places without the internet: a server with the same folders.
    mirror = os.environ.get("LEVELHEAD_MIRROR")
    url = f"{mirror.rstrip('/')}/{row.folder}/{file.path}" if mirror else file.url
    try:
        pooch.retrieve(
            url,
            known_hash=f"sha256:{file.sha256}",
            fname=target.name,
            path=target.parent,
            downloader=pooch.HTTPDownloader(timeout=60),
        )
    except ValueError as error:
        raise WrongFile(
            f"{url} gave other bytes than the table names: {(str(error).splitlines() or [''])[0]}",
            mend="try again; if it stays, the file was changed where it lives",
        ) from None
    except Exception as error:
        raise NotHere(
            f"{url} could not be fetched: {(str(error).splitlines() or [''])[0]:.160}",
            mend=row._how(file),
        ) from None
    return target
