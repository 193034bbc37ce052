"""Intervals by redrawing what was sampled, through the measure's own formula.

`reduce` takes the indices of the items that were drawn, repeats included, and returns the value.
It is the same function that gives the reported value, so selections inside it (a top tenth, a
largest head) are made again in every resample.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Alternative, Interval, PValue
from levelhead.core.statistics.designs import meet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.stats._resampling import BootstrapResult

    from levelhead.core.statistics.designs import Design, Indices

    Reduce = Callable[[Indices], float]

Method = Literal["percentile", "bca", "expanded", "multiway"]


def chosen_method(design: Design) -> Method:
    """The method with the best simulated coverage for a kind of design (docs/statistics.md)."""
    if len(design.factors) > 1:
        return "multiway"
    return "bca" if design.items == design.factors[0].units else "expanded"


@final
@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The value, its interval and its standard error over the resamples of a design."""

    value: float
    interval: Interval
    standard_error: float
    df: int
    """Units of the smallest stratum, less one: what the standard error is known by."""

    def p(self, parity: float, *, alternative: Alternative = "two-sided") -> PValue:
        """How surprising the value is if the truth is parity: t = (value - parity) / SE.

        For designs that no rearrangement of labels fits, such as crossed factors; where a
        permutation or sign flip is possible it needs fewer assumptions.
        """
        t = (self.value - parity) / self.standard_error
        tail = {"greater": t, "less": -t, "two-sided": abs(t)}[alternative]
        p = float(stats.t.sf(tail, self.df)) * (2 if alternative == "two-sided" else 1)
        return PValue(value=p, method="bootstrap t", alternative=alternative)


def bootstrap(
    reduce: Reduce,
    design: Design,
    *,
    rng: np.random.Generator,
    draws: int = 1999,
    level: float = 0.95,
    method: Method | None = None,
) -> Bootstrap:
    """Redraw the units of a design and reduce each resample.

    Args:
        reduce: the measure's formula on the items drawn.
        design: what was sampled independently.
        rng: the source of chance.
        draws: resamples.
        level: confidence level.
        method: by default `chosen_method(design)`. `percentile`; `bca`, bias-corrected and
            accelerated (Efron 1987); `expanded`, percentiles moved out to make up for the
            narrowness of the bootstrap with few units (Hesterberg 2015, "What teachers should
            know about the bootstrap", section 5); `multiway`, for crossed factors, percentiles
            of the pigeonhole bootstrap rescaled to the unbiased variance of crossed sampling.
    """
    method = method or chosen_method(design)
    value = finite(reduce(np.arange(design.items)))
    result = _resample(
        reduce, design, rng, draws, level, "BCa" if method == "bca" else "percentile"
    )
    spread = float(result.standard_error)
    low, high = (float(end) for end in result.confidence_interval)
    if spread > 0 and method == "expanded":
        wide = np.sqrt(design.smallest / (design.smallest - 1)) * _t(level, design)
        low, high = _percentiles(result.bootstrap_distribution, wide)
    elif spread > 0 and method == "multiway":
        pigeonhole, spread = spread, np.sqrt(_multiway_variance(reduce, design, rng, draws))
        scaled = value + (result.bootstrap_distribution - value) * (spread / pigeonhole)
        low, high = _percentiles(scaled, _t(level, design))
    if spread == 0 or not np.isfinite([low, high]).all():
        raise NotMeasurable(
            "every resample gives the same value, so chance cannot be judged",
            mend="check that the items differ; for shares near 0 or 1 use the proportion interval",
        )
    return Bootstrap(
        value=value,
        interval=Interval(low=low, high=high, level=level, method=f"{method}, {design}"),
        standard_error=float(spread),
        df=design.smallest - 1,
    )


def _resample(
    reduce: Reduce,
    design: Design,
    rng: np.random.Generator,
    draws: int,
    level: float,
    method: Literal["percentile", "BCa"],
) -> BootstrapResult:
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # scipy warns of a degenerate distribution and returns NaN; the caller raises.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        return stats.bootstrap(
            design.samples,
            lambda *samples: finite(reduce(_some(design.drawn(*samples)))),
            n_resamples=draws,
            confidence_level=level,
            method=method,
            vectorized=False,
            rng=rng,
        )


def _multiway_variance(
    reduce: Reduce, design: Design, rng: np.random.Generator, draws: int
) -> float:
    """The sampling variance with crossed factors, by inclusion and exclusion.

    The pigeonhole bootstrap counts the noise of single items once a factor and once more (Owen
    2007, Theorem 3), so with weak factors its intervals are far too wide. The variance of each
    factor's own cluster bootstrap, less that of the cells where factors meet, counts it once
    (Cameron, Gelbach and Miller 2011, "Robust inference with multiway clustering"). It is never
    taken smaller than that of any factor alone.
    """
    some = max(draws // 4, 199)
    total, largest = 0.0, 0.0
    for size in range(1, len(design.factors) + 1):
        for factors in combinations(design.factors, size):
            alone = meet(factors)
            result = _resample(reduce, alone, rng, some, 0.95, "percentile")
            # The bootstrap's own variance is (units - 1) / units of the unbiased one.
            variance = float(result.standard_error) ** 2
            variance *= alone.smallest / (alone.smallest - 1)
            total += variance if size % 2 else -variance
            largest = max(largest, variance) if size == 1 else largest
    return max(total, largest)


def _t(level: float, design: Design) -> float:
    """Student's quantile, with the degrees of freedom of the smallest stratum."""
    return float(stats.t.ppf((1 + level) / 2, design.smallest - 1))


def _percentiles(draws: NDArray[np.float64], reach: float) -> tuple[float, float]:
    """The draws as far out as `reach` deviations of a normal distribution."""
    tail = stats.norm.cdf(-reach)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def finite(value: float) -> float:
    """The value as a float; NaN and infinities end the computation."""
    if not math.isfinite(value):
        raise NotMeasurable(
            "the value is not a finite number for some of the items drawn",
            mend="look for items without spread or with probability 0; drop them by name",
        )
    return float(value)


def _some(items: Indices) -> Indices:
    if items.size == 0:
        raise NotMeasurable(
            "a resample of the crossed factors holds no item: their table is nearly empty",
            mend="cluster on the factor that matters most instead of crossing",
        )
    return items
