"""Intervals by formula, where one is exact or better than resampling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Interval
from levelhead.stats.degenerate import ROUNDING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def proportion_interval(hits: int, n: int, *, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share; it keeps its width at 0 and 1.

    >>> print(proportion_interval(912, 1508))
    [0.5799, 0.6292]
    """
    if n < 1:
        raise NotMeasurable("a share of no items", mend="check why every item was dropped")
    ends = stats.binomtest(hits, n).proportion_ci(confidence_level=level, method="wilson")
    return Interval(low=float(ends.low), high=float(ends.high), level=level, method="wilson")


def effect_size(x: ArrayLike, y: ArrayLike) -> float:
    """The WEAT and SEAT effect size: (mean x - mean y) / std of x and y together, ddof 1.

    Caliskan et al. 2017; May et al. 2019; Yang et al. 2025, Eq. 3.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    both = np.concatenate([x, y])
    spread = float(both.std(ddof=1)) if min(x.size, y.size) else math.nan
    if not math.isfinite(spread):
        raise NotMeasurable(
            f"lists of {x.size} and {y.size} words, {int((~np.isfinite(both)).sum())} not finite",
            mend="give at least one word a side, and drop by name those without a score",
        )
    if spread <= ROUNDING * np.abs(both).max():
        raise NotMeasurable(
            "the associations of all words are equal: an effect size has no unit here",
            mend="check that the words differ and that the model reads them",
        )
    return float(x.mean() - y.mean()) / spread


def effect_size_interval(x: ArrayLike, y: ArrayLike, *, level: float = 0.95) -> Interval:
    """An interval of the effect size for short lists, exact for normal scores of equal spread.

    With the pooled within-group spread, t = d_within sqrt(h), h = n_x n_y / N, is noncentral t with
    N - 2 degrees of freedom and noncentrality delta sqrt(h) (Hedges and Olkin 1985, chapter 5). The
    spread of both groups together is a monotone function of t and delta,

        sample:      t sqrt((N - 1) / (h (N - 2 + t^2)))
        population:  delta / sqrt(1 + pi (1 - pi) delta^2)

    with pi = n_x / N, so the interval for delta carries over. Bounded: |d| < 1 / sqrt(pi (1 - pi)).
    Near that bound the sample's value, which has N - 1 where the population's has N, can lie
    outside its interval. With unequal sizes and unequal spreads it does not hold its level.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if min(x.size, y.size) < 2:
        raise NotMeasurable(
            f"lists of {x.size} and {y.size} words have no spread within",
            mend="give at least two words a side",
        )
    effect_size(x, y)  # refuses lists without any spread
    alike = NotMeasurable(
        "the words of each list are all alike: there is no spread within to compare with",
        mend="check that the model tells the words apart",
    )
    within, df = x.var() * x.size + y.var() * y.size, x.size + y.size - 2
    if within <= (ROUNDING * np.abs([*x, *y]).max()) ** 2:
        raise alike
    t = (x.mean() - y.mean()) / math.sqrt(within / df * (1 / x.size + 1 / y.size))
    if abs(t) > 1000:  # beyond it the inversion below is not to be trusted
        raise alike
    harmonic, share = x.size * y.size / (x.size + y.size), x.size / (x.size + y.size)
    # The noncentralities under which a t this low has the upper and the lower tail's probability.
    ends = [special.nctdtrinc(df, tail, t) for tail in ((1 + level) / 2, (1 - level) / 2)]
    tails = stats.nct.cdf(t, df, ends)
    if not np.allclose(tails, [(1 + level) / 2, (1 - level) / 2], atol=1e-3):
        raise NotMeasurable(
            f"no interval for t = {t:.4g} with {df} degrees of freedom could be computed",
            mend="take the interval of the unnormalised difference of means instead",
        )
    low, high = (_whole_spread(float(end) / math.sqrt(harmonic), share) for end in ends)
    return Interval(low=low, high=high, level=level, method=f"noncentral t, {x.size}+{y.size}")


def _whole_spread(delta: float, share: float) -> float:
    """From an effect in within-group deviations to one in deviations of both groups together."""
    return delta / math.sqrt(1 + share * (1 - share) * delta**2)
