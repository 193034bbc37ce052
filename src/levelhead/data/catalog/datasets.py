"""The catalog of data sets: datasets.toml describes each set, its limitations and its source.

levelhead includes no data. A file is searched in the folder LEVELHEAD_DATA, then in the cache;
`levelhead data get` downloads it from a pinned revision. Its SHA-256 is checked before it is read.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, final

import pooch

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.files import file_hash
from levelhead.data.catalog.readers import READERS, BadRowError, read_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.data.records import DatasetItem


RecordT = TypeVar("RecordT")


class DatasetMissingError(LevelheadError):
    """A file is neither in LEVELHEAD_DATA nor in the cache and was not downloaded."""


class ChecksumError(LevelheadError):
    """The SHA-256 of a file differs from that of the catalog."""


class DatasetFile(NamedTuple):
    """One file of a data set."""

    path: str
    part: str
    items: int
    """Number of items; 0 if it depends on the user's copy."""
    bytes: int
    sha256: str
    """SHA-256 of the file; empty for a user's text, which has no published form."""
    url: str = ""
    encoding: str = "utf-8"
    """Encoding of the published file."""


@final
@dataclass(frozen=True)
class Dataset:
    """A data set of the catalog."""

    name: str
    folder: str
    about: str
    cannot: str
    """What the data set cannot show."""
    licence: str
    serves: str
    reader: str
    get: Literal["download", "own copy"]
    # Not in the repr: some data sets have dozens of files.
    files: tuple[DatasetFile, ...] = field(repr=False)
    note: str = ""
    """Where the user can get a copy."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(file.part for file in self.files)

    def file(self, part: str) -> DatasetFile:
        """Return the file of a part.

        Args:
            part: name of a part.
        """
        for file in self.files:
            if file.part == part:
                return file
        raise UnknownNameError(f"part of {self.name}", part, self.parts)

    def hashes(self, *parts: str) -> dict[str, str]:
        """Return the SHA-256 of the files of some parts, by name; by default of all files.

        Args:
            parts: names of parts.
        """
        files = map(self.file, parts) if parts else self.files
        return {f"{self.name}/{file.path}": file.sha256 for file in files}

    def path(self, part: str) -> Path:
        """Return the local path of a part and check its hash; raise an error if it is missing.

        Args:
            part: name of a part.
        """
        file = self.file(part)
        for folder in _search_folders():
            if (path := folder / self.folder / file.path).exists():
                # A wrong hash raises instead of falling back to the cache: the user's copy would be
                # passed over without a word.
                _check_digest(path, file)
                return path
        raise DatasetMissingError(
            f"{self.name} ({part}) is not on this machine",
            hint=self._how_to_get(file),
        )

    def ensure_local(self, part: str) -> Path:
        """Return the local path of a part; download the file first if necessary and allowed.

        Args:
            part: name of a part.
        """
        try:
            return self.path(part)
        except DatasetMissingError:
            # Some licences do not allow automatic downloads.
            if self.get != "download":
                raise
        return _download(self, self.file(part))

    def items(self, part: str) -> Iterator[DatasetItem]:
        """Yield the items of a part; raise an error if their number differs from the catalog.

        Args:
            part: name of a part.
        """
        file, count = self.file(part), 0
        try:
            # No newline conversion: readers need the original line ends.
            text = self.ensure_local(part).read_bytes().decode(file.encoding)
        except UnicodeDecodeError as error:
            raise LevelheadError(
                f"{self.name} ({part}) is not {file.encoding.upper()}: {error}",
                hint=f"save your copy as {file.encoding.upper()}",
            ) from None
        try:
            for item in read_items(self.reader, text, part):
                count += 1
                yield item
        except BadRowError as error:
            raise LevelheadError(
                f"{self.name} ({part}), {error.problem}", hint=error.hint
            ) from None
        # A reader that drops rows silently would change every measure on this set.
        if file.items and count != file.items:
            raise LevelheadError(
                f"{self.name} ({part}) gave {count} items, not {file.items}",
                hint="report this: the reader and the catalog disagree",
            )

    def records(self, part: str, kind: type[RecordT]) -> tuple[RecordT, ...]:
        """Return the items of a part that have a type.

        Args:
            part: name of a part.
            kind: type of the items.
        """
        return tuple(item for item in self.items(part) if isinstance(item, kind))

    def _how_to_get(self, file: DatasetFile) -> str:
        target = (
            Path(os.environ.get("LEVELHEAD_DATA") or dataset_cache_folder())
            / self.folder
            / file.path
        )
        if self.get == "download":
            return f"levelhead data get {self.name}, or put {file.url} at {target}"
        return f"put a copy at {target} ({self.note})"


def read_file_items(path: str | os.PathLike[str], reader: str) -> Iterator[DatasetItem]:
    """Yield the items of a user's file.

    Args:
        path: path of the file.
        reader: name of the reader for its format.
    """
    if reader not in READERS:
        raise UnknownNameError("reader", reader, READERS)
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="give a UTF-8 file") from None
    yield from read_items(reader, text, Path(path).stem)


def dataset(name: str) -> Dataset:
    """Return a data set, by name."""
    if name not in datasets():
        raise UnknownNameError("data set", name, datasets())
    return datasets()[name]


@cache
def datasets() -> dict[str, Dataset]:
    """Return all data sets of the catalog, by name."""
    table = tomllib.loads(files("levelhead.data").joinpath("datasets.toml").read_text("utf-8"))
    return {
        row["name"]: Dataset(
            **(row | {"files": tuple(DatasetFile(**file) for file in row["files"])})
        )
        for row in table["dataset"]
    }


def dataset_cache_folder() -> Path:
    """Return the folder of downloaded files."""
    root = os.environ.get("LEVELHEAD_CACHE") or pooch.os_cache("levelhead")
    return Path(root) / "data"


def _search_folders() -> Iterator[Path]:
    # The user's folder comes first, so that a corrected or licensed copy is used.
    if user_folder := os.environ.get("LEVELHEAD_DATA"):
        yield Path(user_folder)
    yield dataset_cache_folder()


def _check_digest(path: Path, file: DatasetFile) -> None:
    if file.sha256 and file_hash(path) != file.sha256:
        raise ChecksumError(
            f"{path} is not the file of the catalog (SHA-256 {file.sha256[:12]}...)",
            hint="remove it and download it again; another version gives other numbers",
        )


def _download(row: Dataset, file: DatasetFile) -> Path:
    """Download a file to the cache; pooch checks the hash before it renames the file."""
    target = dataset_cache_folder() / row.folder / file.path
    # For tests and machines without internet access: a server with the same folders.
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
        raise ChecksumError(
            f"{url} has another SHA-256 than the catalog: {(str(error).splitlines() or [''])[0]}",
            hint="try again; if the error remains, the file was changed at its source",
        ) from None
    # pooch passes on errors of several libraries: network, TLS, file system.
    except Exception as error:
        raise DatasetMissingError(
            f"{url} could not be downloaded: {(str(error).splitlines() or [''])[0]:.160}",
            hint=row._how_to_get(file),
        ) from None
    return target
