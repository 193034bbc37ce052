"""Statistics of a table `[items, groups]`: many groups, each with a value for the same items.

With m the mean of every group over the items, an *effect* is the part of m that a projection keeps:
all differences between groups, the differences between the levels of an attribute averaged over
another attribute, or the interaction of two attributes. Its size is the standard deviation

    sd = sqrt(|P m|^2 / k),   k groups, P symmetric and idempotent,

which is 0 if and only if the effect is absent. |P m|^2 of a sample is too large by the variance of
its noise, which is therefore subtracted (as in the variance components of an analysis of variance).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
from scipy import optimize, stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Interval
from levelhead.stats.degenerate import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Table = NDArray[np.float64]
    """`[items, groups]`."""

# Monte Carlo quantile: its standard error at 95% is about 1.5% of the tail, far below the width's.
QUANTILE_DRAWS = 20_000


@final
class Effects(NamedTuple):
    """Projections `[groups, groups]` of the effects of one attribute or of two crossed ones."""

    overall: NDArray[np.float64]
    """All differences between groups."""
    margins: tuple[NDArray[np.float64], ...]
    """Differences between the levels of each attribute, averaged over the other; none for one."""
    interaction: NDArray[np.float64] | None
    """What margins do not explain; None for one attribute."""


def make_effects(sizes: Sequence[int]) -> Effects:
    """Create the projections for one attribute, or for two whose levels are crossed.

    >>> effects = make_effects((2, 3))
    >>> [round(float(part.trace())) for part in (*effects.margins, effects.interaction)]
    [1, 2, 2]

    Args:
        sizes: number of levels of each attribute; groups are ordered with the last one fastest.
    """
    center = [np.eye(size) - 1 / size for size in sizes]
    average = [np.full((size, size), 1 / size) for size in sizes]
    n_groups = math.prod(sizes)
    overall = np.eye(n_groups) - 1 / n_groups
    if len(sizes) == 1:
        return Effects(overall, (), None)
    (center_a, center_b), (average_a, average_b) = center, average
    return Effects(
        overall,
        (np.kron(center_a, average_b), np.kron(average_a, center_b)),
        np.asarray(np.kron(center_a, center_b), dtype=np.float64),
    )


def effect_variance(table: Table) -> float:
    """Unbiased estimate of |P m|^2 / k from projected values; negative by chance if it is near 0.

    Args:
        table: `[items, groups]` values after projection.
    """
    means = table.mean(0)
    noise = float(((table - means) ** 2).sum()) / (len(table) - 1) / len(table)
    return float((means @ means - noise) / table.shape[1])


def effect_sd_interval(table: Table, *, level: float = 0.95) -> Interval:
    """Compute the interval of the standard deviation of an effect.

    n |mean|^2 is a quadratic form of normal means. It is approximated by a multiple of a noncentral
    chi-square that has the first two moments of the noise (Box 1954, Annals of Mathematical
    Statistics 25:290-302, with Huynh and Feldt's unbiased moments, 1976), whose noncentrality is
    inverted. A small effect has 0 as its lower end.

    Args:
        table: `[items, groups]` values after projection.
        level: confidence level.
    """
    n, n_groups = table.shape
    if n < 3:
        raise NotMeasurableError(
            f"{n} items: fewer than three give no interval", hint="give at least three items"
        )
    means = table.mean(0)
    deviations = table - means
    # The smaller of the two Gram matrices has the same eigenvalues as the covariance.
    covariance = deviations.T @ deviations / (n - 1)
    trace = float(np.trace(covariance))
    # The noise is a square: so is the bound on its rounding.
    if trace <= (ROUNDING * float(np.abs(table).max(initial=0.0))) ** 2:
        raise NotMeasurableError(
            "every item has the same differences between groups: there is no spread",
            hint="check that the items differ and that the model reads them",
        )
    square = float((covariance**2).sum())
    rank = int(np.linalg.matrix_rank(covariance))
    # Unbiased estimates of tr(S)^2 and tr(S^2) of a normal sample: the plain ratio would find too
    # few degrees of freedom in few items.
    df = (n * trace**2 - 2 * square) / ((n - 1) * square - trace**2) if n > 2 else 1.0
    df = min(max(df, 1.0), float(rank)) if df > 0 else float(rank)
    # Along the observed effect the noise may differ from its average over all directions. The more
    # of the effect is signal, the more its own direction counts.
    signal = max(0.0, 1 - trace / n / max(float(means @ means), trace / n))
    along = float(means @ covariance @ means) / max(float(means @ means), 1e-300)
    scale = (1 - signal) * trace / df + signal * along
    # The scale is estimated: with one degree of freedom this turns the normal interval into
    # Student's. Inverting a noncentral F instead would give an interval of the effect in units of
    # the noise, which is wider.
    tail = (1 + level) / 2
    scale *= float(stats.t.ppf(tail, df * (n - 1)) / stats.norm.ppf(tail)) ** 2
    statistic = n * float(means @ means) / scale
    # Groups that are more alike than half of all samples without an effect would give an interval
    # of no width at 0, as if the effect were known to be absent: the upper end is then that of the
    # median.
    typical = max(statistic, float(stats.chi2.median(df)))
    ends = [
        math.sqrt(_invert_noncentral_chi_square(value, df, probability) * scale / n / n_groups)
        for value, probability in ((statistic, tail), (typical, 1 - tail))
    ]
    return Interval(
        low=ends[0], high=ends[1], level=level, method=f"noncentral chi-square, {n} items"
    )


def _invert_noncentral_chi_square(statistic: float, df: float, probability: float) -> float:
    """The noncentrality at which P(X <= statistic) is a probability; 0 if none is that large."""

    def excess(noncentrality: float) -> float:
        return float(stats.ncx2.cdf(statistic, df, noncentrality)) - probability

    if excess(1e-12) <= 0:
        return 0.0
    high = max(1.0, 2 * statistic)
    while excess(high) > 0:
        high *= 2
        if high > 1e12:
            raise NotMeasurableError(
                f"no interval for a chi-square of {statistic:.4g} could be computed",
                hint="use the intervals of the single groups",
            )
    return float(optimize.brentq(excess, 1e-12, high, xtol=1e-10, rtol=1e-8))


class PairInterval(NamedTuple):
    """Difference of the means of two groups with an interval that holds for all pairs at once."""

    first: int
    second: int
    value: float
    low: float
    high: float


def simultaneous_pair_intervals(table: Table, *, level: float = 0.95) -> list[PairInterval]:
    """Compute intervals of all pairs of groups that cover all differences at once.

    The quantile is that of the largest of all |t| of the pairs, from draws of the multivariate t
    with the observed correlations (Hothorn, Bretz and Westfall 2008, "Simultaneous inference in
    general parametric models"). With independent groups of equal spread this is Tukey's method.

    Args:
        table: `[items, groups]` values.
        level: joint confidence level.
    """
    n, n_groups = table.shape
    first, second = np.triu_indices(n_groups, 1)
    differences = table[:, first] - table[:, second]
    means, errors = differences.mean(0), differences.std(0, ddof=1) / math.sqrt(n)
    has_spread = errors > ROUNDING * np.abs(table).max(initial=0.0)
    if not has_spread.all():
        pair = int(np.flatnonzero(~has_spread)[0])
        raise NotMeasurableError(
            f"groups {first[pair] + 1} and {second[pair] + 1} have the same difference in every "
            "item: there is no spread",
            hint="check that the descriptions of the groups differ and that the model reads them",
        )
    # A fixed seed: the interval is a function of the data.
    rng = np.random.default_rng(0)
    deviations = (differences - means) / errors / math.sqrt(n * (n - 1))
    # Rows of the sample as directions: their random sums have the correlations of the sample.
    draws = rng.standard_normal((QUANTILE_DRAWS, n)) @ deviations
    draws /= np.sqrt(rng.chisquare(n - 1, (QUANTILE_DRAWS, 1)) / (n - 1))
    quantile = float(np.quantile(np.abs(draws).max(1), level))
    return [
        PairInterval(i, j, value, value - quantile * error, value + quantile * error)
        for i, j, value, error in zip(
            first.tolist(), second.tolist(), means.tolist(), errors.tolist(), strict=True
        )
    ]


def gap_interval(table: Table, *, level: float = 0.95) -> Interval:
    """Compute the interval of the largest gap: largest group mean less smallest.

    If all differences lie in their simultaneous intervals, so does the largest of them. The
    interval covers at least at its level, because the pair is chosen from the same data.

    Args:
        table: `[items, groups]` values.
        level: confidence level.
    """
    return gap_of_pairs(simultaneous_pair_intervals(table, level=level), level=level)


def gap_of_pairs(pairs: Sequence[PairInterval], *, level: float) -> Interval:
    """Derive the interval of the largest gap from intervals that hold for all pairs at once.

    Args:
        pairs: the intervals.
        level: their joint confidence level.
    """
    low = max(max(pair.low, -pair.high) for pair in pairs)
    high = max(max(pair.high, -pair.low) for pair in pairs)
    return Interval(low=max(low, 0.0), high=high, level=level, method="simultaneous t")
