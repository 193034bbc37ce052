"""The tidy table of a study: one row per number, with its interval, test and units."""

from __future__ import annotations

import csv
import io
from functools import cache
from typing import TYPE_CHECKING

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.escape import escape_cell
from levelhead.core.results import Record, StepFailure
from levelhead.study.steps.kinds import STEP_KINDS
from levelhead.study.table_row import RowCells, TableRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from levelhead.study.steps.kinds import ToRows


def group_by_interval(table: Iterable[TableRow]) -> list[tuple[str, list[TableRow]]]:
    """Group rows by the units of their intervals: over items first, then each repetition.

    In one column, readers would take an interval over three sets for one over all words.
    """
    groups: dict[str, list[TableRow]] = {"": []}
    for row in table:
        groups.setdefault("" if row.is_over_items else row.over, []).append(row)
    return [(over, group) for over, group in groups.items() if group]


def result_to_rows(step: str, result: Record) -> list[TableRow]:
    """The rows of a result; if it has one measure, they have its mark."""
    if isinstance(result, StepFailure):
        return []  # nothing was measured
    common: RowCells = {
        "step": step,
        "mark": failed_calibration_mark(getattr(result, "measured_by", None)),
    }
    return [
        TableRow.model_validate({**common, **cells})
        for cells in _row_makers()[type(result)](result)
    ]


@cache
def _row_makers() -> Mapping[type[Record], ToRows]:
    """The functions that make rows, by class of result."""
    return {
        result: make for kind in STEP_KINDS for result, make in kind.definition.table_rows.items()
    }


def to_csv(table: list[TableRow]) -> str:
    """Write the table as CSV text; missing values are empty cells."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(TableRow.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {key: _to_cell(value) for key, value in row.model_dump().items()} for row in table
    )
    return file.getvalue()


def _to_cell(value: str | float | None) -> str | float:
    """A cell of a CSV file; texts of models and data compute nothing in a spreadsheet."""
    if isinstance(value, str):
        return escape_cell(value)
    return "" if value is None else value
