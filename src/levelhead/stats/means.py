"""Student's t-test for means of differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Alternative, Interval, PValue
from levelhead.stats.degenerate import is_constant

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class MeanTest(NamedTuple):
    """Mean of differences with its t statistic, interval and p-value."""

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
    """Run a paired (or one-sample) t-test of a mean difference; `alternative` makes it one-sided.

    The interval is two-sided for every alternative. Yang et al. 2025, sections 5.2 and 6, test
    500 differences of attention with `alternative="greater"`.

    Args:
        differences: one difference per item.
        parity: mean under the null hypothesis.
        alternative: side of the test.
        level: confidence level of the interval.
    """
    values = _require_spread(differences)
    result = stats.ttest_1samp(values, parity, alternative=alternative)
    # A separate two-sided test, because a one-sided one has an interval with one infinite end.
    ends = stats.ttest_1samp(values, parity).confidence_interval(level)
    return MeanTest(
        mean=float(values.mean()),
        t=float(result.statistic),
        interval=Interval(low=float(ends.low), high=float(ends.high), level=level, method="t"),
        p=PValue(value=float(result.pvalue), method="t", alternative=alternative),
    )


def _require_spread(differences: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or values.size < 2:
        raise NotMeasurableError(
            f"a t-test needs a list of at least two differences, not an array {values.shape}",
            hint="give one difference per item",
        )
    # scipy would return NaN for the p-value, which is not below any level: it would read as "no
    # bias".
    if not np.isfinite(values).all():
        raise NotMeasurableError(
            f"{int((~np.isfinite(values)).sum())} of {values.size} differences are not finite",
            hint="drop such items by name, with the reason",
        )
    # Without spread, t would be infinite and p would be 0.
    if is_constant(values):
        raise NotMeasurableError(
            "all differences are equal, so no t-test can be computed",
            hint="check that the edit has an effect and that the items differ",
        )
    return values
