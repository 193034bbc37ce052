"""Student's t for means of differences, and equivalence by two one-sided tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Alternative, Interval, PValue
from levelhead.stats.degenerate import is_constant

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class MeanTest(NamedTuple):
    """The mean of some differences, its t, interval and p-value."""

    mean: float
    t: float
    interval: Interval
    p: PValue


def t_test(
    differences: ArrayLike,
    *,
    parity: float = 0.0,
    alternative: Alternative = "two-sided",
    level: float = 0.95,
) -> MeanTest:
    """Paired (or one-sample) t-test of a mean difference; one-sided by `alternative`.

    The interval is two-sided whatever the alternative. Yang et al. 2025, sections 5.2 and 6, test
    500 differences of attention with `alternative="greater"`.
    """
    values = _spread(differences)
    result = stats.ttest_1samp(values, parity, alternative=alternative)
    ends = stats.ttest_1samp(values, parity).confidence_interval(level)
    return MeanTest(
        mean=float(values.mean()),
        t=float(result.statistic),
        interval=Interval(low=float(ends.low), high=float(ends.high), level=level, method="t"),
        p=PValue(value=float(result.pvalue), method="t", alternative=alternative),
    )


def equivalence(differences: ArrayLike, low: float, high: float) -> PValue:
    """TOST: the evidence that a mean difference lies within (low, high) (Schuirmann 1987).

    The larger p-value of the two one-sided t-tests. A small p says "no change that matters"; a
    large p of an ordinary test never does.
    """
    if not low < high:
        raise LevelheadError(
            f"the margin of equivalence is empty: {low} to {high}", mend="give low < high"
        )
    values = _spread(differences)
    above = stats.ttest_1samp(values, low, alternative="greater").pvalue
    below = stats.ttest_1samp(values, high, alternative="less").pvalue
    return PValue(value=float(max(above, below)), method="TOST", alternative="two-sided")


def _spread(differences: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or values.size < 2:
        raise NotMeasurable(
            f"a t-test needs at least two differences in a row, not an array {values.shape}",
            mend="give one difference an item",
        )
    if not np.isfinite(values).all():
        raise NotMeasurable(
            f"{int((~np.isfinite(values)).sum())} of {values.size} differences are not finite",
            mend="drop such items by name, with the reason",
        )
    if is_constant(values):
        raise NotMeasurable(
            "all differences are equal, so chance cannot be judged",
            mend="check that the edit acts and that the items differ",
        )
    return values
