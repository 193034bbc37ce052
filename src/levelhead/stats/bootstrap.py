"""Bootstrap intervals: the measure's formula is applied to resamples of the sampled units.

`reduce` takes a `Resample` (the resampled items, by group, repeats included) and returns the value.
The same function computes the reported value, so selections inside it (a top tenth, a largest head)
are repeated in every resample. `scipy.stats.bootstrap` generates the resamples; for many variants
of the same items see `paired`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NoReturn, final, get_args

import numpy as np
from scipy import stats

from levelhead.core.errors import (
    LevelheadError,
    NotMeasurableError,
    require_option,
)
from levelhead.core.results import Alternative, Interval, PValue
from levelhead.stats.degenerate import is_constant, require_finite
from levelhead.stats.designs import Design, Resample, count_items, intersect_factors
from levelhead.stats.rng import check_rng

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.stats._resampling import BootstrapResult

    from levelhead.stats.designs import Indices

    ReduceFunction = Callable[[Resample], float]
    ItemCounts = Indices
    """Count of each item of each group in each resample: `[resamples, groups, items]`."""
    VectorisedReduction = Callable[[ItemCounts], NDArray[np.float64]]

Method = Literal["percentile", "bca", "expanded", "multiway", "outer"]


def default_method(design: Design) -> Method:
    """Return the method with the best simulated coverage for a design.

    docs/development/statistics.md has the simulations.
    """
    if len(design.factors) > 1:
        return "multiway"
    (factor,) = design.factors
    # BCa holds its level from about 30 units per group on; below, expanded percentiles do better
    # (docs/development/statistics.md, decision 0003).
    is_large = min(map(len, factor.strata)) >= 30
    return "bca" if is_large and design.n_items == factor.n_units else "expanded"


@final
@dataclass(frozen=True, eq=False)
class BootstrapEstimate:
    """The value, its interval and its standard error over the resamples of a design."""

    value: float
    interval: Interval
    standard_error: float
    df: int
    """Degrees of freedom of the standard error: those of the limiting factor."""

    def p(self, parity: float, *, alternative: Alternative = "two-sided") -> PValue:
        """Compute the p-value of t = (value - parity) / SE under the null hypothesis of parity.

        Use it for designs without a valid rearrangement of labels, such as crossed factors. Where a
        permutation or sign flip is possible, that test needs fewer assumptions.

        Args:
            parity: value under the null hypothesis.
            alternative: side of the test.
        """
        # Student's t of the limiting factor, not a normal: with few units the standard error is
        # itself uncertain, and a normal tail would reject too often.
        t = (self.value - parity) / self.standard_error
        tail = {"greater": t, "less": -t, "two-sided": abs(t)}[alternative]
        p = float(stats.t.sf(tail, self.df)) * (2 if alternative == "two-sided" else 1)
        return PValue(value=p, method="bootstrap t", alternative=alternative)


def bootstrap(
    reduce: ReduceFunction,
    design: Design,
    *,
    rng: np.random.Generator,
    n_resamples: int = 1999,
    level: float = 0.95,
    method: Method | None = None,
    vectorised: VectorisedReduction | None = None,
) -> BootstrapEstimate:
    """Resample the units of a design and compute value, interval and standard error.

    Args:
        reduce: formula of the measure, applied to the resampled items.
        design: what was sampled independently.
        rng: random generator.
        n_resamples: number of resamples.
        level: confidence level.
        method: by default `default_method(design)`. `percentile`; `expanded`, percentiles that are
            moved outwards because the bootstrap is too narrow with few units (Hesterberg 2015,
            "What teachers should know about the bootstrap"); `bca`, bias-corrected and
            accelerated (Efron 1987), moved outwards in the same way; `multiway`, for crossed
            factors, percentiles of the pigeonhole bootstrap rescaled to the variance of crossed
            sampling; `outer`, at each end the outermost of `expanded`, `bca` and Student's t, for
            differences of top shares: if a few items are very large, each of the three misses the
            true value too often, on different data.
        vectorised: form of `reduce` for many resamples at once; faster if the formula is linear.
    """
    method = method or default_method(design)
    _check_arguments(rng, n_resamples, level, method)
    value = require_finite(reduce(design.full_sample))
    # The bootstrap variance is too small by the factor df / units (one df per stratum mean), and
    # its quantiles assume a known variance. This factor and a t quantile correct for both.
    scarcest = design.limiting_factor
    narrowness = float(np.sqrt(scarcest.n_units / scarcest.df))
    t = float(stats.t.ppf((1 + level) / 2, scarcest.df))
    # scipy's BCa takes a level, not a quantile: the nominal level moves its normal quantile to the
    # same number of deviations.
    is_bca = method in ("bca", "outer")
    nominal = float(2 * stats.norm.cdf(narrowness * t) - 1) if is_bca else level
    scipy_method: Literal["BCa", "percentile"] = "BCa" if is_bca else "percentile"
    result = _resample(reduce, design, rng, n_resamples, nominal, scipy_method, vectorised)
    resampled_values = result.bootstrap_distribution
    # An interval of width 0 would read as certainty, and its test as an exact result.
    if is_constant([value, *resampled_values]):
        raise NotMeasurableError(
            "every resample gives the same value, so no interval can be computed",
            hint="check that the items differ; for shares near 0 or 1 use the proportion interval",
        )
    spread = float(result.standard_error) * narrowness
    # `outer` only drops BCa in this case, because its other two intervals remain.
    if method == "bca":
        _refuse_edge(value, resampled_values)
    if method == "expanded":
        low, high = _percentiles(resampled_values, narrowness * t, value, spread * t)
    elif method == "outer":
        low, high = _percentiles(resampled_values, narrowness * t, value, spread * t)
        ends = [float(end) for end in result.confidence_interval]
        # BCa is left out if it cannot be computed or if its bias correction is not reliable.
        if not _is_at_edge(value, resampled_values) and np.isfinite(ends).all():
            low, high = min(low, *ends), max(high, *ends)
        low, high = min(low, value - spread * t), max(high, value + spread * t)
    elif method == "multiway":
        pigeonhole = float(result.standard_error)
        spread = np.sqrt(
            # A variance needs fewer resamples than a percentile: a quarter of them, at least 199.
            _multiway_variance(reduce, design, rng, max(n_resamples // 4, 199), vectorised)
        )
        # Keep the shape of the resamples but centre it at the value: this drops the bootstrap bias.
        scaled = value + (resampled_values - resampled_values.mean()) * (spread / pigeonhole)
        # `t` without `narrowness`: every term of the multiway variance is corrected for its units
        # already.
        low, high = _percentiles(scaled, t, value, spread * t)
    else:
        low, high = (float(end) for end in result.confidence_interval)
    if not np.isfinite([low, high]).all():
        raise NotMeasurableError(
            f"the {method} interval cannot be computed: the value is the same without any one unit",
            hint='check that the items differ, or give method="expanded"',
        )
    return BootstrapEstimate(
        value=value,
        interval=Interval(low=low, high=high, level=level, method=f"{method}, {design}"),
        standard_error=float(spread),
        df=scarcest.df,
    )


def _check_arguments(rng: object, n_resamples: int, level: float, method: str) -> None:
    check_rng(rng)
    require_option("interval method", method, get_args(Method))
    # At the 95% level, 99 resamples leave 2.5 beyond each end; fewer leave only the extreme value.
    if not (0 < level < 1 and n_resamples >= 99):
        raise LevelheadError(
            f"level {level} with {n_resamples} resamples",
            hint="give a level between 0 and 1, such as 0.95, and at least 99 resamples",
        )


def _resample(
    reduce: ReduceFunction,
    design: Design,
    rng: np.random.Generator,
    n_resamples: int,
    level: float,
    method: Literal["percentile", "BCa"],
    vectorised: VectorisedReduction | None,
) -> BootstrapResult:
    def reduce_rows(*samples: Indices, axis: int) -> NDArray[np.float64]:
        # One resample per row. The loop over rows in scipy costs half as much as a statistic.
        rows = [sample.reshape(-1, sample.shape[-1]) for sample in samples]
        if vectorised is None:
            values = [
                require_finite(reduce(_require_items(Resample(design, row))))
                for row in zip(*rows, strict=True)
            ]
        else:
            values = [
                require_finite(value)
                for value in vectorised(_require_counts(count_items(design, rows)))
            ]
        return np.array(values).reshape(samples[0].shape[:-1])

    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # scipy warns about a degenerate distribution and returns NaN; the caller raises an error.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        return stats.bootstrap(
            design.samples,
            reduce_rows,
            n_resamples=n_resamples,
            batch=256,  # limits the memory
            confidence_level=level,
            method=method,
            vectorized=True,
            rng=rng,
        )


def _multiway_variance(
    reduce: ReduceFunction,
    design: Design,
    rng: np.random.Generator,
    n_resamples: int,
    vectorised: VectorisedReduction | None,
) -> float:
    """Estimate the sampling variance with crossed factors, by inclusion and exclusion.

    The pigeonhole bootstrap counts the noise of single items 2^r - 1 times for r factors (Owen
    2007), so with weak factors its intervals are far too wide. The sum of the variances of each
    factor's cluster bootstrap, minus that of the cells of two factors (and so on), counts it once,
    except for terms of order 1 / items (Cameron, Gelbach and Miller 2011, "Robust inference with
    multiway clustering"). The result is never smaller than the variance of any single factor.
    """
    total, largest = 0.0, 0.0
    for size in range(1, len(design.factors) + 1):
        for factors in combinations(design.factors, size):
            single_factor = intersect_factors(design, factors)
            result = _resample(
                reduce, single_factor, rng, n_resamples, 0.95, "percentile", vectorised
            )
            (factor,) = single_factor.factors
            # The same correction as `narrowness`, for the units of this factor or cell.
            variance = float(result.standard_error) ** 2 * factor.n_units / factor.df
            # Inclusion and exclusion: single factors are added, cells of two are subtracted.
            total += variance if size % 2 else -variance
            largest = max(largest, variance) if size == 1 else largest
    # A difference of estimated variances can be too small or negative by chance.
    return max(total, largest)


def _percentiles(
    resampled_values: NDArray[np.float64], n_deviations: float, value: float, distance: float
) -> tuple[float, float]:
    """Quantiles of the resampled values at plus and minus `n_deviations` of a normal distribution.

    If these lie beyond the outermost resamples (very few units), Student's interval is returned.
    """
    tail = stats.norm.cdf(-n_deviations)
    # With fewer than two resamples beyond it, a quantile is only the extreme value.
    if tail * resampled_values.size < 2:
        return value - distance, value + distance
    low, high = np.quantile(resampled_values, [tail, 1 - tail])
    return float(low), float(high)


def _refuse_edge(value: float, resampled_values: NDArray[np.float64]) -> None:
    """Raise an error if nearly all resamples lie on one side of the value, where BCa fails."""
    if _is_at_edge(value, resampled_values):
        below = _share_below(value, resampled_values)
        raise NotMeasurableError(
            f"{100 * below:.0f}% of the resamples lie below the value itself: a statistic that "
            "resampling shifts, such as an absolute value near 0 or a maximum, has no BCa interval",
            hint="use the interval of the signed statistic, or test it against its null "
            "(sign_flip, permutation)",
        )


def _share_below(value: float, resampled_values: NDArray[np.float64]) -> float:
    # Ties count half, as in the bias correction of BCa.
    return float(np.mean(resampled_values < value) + np.mean(resampled_values == value) / 2)


def _is_at_edge(value: float, resampled_values: NDArray[np.float64]) -> bool:
    # Outside 10% to 90%, the bias correction of BCa exceeds 1.28 deviations.
    return not 0.1 <= _share_below(value, resampled_values) <= 0.9


def _require_items(resample: Resample) -> Resample:
    # Only crossed factors can fail here: counts multiply, so a sparse table can leave a group
    # without items, whose mean would be NaN.
    if any(group.size == 0 for group in resample.groups):
        _refuse_empty()
    return resample


def _require_counts(item_counts: ItemCounts) -> ItemCounts:
    if not item_counts.any(-1).all():
        _refuse_empty()
    return item_counts


def _refuse_empty() -> NoReturn:
    raise NotMeasurableError(
        "a resample of the crossed factors has no items: their table is nearly empty",
        hint="cluster on the most important factor instead of crossing",
    )
