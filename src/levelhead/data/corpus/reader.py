"""Corpora: files, globs and URLs of text, cut into pieces that can be read apart.

Lines of text (.txt), a document and a sentence a line (.tsv), a JSON object with a field `text` a
line (.jsonl), or a column `text` (.parquet, with the `mine` extra). A piece is a range of bytes, of
rows for Parquet; a line belongs to the piece that it begins in, so that the cut changes nothing.
Documents are split into sentences.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.errors import LevelheadError, MissingExtra
from levelhead.core.files import Url, absolute, file_hash, located, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FORMATS = (".txt", ".tsv", ".jsonl", ".parquet")
PIECE = 16 * 2**20
"""Bytes in a piece, about."""
ROWS = 262_144
"""Rows in a piece of a Parquet file."""


class Piece(NamedTuple):
    """A range of bytes of a file, and their hash: another file under the name is refused."""

    url: str
    sha256: str
    """Of the piece; of the whole file for Parquet."""
    start: int
    end: int


def pieces(sources: Sequence[Url], *, size: int = PIECE) -> list[Piece]:
    """The files that paths, globs and URLs name, in order, cut into pieces."""
    found = []
    for url in expanded(sources):
        if url.endswith(".parquet"):
            whole, length = _whole(url), rows_of(url)
            ranges = [
                (start, min(start + ROWS, length)) for start in range(0, max(length, 1), ROWS)
            ]
            found += [Piece(url, whole, start, end) for start, end in ranges]
            continue
        fs, path = located(url)
        with fs.open(path, "rb") as file:
            start = 0
            while (data := file.read(size)) or not start:
                digest = hashlib.sha256(data).hexdigest()
                found.append(Piece(url, digest, start, start + len(data)))
                start += len(data) or 1
    return found


def expanded(sources: Sequence[Url]) -> list[str]:
    """Every file once; a pattern that names none is an error."""
    found: dict[str, None] = {}
    for source in sources:
        fs, path = located(source)
        protocol = absolute(source).partition("://")[0] if "://" in str(source) else ""
        # A file that is there is itself, whatever signs its name or its folders' names have.
        pattern = not fs.isfile(path) and any(sign in str(source) for sign in "*?[")
        names = sorted(fs.glob(path)) if pattern else [path]
        names = [name for name in names if fs.isfile(name)]
        if not names:
            raise LevelheadError(f"there is no file {source}", mend="check the path or the pattern")
        for name in names:
            if not str(name).endswith(FORMATS):
                raise LevelheadError(
                    f"{name} is none of {', '.join(FORMATS)}", mend="convert it to one of them"
                )
            found[f"{protocol}://{name}" if protocol else str(name)] = None
    if not found:
        raise LevelheadError("there is no corpus", mend="name at least one file")
    return list(found)


def sentences(piece: Piece) -> Iterator[str]:
    """The sentences of a piece, in NFC."""
    for text in texts(piece):
        yield from sentences_of(text)


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text, in NFC."""
    plain = text.removeprefix("\ufeff")
    return split(plain if plain.isascii() else unicodedata.normalize("NFC", plain))


def texts(piece: Piece) -> Sequence[str]:
    """The texts of a piece as they stand there; of Parquet a column, without what is missing."""
    if piece.url.endswith(".parquet"):
        _check_whole(piece)
        length = piece.end - piece.start
        (asked,) = _asked(piece.url, lambda _, column: [column.slice(piece.start, length)])
        found: Sequence[str] = asked["text"].drop_nulls()
        return found
    data = _read(piece)
    if not data:
        return []
    if piece.url.endswith(".txt"):
        lines: list[str] = _decoded(data, piece.url).split("\n")
        return lines
    return [_field(line, piece.url) for line in data.split(b"\n")]


def texts_with(piece: Piece, pattern: str) -> tuple[int, Sequence[str]]:
    """How many texts a piece has, and at least those in which a pattern (of Polars) is found."""
    if not piece.url.endswith(".parquet") or not _is_pattern(pattern):
        read = texts(piece)
        return len(read), read
    _check_whole(piece)

    def question(polars: Any, column: Any) -> Any:
        own = column.slice(piece.start, piece.end - piece.start).drop_nulls()
        return own.select(polars.len()), own.filter(polars.col("text").str.contains(pattern))

    count, found = _asked(piece.url, question)
    return count.item(), found["text"]


def _is_pattern(text: str) -> bool:
    """Whether Polars can look for it: not for more words than an expression may have."""
    try:
        import polars
    except ImportError:
        return False
    try:
        polars.Series([""]).str.contains(text)
    except polars.exceptions.ComputeError:
        return False
    return True


def rows_of(url: str) -> int:
    """How many rows a Parquet file has."""
    (found,) = _asked(url, lambda polars, column: [column.select(polars.len())])
    return int(found.item())


def _asked(url: str, question: Callable[[Any, Any], Any]) -> Any:
    """What is asked of the column `text` of a Parquet file; on this machine only that is read."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("reading Parquet", "mine") from None
    source = url if "://" not in url else io.BytesIO(_fetched(url))
    try:
        column = polars.scan_parquet(source).select(polars.col("text").cast(polars.String))
        return polars.collect_all(question(polars, column))
    except polars.exceptions.PolarsError as error:
        raise LevelheadError(
            f"{url} has no column of text: {error}", mend="name the column of texts `text`"
        ) from None


def _check_whole(piece: Piece) -> None:
    """Raise if the file is another than the one that was cut into pieces."""
    if piece.sha256 and _whole(piece.url) != piece.sha256:
        raise _changed(piece.url)


def _whole(url: str) -> str:
    """The hash of a file, taken once as long as the file looks the same."""
    fs, path = located(url)
    told = fs.info(path)
    return _hash(
        url, tuple(str(told.get(name)) for name in ("size", "mtime", "ETag", "LastModified"))
    )


@lru_cache(maxsize=64)
def _hash(url: str, seen: tuple[str, ...]) -> str:
    return file_hash(url)


def _changed(url: str) -> LevelheadError:
    return LevelheadError(f"{url} changed while it was read", mend="mine it into a new folder")


@lru_cache(maxsize=1)
def _fetched(url: str) -> bytes:
    """A file from afar: the pieces of one follow each other."""
    return read_bytes(url)


def _read(piece: Piece) -> bytes:
    """The lines that begin in a piece."""
    fs, path = located(piece.url)
    with fs.open(path, "rb") as file:
        file.seek(max(piece.start - 1, 0))
        before = file.read(1) if piece.start else b"\n"
        data: bytes = file.read(piece.end - piece.start)
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            raise _changed(piece.url)
        if data and not data.endswith(b"\n"):
            data += file.readline()  # the line that ends beyond
    if before != b"\n":
        data = data.partition(b"\n")[2]
    return data.removesuffix(b"\n")


def _decoded(data: bytes, url: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unlike(url, error) from None


def _field(line: bytes, url: str) -> str:
    """The text of a line."""
    text = _decoded(line, url)
    try:
        found = json.loads(text)["text"] if url.endswith(".jsonl") else text.split("\t", 1)[1]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _unlike(url, error) from None
    if not isinstance(found, str):
        raise LevelheadError(f"a text in {url} is no string", mend="correct the field text")
    return found


def _unlike(url: str, error: Exception) -> LevelheadError:
    return LevelheadError(
        f"{url} holds a line that is not as its format says: {error}",
        mend="a .jsonl line is an object with a field text, a .tsv line has a tab; all UTF-8",
    )


_END = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)\]]*\s+(?=[\"'\u201c\u2018(\[]?[A-Z\u00c0-\u00de])")
_SHORT = re.compile(r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|No|Gen|Sen|Rep|Lt|Col|[A-Z])\.$")


def split(text: str) -> Iterator[str]:
    """Sentences of a text: after a full stop and before a capital, but not after Mr. or an initial.

    >>> list(split("Mr. Smith left. He was tired."))
    ['Mr. Smith left.', 'He was tired.']
    """
    begin = 0
    for match in _END.finditer(text):
        if _SHORT.search(text[begin : match.start()]):
            continue
        end = match.start() + len(match[0].rstrip())
        if part := text[begin:end].strip():
            yield part
        begin = match.end()
    if part := text[begin:].strip():
        yield part
