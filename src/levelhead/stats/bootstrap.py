"""Intervals by redrawing what was sampled, through the measure's own formula.

`reduce` takes a `Draw` (the items drawn, by group, repeats included) and returns the value. It is
the same function that gives the reported value, so selections inside it (a top tenth, a largest
head) are made again in every resample. Resamples are drawn by `scipy.stats.bootstrap`; for many
variants of the same items see `paired`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NoReturn, final, get_args

import numpy as np
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.results import Alternative, Interval, PValue
from levelhead.stats.degenerate import finite, is_constant
from levelhead.stats.designs import Design, Draw, meet, times_of
from levelhead.stats.rng import generator

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.stats._resampling import BootstrapResult

    from levelhead.stats.designs import Indices

    Reduce = Callable[[Draw], float]
    Times = Indices
    """How often each item of each group was drawn: `[draws, groups, items]`."""
    AtOnce = Callable[[Times], NDArray[np.float64]]

Method = Literal["percentile", "bca", "expanded", "multiway", "outer"]


def chosen_method(design: Design) -> Method:
    """The method with the best simulated coverage for a kind of design (docs/statistics.md)."""
    if len(design.factors) > 1:
        return "multiway"
    (factor,) = design.factors
    many = min(map(len, factor.strata)) >= 30
    return "bca" if many and design.items == factor.units else "expanded"


@final
@dataclass(frozen=True, eq=False)
class Bootstrap:
    """The value, its interval and its standard error over the resamples of a design."""

    value: float
    interval: Interval
    standard_error: float
    df: int
    """Degrees of freedom of the scarcest factor: what the standard error is known by."""

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
    at_once: AtOnce | None = None,
) -> Bootstrap:
    """Redraw the units of a design and reduce each resample.

    Args:
        reduce: the measure's formula on the items drawn.
        design: what was sampled independently.
        rng: the source of chance.
        draws: resamples.
        level: confidence level.
        method: by default `chosen_method(design)`. `percentile`; `expanded`, percentiles moved
            out to make up for the narrowness of the bootstrap with few units (Hesterberg 2015,
            "What teachers should know about the bootstrap"); `bca`, bias-corrected and
            accelerated (Efron 1987), moved out likewise; `multiway`, for crossed factors,
            percentiles of the pigeonhole bootstrap rescaled to the variance of crossed sampling;
            `outer`, at each end the outermost of `expanded`, `bca` and Student's t, for
            differences of top shares: where a few items are very large, each of the three misses
            the truth too often, on different data.
        at_once: the same as `reduce`, of many draws: quicker where the formula is linear.
    """
    method = method or chosen_method(design)
    _check(rng, draws, level, method)
    value = finite(reduce(design.whole))
    # The bootstrap's variance is too small by the share of units that the strata's means spend,
    # and its quantiles are those of a known variance: t, so much wider, makes up for both.
    scarcest = design.scarcest
    narrow = float(np.sqrt(scarcest.units / scarcest.df))
    t = float(stats.t.ppf((1 + level) / 2, scarcest.df))
    corrects = method in ("bca", "outer")
    nominal = float(2 * stats.norm.cdf(narrow * t) - 1) if corrects else level
    scipys: Literal["BCa", "percentile"] = "BCa" if corrects else "percentile"
    result = _resample(reduce, design, rng, draws, nominal, scipys, at_once)
    found = result.bootstrap_distribution
    if is_constant([value, *found]):
        raise NotMeasurable(
            "every resample gives the same value, so chance cannot be judged",
            mend="check that the items differ; for shares near 0 or 1 use the proportion interval",
        )
    spread = float(result.standard_error) * narrow
    if method == "bca":
        _refuse_edge(value, found)
    if method == "expanded":
        low, high = _percentiles(found, narrow * t, value, spread * t)
    elif method == "outer":
        low, high = _percentiles(found, narrow * t, value, spread * t)
        ends = [float(end) for end in result.confidence_interval]
        # A BCa interval that cannot be computed, or not be trusted, adds nothing.
        if not _is_at_edge(value, found) and np.isfinite(ends).all():
            low, high = min(low, *ends), max(high, *ends)
        low, high = min(low, value - spread * t), max(high, value + spread * t)
    elif method == "multiway":
        pigeonhole = float(result.standard_error)
        spread = np.sqrt(_multiway_variance(reduce, design, rng, max(draws // 4, 199), at_once))
        # The resamples' shape around the value, without the bias of reducing a resample.
        scaled = value + (found - found.mean()) * (spread / pigeonhole)
        low, high = _percentiles(scaled, t, value, spread * t)
    else:
        low, high = (float(end) for end in result.confidence_interval)
    if not np.isfinite([low, high]).all():
        raise NotMeasurable(
            f"the {method} interval cannot be computed: leaving out any one unit changes nothing",
            mend='check that the items differ, or give method="expanded"',
        )
    return Bootstrap(
        value=value,
        interval=Interval(low=low, high=high, level=level, method=f"{method}, {design}"),
        standard_error=float(spread),
        df=scarcest.df,
    )


def _check(rng: object, draws: int, level: float, method: str) -> None:
    generator(rng)
    if method not in get_args(Method):
        raise UnknownName("interval method", method, get_args(Method))
    if not (0 < level < 1 and draws >= 99):
        raise LevelheadError(
            f"level {level} with {draws} resamples",
            mend="give a level between 0 and 1, such as 0.95, and at least 99 resamples",
        )


def _resample(
    reduce: Reduce,
    design: Design,
    rng: np.random.Generator,
    draws: int,
    level: float,
    method: Literal["percentile", "BCa"],
    at_once: AtOnce | None,
) -> BootstrapResult:
    def each(*samples: Indices, axis: int) -> NDArray[np.float64]:
        # One resample a row. (scipy's own loop over rows costs half as much as a statistic.)
        rows = [sample.reshape(-1, sample.shape[-1]) for sample in samples]
        if at_once is None:
            values = [finite(reduce(_some(Draw(design, row)))) for row in zip(*rows, strict=True)]
        else:
            values = [finite(value) for value in at_once(_filled(times_of(design, rows)))]
        return np.array(values).reshape(samples[0].shape[:-1])

    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # scipy warns of a degenerate distribution and returns NaN; the caller raises.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        return stats.bootstrap(
            design.samples,
            each,
            n_resamples=draws,
            batch=256,  # bounds the memory
            confidence_level=level,
            method=method,
            vectorized=True,
            rng=rng,
        )


def _multiway_variance(
    reduce: Reduce,
    design: Design,
    rng: np.random.Generator,
    draws: int,
    at_once: AtOnce | None,
) -> float:
    """The sampling variance with crossed factors, by inclusion and exclusion.

    The pigeonhole bootstrap counts the noise of single items 2^r - 1 times for r factors (Owen
    2007), so with weak factors its intervals are far too wide. The variances of each factor's own
    cluster bootstrap, less that of the cells where two meet (and so on), count it once, but for
    terms of order 1 / items (Cameron, Gelbach and Miller 2011, "Robust inference with multiway
    clustering"). It is never taken smaller than that of any factor alone.
    """
    total, largest = 0.0, 0.0
    for size in range(1, len(design.factors) + 1):
        for factors in combinations(design.factors, size):
            alone = meet(design, factors)
            result = _resample(reduce, alone, rng, draws, 0.95, "percentile", at_once)
            (factor,) = alone.factors
            variance = float(result.standard_error) ** 2 * factor.units / factor.df
            total += variance if size % 2 else -variance
            largest = max(largest, variance) if size == 1 else largest
    return max(total, largest)


def _percentiles(
    draws: NDArray[np.float64], reach: float, value: float, distance: float
) -> tuple[float, float]:
    """The draws as far out as `reach` deviations of a normal distribution.

    Where that lies beyond the outermost draws (very few units), Student's interval stands in.
    """
    tail = stats.norm.cdf(-reach)
    if tail * draws.size < 2:
        return value - distance, value + distance
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _refuse_edge(value: float, draws: NDArray[np.float64]) -> None:
    """BCa breaks down where nearly all resamples lie on one side of the value."""
    if _is_at_edge(value, draws):
        below = _share_below(value, draws)
        raise NotMeasurable(
            f"{100 * below:.0f}% of the resamples lie below the value itself: a statistic that "
            "resampling shifts, such as an absolute value near 0 or a maximum, has no BCa interval",
            mend="take the interval of the signed statistic, or judge it by its null (sign_flip, "
            "permutation)",
        )


def _share_below(value: float, draws: NDArray[np.float64]) -> float:
    return float(np.mean(draws < value) + np.mean(draws == value) / 2)


def _is_at_edge(value: float, draws: NDArray[np.float64]) -> bool:
    return not 0.1 <= _share_below(value, draws) <= 0.9


def _some(draw: Draw) -> Draw:
    if any(group.size == 0 for group in draw.groups):
        _refuse_empty()
    return draw


def _filled(times: Times) -> Times:
    if not times.any(-1).all():
        _refuse_empty()
    return times


def _refuse_empty() -> NoReturn:
    raise NotMeasurable(
        "a resample of the crossed factors holds no item: their table is nearly empty",
        mend="cluster on the factor that matters most instead of crossing",
    )
