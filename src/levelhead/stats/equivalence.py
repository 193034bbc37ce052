"""Equivalence of paired shares by two one-sided tests (TOST; Schuirmann 1987).

A change is equivalent to none within a margin if both one-sided tests at alpha reject a change of
the margin, that is, if the interval at level 1 - 2 alpha lies inside the margin.

An edit changes few answers, and then neither resampling nor Student's t holds its level: 2 of 100
lost words look like less than 5, though 5 would give so few in 12% of samples. So each end of the
interval is computed as if one more unit had changed as far as possible in its direction. This is
the "k + 1" of Clopper and Pearson's bounds (1934), whose values are nearly the same where they
exist, and it needs no special case for units that do not change at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ALPHA = 0.05
"""Level of each one-sided test."""
TOST_LEVEL = 1 - 2 * ALPHA
"""Level of the two-sided interval whose ends are the bounds of both tests."""


def bounded_change_interval(
    changes: ArrayLike,
    unit_of_item: ArrayLike,
    *,
    bound: float,
    unit: str = "units",
    level: float = TOST_LEVEL,
) -> Interval:
    """Compute a conservative interval of the mean change of items, whose units are sampled.

    The mean is a ratio of sums over units, and its error is that of the linearised ratio (Cochran
    1977, section 6.3).

    >>> print(bounded_change_interval([0.0] * 100, range(100), bound=100))
    [-2.634, 2.634]

    Args:
        changes: change of every item.
        unit_of_item: number of every item's unit, from 0.
        bound: largest possible change of an item, in either direction.
        unit: name of the units, in the plural.
        level: confidence level, two-sided.
    """
    units = np.asarray(unit_of_item, dtype=np.intp)
    sums = np.bincount(units, weights=np.asarray(changes, dtype=np.float64))
    counts = np.bincount(units).astype(np.float64)
    n_units, size = len(counts), float(counts.mean())
    if n_units < 2:
        raise NotMeasurableError(f"{n_units} sampled unit has no spread", hint="give more units")
    # Student's t of the sampled units: the added one is no evidence.
    quantile = float(stats.t.ppf((1 + level) / 2, n_units - 1))
    ends = []
    for sign in (-1, 1):
        all_sums, all_counts = np.append(sums, sign * bound * size), np.append(counts, size)
        mean = all_sums.sum() / all_counts.sum()
        residuals = (all_sums - mean * all_counts) / size
        error = np.sqrt((residuals**2).sum() / (n_units * (n_units + 1)))
        ends.append(float(np.clip(mean + sign * quantile * error, -bound, bound)))
    return Interval(
        low=ends[0], high=ends[1], level=level, method=f"t with one more, {n_units} {unit}"
    )


def is_equivalent(interval: Interval, margin: float) -> bool:
    """Return whether an interval lies inside a margin on both sides of 0.

    Args:
        interval: interval of a change.
        margin: largest change that counts as none.
    """
    return -margin < interval.low and interval.high < margin
