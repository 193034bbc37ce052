"""A row of a study's table: one number with all that belongs to it."""

from __future__ import annotations

import re
from typing import Any

from levelhead.core.calibration import mark_of
from levelhead.core.results import Estimate, Interval, Measurement, PValue, Record
from levelhead.mitigate.heads.mask_top_heads import SETS

RowCells = dict[str, Any]
"""The cells of a row, by name; step and mark are added where they are missing."""


class Row(Record):
    """One number."""

    step: str
    """Which part of the study it comes from."""
    name: str
    what: str
    value: float
    low: float | None = None
    high: float | None = None
    level: float | None = None
    method: str = ""
    over: str = ""
    """What the interval is over: kinds of items that were resampled ("words"), or repetitions with
    their number ("3 random head sets"). Intervals of the two kinds are not comparable."""
    parity: float | None = None
    p: float | None = None
    adjusted: float | None = None
    detectable: float | None = None
    n: int | None = None
    dropped: int | None = None
    unit: str = ""
    mark: str = ""
    """Of a ruler that failed where the truth is known."""

    @property
    def is_over_items(self) -> bool:
        """Whether the interval is over items, as those of measures are; True without one."""
        return not self.over[:1].isdigit() and self.over not in REPEATED.values()


REPEATED = {
    "heads relabelled within layers": "random groups of heads",
    "bootstrap of models": "models",
}
"""What intervals are over whose method names no number of units."""


def interval_over(interval: Interval) -> str:
    """What an interval is over, as its method says it: resampled items, without their number.

    >>> told = {"low": 0.0, "high": 1.0, "level": 0.95}
    >>> interval_over(Interval(method="bootstrap t, 20+20 words; contexts held", **told))
    'words; contexts held'
    >>> interval_over(Interval(method="student, 3 random head sets", **told))
    '3 random head sets'
    """
    units = re.search(r"(?<![\w.])\d[\d+]* [a-z].*", interval.method)
    if units is None:
        # The closed forms ("wilson", "t", "bonett-price") are all over single items.
        return REPEATED.get(interval.method, "items")
    if units[0].endswith(SETS):
        return units[0]
    return re.sub(r"\b\d[\d+]* (of (?=\d))?", "", units[0])


def estimate_cells(
    name: str, one: Estimate | Measurement, what: str | None = None, mark: str | None = None
) -> RowCells:
    """The cells of an estimate; without a mark, it has that of its result."""
    if mark is None and isinstance(one, Measurement):
        mark = mark_of(one)
    return {
        "name": name,
        "what": what or (one.measure if isinstance(one, Measurement) else one.name),
        "value": one.value,
        "parity": one.parity,
        "detectable": one.detectable,
        "n": one.n,
        "dropped": len(one.dropped) if isinstance(one, Measurement) else None,
        "unit": one.unit,
        **({} if mark is None else {"mark": mark}),
        **interval_cells(one.interval),
        **p_cells(one.p),
    }


def interval_cells(one: Interval | None) -> RowCells:
    """The cells of an interval; none without one."""
    if one is None:
        return {}
    told = {"low": one.low, "high": one.high, "level": one.level, "method": one.method}
    return told | {"over": interval_over(one)}


def p_cells(p: PValue | None) -> RowCells:
    """The cells of a p-value; none without one."""
    return {} if p is None else {"p": p.value, "adjusted": p.adjusted}
