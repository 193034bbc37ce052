"""One tidy table of a study: a row a number, with all that belongs to it."""

from __future__ import annotations

import csv
import io
from functools import cache
from typing import TYPE_CHECKING

from levelhead.core.calibration import mark_of
from levelhead.core.results import Inconclusive, Record
from levelhead.study.row import Row, RowCells
from levelhead.study.steps.kinds import STEP_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from levelhead.study.steps.kinds import ToRows


def blocks(table: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows in blocks whose intervals are of one kind: over items first, then each repetition.

    Printed in one column, an interval over three sets reads like one over all words.
    """
    parted: dict[str, list[Row]] = {"": []}
    for row in table:
        parted.setdefault("" if row.is_over_items else row.over, []).append(row)
    return [(over, own) for over, own in parted.items() if own]


def rows(step: str, result: Record) -> list[Row]:
    """A result's rows; those of a result that is of one ruler have its mark."""
    if isinstance(result, Inconclusive):
        return []  # nothing was measured
    own: RowCells = {"step": step, "mark": mark_of(getattr(result, "measured_by", None))}
    return [Row(**own | told) for told in _to_rows()[type(result)](result)]


@cache
def _to_rows() -> Mapping[type[Record], ToRows]:
    """What makes rows of a result, by its class."""
    return {result: make for kind in STEP_KINDS for result, make in kind.definition.rows.items()}


def to_csv(table: list[Row]) -> str:
    """The table as CSV text; empty cells where a number has no such thing."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(Row.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: "" if value is None else value for key, value in row.model_dump().items()}
        for row in table
    )
    return file.getvalue()
