"""Closed-form intervals that are exact or better than resampling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Interval
from levelhead.stats.degenerate import ROUNDING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def proportion_interval(hits: int, n: int, *, level: float = 0.95) -> Interval:
    """Compute Wilson's score interval of a proportion; its width does not vanish at 0 and 1.

    >>> print(proportion_interval(912, 1508))
    [0.5799, 0.6292]

    Args:
        hits: number of successes.
        n: number of trials.
        level: confidence level.
    """
    if n < 1:
        raise NotMeasurableError("a share of no items", hint="check why every item was dropped")
    ends = stats.binomtest(hits, n).proportion_ci(confidence_level=level, method="wilson")
    return Interval(low=float(ends.low), high=float(ends.high), level=level, method="wilson")


def constant_mean_interval(
    value: float, low: float, high: float, n: int, *, level: float = 0.95
) -> Interval:
    """Compute an exact interval of a mean if all of n sampled units have the same value.

    At most a share s of all units differ from the sampled ones: the upper end of Clopper and
    Pearson 1934 for 0 of n, s = 1 - ((1 - level) / 2)^(1/n), near 3.7 / n (the rule of three with
    two tails). Nothing is known of these, so they may all be at either bound.

    >>> print(constant_mean_interval(0.0, -100.0, 100.0, 400))
    [-0.918, 0.918]

    Args:
        value: value of every sampled unit.
        low: smallest value that a unit can have.
        high: largest value that a unit can have.
        n: number of sampled units.
        level: confidence level.
    """
    if n < 1:
        raise NotMeasurableError("a mean of no items", hint="check why every item was dropped")
    share = 1 - ((1 - level) / 2) ** (1 / n)
    return Interval(
        low=value - share * (value - low),
        high=value + share * (high - value),
        level=level,
        method=f"clopper-pearson, {n} equal units",
    )


def weat_effect_size(x: ArrayLike, y: ArrayLike) -> float:
    """Compute the WEAT and SEAT effect size: (mean x - mean y) / pooled std of x and y, ddof 1.

    Caliskan et al. 2017; May et al. 2019; Yang et al. 2025, Eq. 3.

    Args:
        x: associations of the words of the first list.
        y: associations of the words of the second list.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    # ddof 1 as in sent-bias and bias-bench: with ddof 0, SentDebias's stored vectors of test 6
    # would give .479 where .477 is published.
    pooled = np.concatenate([x, y])
    spread = float(pooled.std(ddof=1)) if min(x.size, y.size) else math.nan
    if not math.isfinite(spread):
        raise NotMeasurableError(
            f"lists of {x.size} and {y.size} words, {int((~np.isfinite(pooled)).sum())} not finite",
            hint="give at least one word per list, and drop by name those without a score",
        )
    # The effect size is scale-free: divided by a spread of rounding errors, it would look like an
    # ordinary effect of up to 2.
    if spread <= ROUNDING * np.abs(pooled).max():
        raise NotMeasurableError(
            "the associations of all words are equal: their standard deviation is 0",
            hint="check that the words differ and that the tokenizer knows them",
        )
    return float(x.mean() - y.mean()) / spread


def effect_size_interval(x: ArrayLike, y: ArrayLike, *, level: float = 0.95) -> Interval:
    """Compute the interval of an effect size of short lists, exact for normal scores.

    The scores must be normal with equal spread in both lists. With the pooled within-group spread,
    t = d_within sqrt(h), h = n_x n_y / N, is noncentral t with N - 2 degrees of freedom and
    noncentrality delta sqrt(h) (Hedges and Olkin 1985, chapter 5). The spread of both groups
    together is a monotone function of t and delta,

        sample:      t sqrt((N - 1) / (h (N - 2 + t^2)))
        population:  delta / sqrt(1 + pi (1 - pi) delta^2)

    with pi = n_x / N, so the interval for delta can be transformed. |d| is below
    1 / sqrt(pi (1 - pi)). Near that bound the value of the sample, which has N - 1 where the
    population's has N, can lie outside its interval. With unequal sizes and unequal spreads the
    interval does not hold its level.

    Args:
        x: associations of the words of the first list.
        y: associations of the words of the second list.
        level: confidence level.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if min(x.size, y.size) < 2:
        raise NotMeasurableError(
            f"lists of {x.size} and {y.size} words have no spread within",
            hint="give at least two words per list",
        )
    # Raises NotMeasurableError for lists without any spread.
    weat_effect_size(x, y)
    no_spread_error = NotMeasurableError(
        "the words of each list have equal associations: there is no spread within the lists",
        hint="check that the model distinguishes the words",
    )
    within, df = x.var() * x.size + y.var() * y.size, x.size + y.size - 2
    # `within` is a sum of squares, so the bound on relative rounding is squared too.
    if within <= (ROUNDING * np.abs([*x, *y]).max()) ** 2:
        raise no_spread_error
    t = (x.mean() - y.mean()) / math.sqrt(within / df * (1 / x.size + 1 / y.size))
    # scipy's inversion of the noncentral t (nctdtrinc) is not reliable beyond this value.
    if abs(t) > 1000:
        raise no_spread_error
    harmonic, share = x.size * y.size / (x.size + y.size), x.size / (x.size + y.size)
    # Invert the noncentral t: the noncentralities at which the observed t is a tail quantile.
    ends = [special.nctdtrinc(df, tail, t) for tail in ((1 + level) / 2, (1 - level) / 2)]
    # nctdtrinc can return a wrong value without an error, so the result is checked.
    tails = stats.nct.cdf(t, df, ends)
    if not np.allclose(tails, [(1 + level) / 2, (1 - level) / 2], atol=1e-3):
        raise NotMeasurableError(
            f"no interval for t = {t:.4g} with {df} degrees of freedom could be computed",
            hint="use the interval of the unnormalised difference of means",
        )
    low, high = (_to_pooled_deviations(float(end) / math.sqrt(harmonic), share) for end in ends)
    return Interval(low=low, high=high, level=level, method=f"noncentral t, {x.size}+{y.size}")


def _to_pooled_deviations(delta: float, share: float) -> float:
    """Convert an effect in within-group deviations to one in deviations of the pooled groups."""
    return delta / math.sqrt(1 + share * (1 - share) * delta**2)
