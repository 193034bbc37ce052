"""Histogram bins; 0 is always an edge, so that no bar contains both signs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import format_interval, inline_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BINS = 30
BAR_COLOUR = "#c4c4c4"


class HistogramBar(NamedTuple):
    """The number of values between `low` and `high`."""

    low: float
    high: float
    n_values: int


def bin_edges(values: Sequence[float], *, bins: int = BINS) -> NDArray[np.float64]:
    """Compute bin edges at round numbers, for about `bins` bins.

    >>> bin_edges([-0.31, 0.4], bins=4).tolist()
    [-0.4, -0.2, 0.0, 0.2, 0.4]
    """
    if not len(values):
        raise LevelheadError("there is no value to plot", hint="give at least one")
    low, high = min(values), max(values)
    # Equal values have no range: their magnitude gives the bin width instead.
    wide = (high - low) / bins or abs(high) / bins or 1.0
    ten = 10.0 ** math.floor(math.log10(wide))
    # 1e-9: a width that is a round number up to float error must not jump to the next step.
    step = next(ten * by for by in (1, 2, 5, 10) if ten * by >= wide * (1 - 1e-9))
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return np.array(
        [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]
    )


def count_in_bins(values: Sequence[float], edges: NDArray[np.float64]) -> tuple[HistogramBar, ...]:
    """Count the values in each bin; the last bin includes its upper edge.

    >>> count_in_bins([-1.0, 0.0, 0.5, 1.0], np.array([-1.0, 0.0, 1.0]))
    (HistogramBar(low=-1.0, high=0.0, n_values=1), HistogramBar(low=0.0, high=1.0, n_values=3))
    """
    counts, _ = np.histogram(values, edges)
    return tuple(
        HistogramBar(float(low), float(high), int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )


def histogram(
    values: Sequence[float],
    edges: NDArray[np.float64],
    x: alt.X,
    *,
    field: str,
    value: str,
    title: str = "",
    colour: str | None = None,
) -> alt.Chart:
    """Plot a bar for each bin that is not empty.

    Args:
        values: the values.
        edges: edges of the bins.
        x: the axis of the values, on the field `low`.
        field: field of the counts.
        value: title of a bar's range.
        title: title of the counts; by default the field.
        colour: colour of the bars; None if the caller encodes it.
    """
    bars = [
        {
            "low": bar.low,
            "high": bar.high,
            field: bar.n_values,
            "range": format_interval(bar.low, bar.high),
        }
        for bar in count_in_bins(values, edges)
        if bar.n_values
    ]
    counts = alt.Y(f"{field}:Q", title=title or field, axis=alt.Axis(tickMinStep=1, format="d"))
    chart: alt.Chart = (
        alt.Chart(inline_data(bars))
        .mark_rect(
            color=alt.Undefined if colour is None else colour, stroke="white", strokeWidth=0.5
        )
        .encode(
            x=x,
            x2="high:Q",
            y=counts,
            # Unlike bars, rectangles have no base line.
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("range:N", title=value),
                alt.Tooltip(f"{field}:Q", title=title or field),
            ],
        )
    )
    return chart
