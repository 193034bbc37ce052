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
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError, MissingExtra
from levelhead.core.files import Url, absolute, file_hash, located, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FORMATS = (".txt", ".tsv", ".jsonl", ".parquet")
PIECE = 4 * 2**20
"""Bytes in a piece, about."""
ROWS = 32_768
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
            whole, length = file_hash(url), len(_column(url))
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
        names = sorted(fs.glob(path)) if any(sign in path for sign in "*?[") else [path]
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
    if piece.url.endswith(".parquet"):
        texts: Iterable[str] = _column(piece.url)[piece.start : piece.end]
    else:
        texts = (text for line in _lines(piece) for text in _texts(line, piece.url))
    for text in texts:
        yield from split(unicodedata.normalize("NFC", text))


def _column(url: str) -> list[str]:
    """The column `text` of a Parquet file."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("reading Parquet", "mine") from None
    try:
        column = polars.read_parquet(io.BytesIO(read_bytes(url)), columns=["text"])["text"]
        found: list[str] = column.drop_nulls().cast(polars.String).to_list()
    except polars.exceptions.PolarsError as error:
        raise LevelheadError(
            f"{url} has no column of text: {error}", mend="name the column of texts `text`"
        ) from None
    return found


def _lines(piece: Piece) -> Iterator[bytes]:
    fs, path = located(piece.url)
    with fs.open(path, "rb") as file:
        file.seek(max(piece.start - 1, 0))
        before = file.read(1) if piece.start else b"\n"
        data = file.read(piece.end - piece.start)
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            raise LevelheadError(
                f"{piece.url} changed while it was read", mend="mine it into a new folder"
            )
        if data and not data.endswith(b"\n"):
            data += file.readline()  # the line that ends beyond
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    yield from (line.rstrip(b"\r") for line in (lines if before == b"\n" else lines[1:]))


def _texts(line: bytes, url: str) -> Iterator[str]:
    try:
        text = line.decode("utf-8")
        if url.endswith(".jsonl"):
            text = json.loads(text)["text"]
        elif url.endswith(".tsv"):
            _, text = text.split("\t", 1)
    except (UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise LevelheadError(
            f"{url} holds a line that is not as its format says: {error}",
            mend="a .jsonl line is an object with a field text, a .tsv line has a tab; all UTF-8",
        ) from None
    if not isinstance(text, str):
        raise LevelheadError(f"a text in {url} is no string", mend="correct the field text")
    if text := text.removeprefix("\ufeff").strip():
        yield text


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
