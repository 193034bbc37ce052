"""Reader for user files: texts of a CSV, TSV or JSON Lines file, by column names."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.records import LabelledExample

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python's default limit of 131,072 characters is too small for documents.
MAX_FIELD_CHARS = 10**8
"""Largest number of characters in a field."""
USER_FILE_SUFFIXES = (".csv", ".tsv", ".jsonl")


def read_user_texts(
    path: str, text: str, label: str | None = None, *, scores: bool = False
) -> tuple[LabelledExample, ...]:
    """Read texts and labels of a user file. Ids are row numbers; the first row after a header is 1.

    Args:
        path: UTF-8 file that ends in .csv, .tsv or .jsonl.
        text: column of the texts.
        label: column of the labels; None for texts without labels.
        scores: whether labels are numbers that may have a decimal point.
    """
    labelled_texts = []
    types = (str, int, float) if scores else (str, int)
    for number, row in enumerate(read_rows(path), 1):
        for column in filter(None, (text, label)):
            if column not in row:
                raise UnknownNameError(f"column of {Path(path).name}", column, list(row))
        values = [row[column] for column in (text, label) if column is not None]
        # A label with a decimal point usually means that the wrong column was named.
        is_invalid = (
            not isinstance(value, types) or not str(value).strip() or not _is_readable(value)
            for value in values
        )
        if any(is_invalid):
            raise LevelheadError(
                f"row {number} of {Path(path).name} has no text or label, or a number with a point",
                hint="complete or remove the row; write labels as words or whole numbers",
            )
        labelled_texts.append(
            # Row numbers are ids, so that dropped items can be found in the file.
            LabelledExample(f"row {number}", str(values[0]), str(values[1]) if label else "")
        )
    return tuple(labelled_texts)


def read_rows(path: str) -> Iterator[dict[str, object]]:
    """Read the rows of a user file, by column.

    Args:
        path: UTF-8 file that ends in .csv, .tsv or .jsonl.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in USER_FILE_SUFFIXES:
        raise LevelheadError(
            f"{Path(path).name} is none of {', '.join(USER_FILE_SUFFIXES)}",
            hint="save the texts in one of these formats",
        )
    try:
        # utf-8-sig drops the byte order mark that spreadsheet programs write.
        content = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(
            f"cannot read {path}: {error}", hint="give an existing file of UTF-8 text"
        ) from None
    if suffix == ".jsonl":
        yield from _read_json_lines(path, content)
        return
    yield from _read_table(path, content, quoted=suffix == ".csv")


def _read_table(path: str, content: str, *, quoted: bool) -> Iterator[dict[str, object]]:
    """Read CSV, or TSV without quoting: a text that begins with a quote must not join rows."""
    csv.field_size_limit(MAX_FIELD_CHARS)
    lines, name = io.StringIO(content, newline=""), Path(path).name
    first_line = content.partition("\n")[0]
    # Spreadsheet programs of many countries separate by semicolons: every row would be one field.
    if quoted and ";" in first_line and "," not in first_line:
        raise LevelheadError(
            f"the columns of {name} are separated by semicolons",
            hint="save it with commas, or with tabs as .tsv",
        )
    table = (
        csv.reader(lines, strict=True)
        if quoted
        else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    try:
        header = next(table, [])
        # dict() would silently use the last of two columns with the same name.
        if len(set(header)) < len(header):
            raise LevelheadError(
                f"two columns of {name} have the same name", hint="rename one of them"
            )
        for number, fields in enumerate((row for row in table if row), 1):
            if len(fields) != len(header):
                raise LevelheadError(
                    f"row {number} of {name} has more or fewer fields than the header",
                    hint="quote fields that contain the separator, or save the file as .jsonl",
                )
            yield dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise LevelheadError(
            f"{name} cannot be read as a table: {error}",
            hint="quote fields that contain quotes or commas, or save the file as .jsonl",
        ) from None


def _read_json_lines(path: str, content: str) -> Iterator[dict[str, object]]:
    # Not splitlines(): it also splits at U+2028 and other characters inside JSON strings.
    for number, line in enumerate(filter(str.strip, content.split("\n")), 1):
        try:
            row = json.loads(line, parse_constant=_refuse_constant)
        # RecursionError: brackets without end.
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise LevelheadError(
                f"row {number} of {Path(path).name} is no JSON object",
                hint="give one object per line",
            )
        yield row


def _is_readable(value: object) -> bool:
    """Whether a value is no number without a size, and no text that UTF-8 cannot write."""
    if isinstance(value, float):
        return math.isfinite(value)  # JSON may say 1e999
    # A half of a surrogate pair, which JSON can escape: no tokenizer reads it.
    return not re.search("[\ud800-\udfff]", str(value))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
