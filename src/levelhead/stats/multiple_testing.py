"""Many tests at once: p-values corrected for the family they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.stats.degenerate import is_constant

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down p-values: family-wise error under any dependence (Holm 1979).

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = _family(p)
    order = np.argsort(values, kind="stable")
    factors = np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> NDArray[np.float64]:
    """Benjamini and Hochberg's p-values: the share of false discoveries (1995).

    Valid for tests that are independent or positively dependent.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    return np.asarray(stats.false_discovery_control(_family(p)), dtype=np.float64)


def max_t(observed: ArrayLike, null: ArrayLike) -> NDArray[np.float64]:
    """Romano and Wolf's step-down p-values (2005; computed as in their paper of 2016).

    Family-wise error, using the dependence between the tests that Holm must assume the worst of.

    Args:
        observed: [k] studentised statistics, large = evidence; give |t| for two-sided tests.
        null: [m, k] the same statistics under m joint rearrangements or centred resamples,
            studentised the same way. One row is one rearrangement of all tests together.

    Returns:
        [k] adjusted p-values, (b + 1) / (m + 1) at every step.
    """
    t, draws = np.asarray(observed, dtype=np.float64), np.asarray(null, dtype=np.float64)
    if t.ndim != 1 or t.size == 0 or draws.ndim != 2 or draws.shape[1] != t.size or not len(draws):
        raise LevelheadError(
            f"max-T needs k statistics and m x k draws, not {t.shape} and {draws.shape}",
            mend="stack one row a rearrangement, one column a test",
        )
    if not (np.isfinite(t).all() and np.isfinite(draws).all()):
        raise NotMeasurable(
            "some statistics of the family are not finite",
            mend="leave out, by name, tests without spread before correcting",
        )
    if any(is_constant(column) for column in draws.T):
        raise NotMeasurable(
            "some tests of the family have a null without spread",
            mend="leave out, by name, tests that no rearrangement changes",
        )
    order = np.argsort(-t, kind="stable")
    # The hardest hypothesis competes with the maximum over all, the next over those that remain.
    remaining = np.maximum.accumulate(draws[:, order][:, ::-1], axis=1)[:, ::-1]  # [m, k]
    at_least = (remaining >= t[order] - 1e-12 * np.abs(t[order])).sum(axis=0)
    adjusted = np.empty_like(t)
    adjusted[order] = np.maximum.accumulate((at_least + 1) / (len(draws) + 1))
    return adjusted


def _family(p: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not ((values >= 0) & (values <= 1)).all():
        raise NotMeasurable(
            "a family of tests needs one p-value between 0 and 1 each",
            mend="leave out, by name, tests that gave none, and say how many",
        )
    return values
