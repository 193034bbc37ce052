"""A row of a study's table: one number with its interval, test and units."""

from __future__ import annotations

import re
from typing import TypedDict

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.results import Estimate, Interval, Measurement, PValue, Record
from levelhead.mitigate.heads.mask_top_heads import RANDOM_HEAD_SETS


class TableRow(Record):
    """One number."""

    step: str
    """The step of the study that computed the number."""
    name: str
    what: str
    value: float
    low: float | None = None
    high: float | None = None
    level: float | None = None
    method: str = ""
    over: str = ""
    """Units of the interval: kinds of resampled items ("words"), or repetitions with their number
    ("3 random head sets"). Intervals of the two kinds are not comparable."""
    parity: float | None = None
    p: float | None = None
    adjusted: float | None = None
    detectable: float | None = None
    n: int | None = None
    dropped: int | None = None
    unit: str = ""
    mark: str = ""
    """Mark of a measure that failed calibration on models with planted bias."""

    @property
    def is_over_items(self) -> bool:
        """Whether the interval is over items, as for measures; True without an interval."""
        return not self.over[:1].isdigit() and self.over not in REPETITION_UNITS.values()


class RowCells(TypedDict, total=False):
    """The cells of a row, by the fields of `TableRow`; missing steps and marks are added."""

    step: str
    name: str
    what: str
    value: float
    low: float | None
    high: float | None
    level: float | None
    method: str
    over: str
    parity: float | None
    p: float | None
    adjusted: float | None
    detectable: float | None
    n: int | None
    dropped: int | None
    unit: str
    mark: str


REPETITION_UNITS = {
    "heads relabelled within layers": "random groups of heads",
    "bootstrap of models": "models",
}
"""Units of intervals whose method names no number of units."""


def interval_over(interval: Interval) -> str:
    """The units of an interval from its method: resampled items, without their number.

    >>> ends = {"low": 0.0, "high": 1.0, "level": 0.95}
    >>> interval_over(Interval(method="bootstrap t, 20+20 words; contexts held", **ends))
    'words; contexts held'
    >>> interval_over(Interval(method="student, 3 random head sets", **ends))
    '3 random head sets'
    """
    # Methods name their units after a count: "20+20 words", "3 random head sets".
    units = re.search(r"(?<![\w.])\d[\d+]* [a-z].*", interval.method)
    if units is None:
        # The closed forms ("wilson", "t", "bonett-price") treat single items as the units.
        return REPETITION_UNITS.get(interval.method, "items")
    if units[0].endswith(RANDOM_HEAD_SETS):
        return units[0]
    return re.sub(r"\b\d[\d+]* (of (?=\d))?", "", units[0])


def estimate_cells(
    name: str, estimate: Estimate | Measurement, what: str | None = None, mark: str | None = None
) -> RowCells:
    """The cells of an estimate; by default with the mark of its result."""
    if mark is None and isinstance(estimate, Measurement):
        mark = failed_calibration_mark(estimate)
    cells: RowCells = {
        "name": name,
        "what": what or (estimate.measure if isinstance(estimate, Measurement) else estimate.name),
        "value": estimate.value,
        "parity": estimate.parity,
        "detectable": estimate.detectable,
        "n": estimate.n,
        "dropped": len(estimate.dropped) if isinstance(estimate, Measurement) else None,
        "unit": estimate.unit,
        **interval_cells(estimate.interval),
        **p_cells(estimate.p),
    }
    if mark is not None:
        cells["mark"] = mark
    return cells


def interval_cells(interval: Interval | None) -> RowCells:
    """The cells of an interval; empty for None."""
    if interval is None:
        return {}
    return {
        "low": interval.low,
        "high": interval.high,
        "level": interval.level,
        "method": interval.method,
        "over": interval_over(interval),
    }


def p_cells(p: PValue | None) -> RowCells:
    """The cells of a p-value; empty for None."""
    return {} if p is None else {"p": p.value, "adjusted": p.adjusted}
