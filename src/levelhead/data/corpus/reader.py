"""Corpora: files, globs and URLs of text, split into pieces that can be read independently.

Formats are lines of text (.txt), lines with a document and a sentence (.tsv), lines with a JSON
object with a field `text` (.jsonl), and a column `text` (.parquet, with the `mine` extra). A piece
is a range of bytes, or of rows for Parquet. A line belongs to the piece in which it begins, so that
the split does not change the result. Documents are split into sentences.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.core.files import Url, absolute_url, file_hash, open_filesystem, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CORPUS_SUFFIXES = (".txt", ".tsv", ".jsonl", ".parquet")
# Large enough to make start-up costs small, small enough to bound the memory of a worker.
PIECE_BYTES = 16 * 2**20
"""Approximate number of bytes in a piece."""
PIECE_ROWS = 262_144
"""Number of rows in a piece of a Parquet file."""
# A row of web text has 3 KB on average, so a piece about 1 GB; a column of equal texts takes a few
# bytes in a file and may take terabytes in memory.
MAX_PIECE_BYTES = 8 * 2**30
"""Largest size of the texts in a piece of a Parquet file."""


class CorpusPiece(NamedTuple):
    """A range of bytes of a file with their hash, so that a changed file is detected."""

    url: str
    sha256: str
    """SHA-256 of the piece; of the complete file for Parquet."""
    start: int
    end: int


def split_corpus(sources: Sequence[Url], *, size: int = PIECE_BYTES) -> list[CorpusPiece]:
    """Split the files of paths, globs and URLs into pieces, in order.

    Args:
        sources: paths, globs or URLs.
        size: number of bytes per piece.
    """
    corpus_pieces = []
    for url in expand_sources(sources):
        if url.endswith(".parquet"):
            # Byte ranges of a Parquet file are not readable, so pieces are ranges of rows.
            file_digest, length = _file_digest(url), count_parquet_rows(url)
            ranges = [
                (start, min(start + PIECE_ROWS, length))
                for start in range(0, max(length, 1), PIECE_ROWS)
            ]
            corpus_pieces += [CorpusPiece(url, file_digest, start, end) for start, end in ranges]
            continue
        fs, path = open_filesystem(url)
        with fs.open(path, "rb") as file:
            start = 0
            # An empty file gives one empty piece, so that it appears in the manifest.
            while (data := file.read(size)) or not start:
                digest = hashlib.sha256(data).hexdigest()
                corpus_pieces.append(CorpusPiece(url, digest, start, start + len(data)))
                start += len(data) or 1
    return corpus_pieces


def expand_sources(sources: Sequence[Url]) -> list[str]:
    """Return every file once; raise an error for a pattern without files.

    Args:
        sources: paths, globs or URLs.
    """
    paths: dict[str, None] = {}
    for source in sources:
        fs, path = open_filesystem(source)
        protocol = absolute_url(source).partition("://")[0] if "://" in str(source) else ""
        # An existing file is never a pattern, even if its path contains *, ? or [.
        pattern = not fs.isfile(path) and any(character in str(source) for character in "*?[")
        names = sorted(fs.glob(path)) if pattern else [path]
        names = [name for name in names if fs.isfile(name)]
        if not names:
            raise LevelheadError(f"there is no file {source}", hint="check the path or the pattern")
        for name in names:
            if not str(name).endswith(CORPUS_SUFFIXES):
                raise LevelheadError(
                    f"{name} is none of {', '.join(CORPUS_SUFFIXES)}",
                    hint="convert it to one of these formats",
                )
            paths[f"{protocol}://{name}" if protocol else str(name)] = None
    if not paths:
        raise LevelheadError("there is no corpus", hint="name at least one file")
    return list(paths)


def iter_sentences(piece: CorpusPiece) -> Iterator[str]:
    """Yield the sentences of a piece, in NFC."""
    for text in read_texts(piece):
        yield from split_text_sentences(text)


def split_text_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, in NFC."""
    # A byte order mark is part of the first word otherwise.
    without_mark = text.removeprefix("\ufeff")
    return split_sentences(
        without_mark if without_mark.isascii() else unicodedata.normalize("NFC", without_mark)
    )


def read_texts(piece: CorpusPiece) -> Sequence[str]:
    """Return the texts of a piece unchanged; for Parquet a column without missing values."""
    if piece.url.endswith(".parquet"):
        _check_unchanged(piece)
        _check_decoded_size(piece)
        length = piece.end - piece.start
        (column_rows,) = _query_parquet(
            piece.url, lambda _, column: [column.slice(piece.start, length)]
        )
        column_texts: Sequence[str] = column_rows["text"].drop_nulls()
        return column_texts
    data = _read_lines(piece)
    if not data:
        return []
    if piece.url.endswith(".txt"):
        lines: list[str] = _decode(data, piece.url).split("\n")
        return lines
    return [_parse_line(line, piece.url) for line in data.split(b"\n")]


def read_matching_texts(piece: CorpusPiece, pattern: str) -> tuple[int, Sequence[str]]:
    """Return the number of texts of a piece, and at least the texts that match a pattern.

    Args:
        piece: piece of a corpus.
        pattern: regular expression of Polars.
    """
    if not piece.url.endswith(".parquet") or not _is_pattern(pattern):
        all_texts = read_texts(piece)
        return len(all_texts), all_texts
    _check_unchanged(piece)
    _check_decoded_size(piece)

    def build_query(polars: Any, column: Any) -> Any:
        rows = column.slice(piece.start, piece.end - piece.start).drop_nulls()
        return rows.select(polars.len()), rows.filter(polars.col("text").str.contains(pattern))

    count, matches = _query_parquet(piece.url, build_query)
    return count.item(), matches["text"]


def _is_pattern(text: str) -> bool:
    """Return whether Polars can compile a pattern; very long ones exceed its size limit."""
    try:
        import polars
    except ImportError:
        return False
    try:
        polars.Series([""]).str.contains(text)
    except polars.exceptions.ComputeError:
        return False
    return True


def count_parquet_rows(url: str) -> int:
    """Return the number of rows of a Parquet file."""
    (row_count,) = _query_parquet(url, lambda polars, column: [column.select(polars.len())])
    return int(row_count.item())


def _query_parquet(
    url: str, build_query: Callable[[Any, Any], Any], *, is_text: bool = True
) -> Any:
    """Query the column `text` of a Parquet file; of local files only this column is read.

    Args:
        url: path or URL of the file.
        build_query: makes lazy frames from Polars and the column.
        is_text: whether the column is converted to text.
    """
    try:
        import polars
    except ImportError:
        raise MissingExtraError("reading Parquet", "mine") from None
    # Polars reads local files lazily; remote files are downloaded once for all pieces.
    source = url if "://" not in url else io.BytesIO(_cached_bytes(url))
    try:
        # No pattern: x[1].parquet is the file of this name, and not x1.parquet.
        column = polars.scan_parquet(source, glob=False).select("text")
        # Numbers and structures would become texts of digits and brackets.
        if not isinstance(kind := column.collect_schema()["text"], _text_types(polars)):
            raise LevelheadError(
                f"the column text of {url} holds {kind!r:.80} and no text",
                hint="name the column of texts `text`",
            )
        if is_text:
            column = column.select(polars.col("text").cast(polars.String))
        return polars.collect_all(build_query(polars, column))
    except polars.exceptions.PolarsError as error:
        raise LevelheadError(
            f"{url} has no column of text: {error}", hint="name the column of texts `text`"
        ) from None


def _text_types(polars: Any) -> tuple[type, ...]:
    # Binary: some programs write texts so; what is no UTF-8 is an error when it is read.
    kinds = (polars.String, polars.Categorical, polars.Enum, polars.Binary, polars.Null)
    return tuple(kinds)


def _check_decoded_size(piece: CorpusPiece) -> None:
    """Raise an error for a piece whose texts would not fit in memory."""

    def build_query(polars: Any, column: Any) -> Any:
        rows = column.slice(piece.start, piece.end - piece.start)
        # Categories are counted as such: as text, each row would be a copy of its category.
        is_categorical = column.collect_schema()["text"] in (polars.Categorical, polars.Enum)
        texts = polars.col("text") if is_categorical else polars.col("text").cast(polars.String)
        lengths = (texts.cat if is_categorical else texts.str).len_bytes()
        return [rows.select(lengths.cast(polars.UInt64).sum())]

    (size,) = _query_parquet(piece.url, build_query, is_text=False)
    if size.item() > MAX_PIECE_BYTES:
        raise LevelheadError(
            f"{piece.end - piece.start:,} rows of {piece.url} hold {size.item():,} bytes of text",
            hint="write shorter texts: one document in a row",
        )


def _check_unchanged(piece: CorpusPiece) -> None:
    """Raise an error if the file changed since it was split into pieces."""
    if piece.sha256 and _file_digest(piece.url) != piece.sha256:
        raise _changed_error(piece.url)


def _file_digest(url: str) -> str:
    """Return the hash of a file; it is cached while size and modification time are the same."""
    fs, path = open_filesystem(url)
    info = fs.info(path)
    return _cached_hash(
        # ETag and LastModified identify versions on object stores, size and mtime on disks.
        url,
        tuple(str(info.get(name)) for name in ("size", "mtime", "ETag", "LastModified")),
    )


@lru_cache(maxsize=64)
def _cached_hash(url: str, signature: tuple[str, ...]) -> str:
    return file_hash(url)


def _changed_error(url: str) -> LevelheadError:
    return LevelheadError(f"{url} changed during the run", hint="mine it into a new folder")


@lru_cache(maxsize=1)
def _cached_bytes(url: str) -> bytes:
    """Return the bytes of a remote file; one is cached, because its pieces are read in sequence."""
    return read_bytes(url)


def _read_lines(piece: CorpusPiece) -> bytes:
    """Return the lines that begin in a piece."""
    fs, path = open_filesystem(piece.url)
    with fs.open(path, "rb") as file:
        # The byte before shows whether the piece starts at the beginning of a line.
        file.seek(max(piece.start - 1, 0))
        before = file.read(1) if piece.start else b"\n"
        data: bytes = file.read(piece.end - piece.start)
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            raise _changed_error(piece.url)
        if data and not data.endswith(b"\n"):
            # The last line of the piece may end after it.
            data += file.readline()
    # The first line began in the piece before and belongs to it.
    if before != b"\n":
        data = data.partition(b"\n")[2]
    return data.removesuffix(b"\n")


def _decode(data: bytes, url: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _format_error(url, error) from None


def _parse_line(line: bytes, url: str) -> str:
    """Return the text of a line."""
    text = _decode(line, url)
    try:
        text_field = json.loads(text)["text"] if url.endswith(".jsonl") else text.split("\t", 1)[1]
    # RecursionError: brackets without end.
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _format_error(url, error) from None
    # JSON can escape half of a surrogate pair, which UTF-8 cannot write and no tokenizer reads.
    is_text = isinstance(text_field, str)
    if not is_text or (b"\\u" in line and re.search(r"[\ud800-\udfff]", text_field)):
        raise LevelheadError(f"a text in {url} is no string", hint="correct the field text")
    return text_field


def _format_error(url: str, error: Exception) -> LevelheadError:
    return LevelheadError(
        f"{url} contains a line that does not fit its format: {error}",
        hint="give .jsonl lines with a field text, .tsv lines with a tab, and UTF-8",
    )


_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"'\u201d\u2019)\]]*\s+(?=[\"'\u201c\u2018(\[]?[A-Z\u00c0-\u00de])"
)
# Only abbreviations before names, where a capital letter follows regularly.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|No|Gen|Sen|Rep|Lt|Col|[A-Z])\.$"
)
_ABBREVIATION_CHARS = 7
"""Characters before a possible end of a sentence that decide: more than any abbreviation has."""


def split_sentences(text: str) -> Iterator[str]:
    """Split a text after full stops before a capital, except after abbreviations and initials.

    >>> list(split_sentences("Mr. Smith left. He was tired."))
    ['Mr. Smith left.', 'He was tired.']
    """
    begin = 0
    for match in _SENTENCE_END.finditer(text):
        # All of the text before would cost the square of its length in a list of initials.
        recent = max(begin, match.start() - _ABBREVIATION_CHARS)
        if _ABBREVIATION.search(text[recent : match.start()]):
            continue
        end = match.start() + len(match[0].rstrip())
        if part := text[begin:end].strip():
            yield part
        begin = match.end()
    if part := text[begin:].strip():
        yield part
