"""Corrections of p-values for multiple testing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.stats.degenerate import is_constant

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values by Holm's step-down method: family-wise error, any dependence (Holm 1979).

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]

    Args:
        p: p-values of the family.
    """
    values = _check_family(p)
    order = np.argsort(values, kind="stable")
    # The smallest p-value is multiplied by the size of the family, the largest by 1.
    factors = np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    # The running maximum keeps the order: a test is rejected only if all smaller p-values are.
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1)
    return adjusted


def max_t(observed: ArrayLike, null: ArrayLike) -> NDArray[np.float64]:
    """Compute Romano and Wolf's step-down p-values (2005; algorithm of their paper of 2016).

    They control the family-wise error and use the dependence between the tests, for which Holm's
    method assumes the worst case.

    Args:
        observed: [k] studentised statistics, large = evidence; give |t| for two-sided tests.
        null: [m, k] the same statistics under m joint rearrangements or centred resamples,
            studentised in the same way. One row is one rearrangement of all tests together.

    Returns:
        [k] adjusted p-values, (b + 1) / (m + 1) at every step.
    """
    t, null_statistics = np.asarray(observed, dtype=np.float64), np.asarray(null, dtype=np.float64)
    if (
        t.ndim != 1
        or t.size == 0
        or null_statistics.ndim != 2
        or null_statistics.shape[1] != t.size
        or not len(null_statistics)
    ):
        raise LevelheadError(
            f"max-T needs k and m x k statistics, not {t.shape} and {null_statistics.shape}",
            hint="give one row per rearrangement and one column per test",
        )
    # Comparisons with NaN are false: a null of NaN would never exceed, and p would be its minimum.
    if not (np.isfinite(t).all() and np.isfinite(null_statistics).all()):
        raise NotMeasurableError(
            "some statistics of the family are not finite",
            hint="drop, by name, tests without spread before the correction",
        )
    # A constant null is exceeded by any larger statistic, so p would be its minimum without
    # evidence.
    if any(is_constant(column) for column in null_statistics.T):
        raise NotMeasurableError(
            "some tests of the family have a null without spread",
            hint="drop, by name, tests that no rearrangement changes",
        )
    order = np.argsort(-t, kind="stable")
    # The largest statistic is compared with the maximum over all tests, the next with the maximum
    # over the remaining tests.
    remaining = np.maximum.accumulate(null_statistics[:, order][:, ::-1], axis=1)[:, ::-1]  # [m, k]
    # Statistics that differ only by rounding count as ties, which makes p larger, not smaller.
    n_exceeding = (remaining >= t[order] - 1e-12 * np.abs(t[order])).sum(axis=0)
    adjusted = np.empty_like(t)
    # + 1 counts the observed data as one rearrangement, so that p is never 0.
    adjusted[order] = np.maximum.accumulate((n_exceeding + 1) / (len(null_statistics) + 1))
    return adjusted


def _check_family(p: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(p, dtype=np.float64)
    # NaN fails both comparisons, so a missing p-value is refused instead of being sorted last.
    if values.ndim != 1 or values.size == 0 or not ((values >= 0) & (values <= 1)).all():
        raise NotMeasurableError(
            "a family of tests needs one p-value between 0 and 1 each",
            hint="drop, by name, tests without a p-value, and report their number",
        )
    return values
