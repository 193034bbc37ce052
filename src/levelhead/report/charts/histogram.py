"""Counts of values in bins; 0 is always an edge, so that no bar holds both signs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BINS = 30


class Bar(NamedTuple):
    """How many values lie from `low` to `high`."""

    low: float
    high: float
    times: int


def edges(values: Sequence[float], *, bins: int = BINS) -> NDArray[np.float64]:
    """Edges of about as many bins, at round numbers.

    >>> edges([-0.31, 0.4], bins=4).tolist()
    [-0.4, -0.2, 0.0, 0.2, 0.4]
    """
    if not len(values):
        raise LevelheadError("there is no value to draw", mend="give at least one")
    low, high = min(values), max(values)
    wide = (high - low) / bins or abs(high) / bins or 1.0
    ten = 10.0 ** math.floor(math.log10(wide))
    step = next(ten * by for by in (1, 2, 5, 10) if ten * by >= wide * (1 - 1e-9))
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return np.array(
        [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]
    )


def counted(values: Sequence[float], over: NDArray[np.float64]) -> tuple[Bar, ...]:
    """How many values each bin holds; the last one holds its upper edge too.

    >>> counted([-1.0, 0.0, 0.5, 1.0], np.array([-1.0, 0.0, 1.0]))
    (Bar(low=-1.0, high=0.0, times=1), Bar(low=0.0, high=1.0, times=3))
    """
    counts, _ = np.histogram(values, over)
    return tuple(
        Bar(float(low), float(high), int(count))
        for low, high, count in zip(over[:-1], over[1:], counts, strict=True)
    )
