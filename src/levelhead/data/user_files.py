"""The user's own texts: rows of a CSV, TSV or JSON Lines file, by the names of their columns."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.records import Labelled

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 10**8
"""Characters of a field."""
ENDINGS = (".csv", ".tsv", ".jsonl")


def own_texts(
    path: str, text: str, label: str | None = None, *, scores: bool = False
) -> tuple[Labelled, ...]:
    """Texts, and labels if there are any. Ids are row numbers, the first row below a header is 1.

    Args:
        path: a file that ends in .csv, .tsv or .jsonl; UTF-8.
        text: the column of the texts.
        label: the column of the labels.
        scores: whether labels are numbers, which may have a point.
    """
    found = []
    kinds = (str, int, float) if scores else (str, int)
    for number, row in enumerate(_rows(path), 1):
        for column in filter(None, (text, label)):
            if column not in row:
                raise UnknownName(f"column of {Path(path).name}", column, list(row))
        values = [row[column] for column in (text, label) if column is not None]
        wrong = (not isinstance(value, kinds) or not str(value).strip() for value in values)
        if any(wrong):
            raise LevelheadError(
                f"row {number} of {Path(path).name} has no text or label, or a number with a point",
                mend="fill it, or leave the row out; write labels as words or whole numbers",
            )
        found.append(Labelled(f"row {number}", str(values[0]), str(values[1]) if label else ""))
    return tuple(found)


def _rows(path: str) -> Iterator[dict[str, object]]:
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise LevelheadError(
            f"{Path(path).name} is none of {', '.join(ENDINGS)}", mend="save the texts as one"
        )
    try:
        whole = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(
            f"cannot read {path}: {error}", mend="give a file of UTF-8 text that is there"
        ) from None
    if ending == ".jsonl":
        yield from _json_lines(path, whole)
        return
    yield from _table(path, whole, quoted=ending == ".csv")


def _table(path: str, whole: str, *, quoted: bool) -> Iterator[dict[str, object]]:
    """CSV, or TSV, which knows no quotes: a text that begins with one is not to swallow rows."""
    csv.field_size_limit(LONGEST)
    lines, name = io.StringIO(whole, newline=""), Path(path).name
    table = (
        csv.reader(lines, strict=True)
        if quoted
        else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    try:
        header = next(table, [])
        if len(set(header)) < len(header):
            raise LevelheadError(f"two columns of {name} have one name", mend="rename one of them")
        for number, fields in enumerate((row for row in table if row), 1):
            if len(fields) != len(header):
                raise LevelheadError(
                    f"row {number} of {name} has more or fewer fields than the header",
                    mend="quote fields that hold the separator, or save as .jsonl",
                )
            yield dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise LevelheadError(
            f"{name} cannot be read as a table: {error}", mend="save it as .jsonl"
        ) from None


def _json_lines(path: str, whole: str) -> Iterator[dict[str, object]]:
    for number, line in enumerate(filter(str.strip, whole.split("\n")), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise LevelheadError(
                f"row {number} of {Path(path).name} is no JSON object", mend="one object a line"
            )
        yield row
