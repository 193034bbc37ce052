"""The user's own texts: rows of a CSV, TSV or JSON Lines file, by the names of their columns."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.items import Labelled

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDINGS = (".csv", ".tsv", ".jsonl")


def own_texts(path: str, text: str, label: str | None = None) -> tuple[Labelled, ...]:
    """Texts, and labels if there are any. Ids are row numbers, the first row below a header is 1.

    Args:
        path: a file that ends in .csv, .tsv or .jsonl; UTF-8.
        text: the column of the texts.
        label: the column of the labels.
    """
    found = []
    for number, row in enumerate(_rows(path), 1):
        for column in filter(None, (text, label)):
            if column not in row:
                raise UnknownName(f"column of {Path(path).name}", column, list(row))
        values = [row[column] for column in (text, label) if column is not None]
        if any(not isinstance(value, str | int) or not str(value).strip() for value in values):
            raise LevelheadError(
                f"row {number} of {Path(path).name} has an empty text or label",
                mend="fill it, or leave the row out",
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
    lines = io.StringIO(whole, newline="")
    for number, row in enumerate(csv.DictReader(lines, delimiter=",\t"[ending == ".tsv"]), 1):
        if None in row or None in row.values():
            raise LevelheadError(
                f"row {number} of {Path(path).name} has more or fewer fields than the header",
                mend="quote fields that hold the separator",
            )
        yield dict(row)


def _json_lines(path: str, whole: str) -> Iterator[dict[str, object]]:
    for number, line in enumerate(filter(str.strip, whole.splitlines()), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise LevelheadError(
                f"row {number} of {Path(path).name} is no JSON object", mend="one object a line"
            )
        yield row
