"""Agreement of the ranks of settings on dev and test, over all settings and over the best.

Intervals are over items, with dev and test resampled separately; the settings are fixed. They are
for the correlation of the measured ranks. Because of sampling noise, measured gains agree less than
the true gains do, especially if settings differ little.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Probability, Record
from levelhead.stats.degenerate import is_constant
from levelhead.stats.rank_correlation import rowwise_kendall, rowwise_spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.stats.paired_effects import PairedEffects

TOP_SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
MIN_VARIANTS = 3
"""Minimum number of settings for a rank correlation."""
MIN_FOR_FISHER_Z = 8
"""Minimum number of settings for Fisher's scale: fewer have only a few possible orders."""
MAX_CORRELATION = 0.9999
"""Largest correlation on Fisher's scale, because z is infinite at 1."""


class RankAgreement(Record):
    """Agreement of dev and test about the best settings."""

    share: Probability
    """Share of the settings: the best on dev."""
    n_variants: Annotated[int, Field(ge=1)]
    """Number of these settings."""
    overlap: Estimate | None = None
    """Share of them that are as high on test; None for all settings. Its parity is the share
    expected by chance."""
    spearman: Estimate | None = None
    """Rank correlation of their gains on dev and test; None for fewer than three, or without
    spread."""
    kendall: Estimate | None = None


class _RankStatistics(NamedTuple):
    """`[rows]` statistics each; for correlations, of the rows that have one."""

    overlap: NDArray[np.float64]
    spearman: NDArray[np.float64]
    kendall: NDArray[np.float64]


def compute_rank_agreement(
    dev: PairedEffects, test: PairedEffects, *, shares: Sequence[float] = TOP_SHARES
) -> tuple[RankAgreement, ...]:
    """Agreement of the gains of the same settings on dev and test.

    The best settings on dev are determined again in every resample.

    Args:
        dev: Gains of all settings.
        test: Gains of the same settings, in the same order.
        shares: Shares of the settings, the best on dev first.
    """
    if len(dev.values) != len(test.values):
        raise LevelheadError(
            f"{len(dev.values)} settings on dev and {len(test.values)} on test",
            hint="give the same settings for both",
        )
    if not all(0 < share <= 1 for share in shares):
        raise LevelheadError("a share of the settings lies in (0, 1]", hint="such as 0.1")
    n_resamples = min(len(dev.resamples), len(test.resamples))
    agreements = []
    for share in shares:
        # 1e-9 absorbs rounding: 0.07 * 100 is 7.000000000000001, which would become 8.
        count = math.ceil(share * len(dev.values) - 1e-9)
        full = _rank_statistics(dev.values[None], test.values[None], count)
        resampled = _rank_statistics(
            dev.resamples[:n_resamples], test.resamples[:n_resamples], count
        )
        estimates = {
            kind: _estimate(kind, full, resampled, dev, test, count)
            for kind in ("overlap", "spearman", "kendall")
        }
        agreements.append(RankAgreement(share=share, n_variants=count, **estimates))
    return tuple(agreements)


def correlate_ranks(first: PairedEffects, second: PairedEffects, name: str) -> Estimate | None:
    """Spearman's correlation of two effects over all settings; None without spread.

    Args:
        first: Effects of settings on one measure.
        second: Effects of the same settings on another measure.
        name: Name of the estimate.
    """
    if len(first.values) != len(second.values):
        raise LevelheadError(
            f"{len(first.values)} and {len(second.values)} settings", hint="give the same ones"
        )
    count = len(first.values)
    n_resamples = min(len(first.resamples), len(second.resamples))
    resampled = _rank_statistics(
        first.resamples[:n_resamples], second.resamples[:n_resamples], count
    )
    full = _rank_statistics(first.values[None], second.values[None], count)
    correlation = _estimate("spearman", full, resampled, first, second, count)
    return None if correlation is None else correlation.model_copy(update={"name": name})


def _rank_statistics(
    dev: NDArray[np.float64], test: NDArray[np.float64], count: int
) -> _RankStatistics:
    # Stable: dev and test break ties between equal gains in the same order.
    best, best_on_test = (
        np.argsort(-gains, axis=1, kind="stable")[:, :count] for gains in (dev, test)
    )
    # `[rows, settings]` each: which settings are among the best in each resample.
    is_best, is_best_on_test = np.zeros((2, *dev.shape), dtype=bool)
    np.put_along_axis(is_best, best, True, axis=1)
    np.put_along_axis(is_best_on_test, best_on_test, True, axis=1)
    overlap = (is_best & is_best_on_test).sum(1) / count
    none = np.empty(0)
    # Two settings rank alike or not: their correlation is 1 or -1, whatever they gain.
    if count < MIN_VARIANTS:
        return _RankStatistics(overlap, none, none)
    first, second = (np.take_along_axis(gains, best, axis=1) for gains in (dev, test))
    differ = [
        not (is_constant(dev_row) or is_constant(test_row))
        for dev_row, test_row in zip(first, second, strict=True)
    ]
    if not any(differ):
        return _RankStatistics(overlap, none, none)
    rows = first[differ], second[differ]
    return _RankStatistics(overlap, rowwise_spearman(*rows), rowwise_kendall(*rows))


def _estimate(
    kind: Literal["overlap", "spearman", "kendall"],
    full: _RankStatistics,
    resampled: _RankStatistics,
    dev: PairedEffects,
    test: PairedEffects,
    count: int,
) -> Estimate | None:
    """Estimate a number of `_RankStatistics` with its interval.

    Resampled ranks are noisier than the ranks themselves, so their quantiles are too low, and only
    their spread is used, for correlations on Fisher's scale. For few settings the quantiles are
    used although they are wide, because a correlation of 1 has almost no spread.
    """
    values, resampled_values = getattr(full, kind), getattr(resampled, kind)
    is_complete = count == len(dev.values)
    # All settings always overlap with themselves, and a single resample has no spread.
    if not len(values) or len(resampled_values) < 2 or (kind == "overlap" and is_complete):
        return None
    value = float(values[0])
    narrowing = max(_narrowing_factor(dev), _narrowing_factor(test))
    # The smaller sample limits what is known of the agreement, so its degrees of freedom count.
    df = min(effects.design.limiting_factor.df for effects in (dev, test))
    half_width_per_error = float(stats.t.ppf((1 + dev.level) / 2, df)) * narrowing
    if kind == "overlap":
        distance = half_width_per_error * float(resampled_values.std(ddof=1))
        # An overlap is a share, and it has no Fisher scale.
        low, high = max(value - distance, 0.0), min(value + distance, 1.0)
    elif count < MIN_FOR_FISHER_Z:
        tails = (1 - dev.level) / 2
        # The observed value counts among its resamples.
        low, high = np.quantile(
            [value, *resampled_values], [tails, 1 - tails], method="linear"
        ).tolist()
        low, high = min(low, value), max(high, value)
    else:
        z = np.arctanh(np.clip([value, *resampled_values], -MAX_CORRELATION, MAX_CORRELATION))
        distance = half_width_per_error * float(z[1:].std(ddof=1))
        low, high = (float(np.tanh(z[0] + sign * distance)) for sign in (-1, 1))
    scale = "" if kind == "overlap" else ", quantiles" if count < MIN_FOR_FISHER_Z else ", fisher z"
    return Estimate(
        name=f"{kind} of dev and test, best {count}",
        value=value,
        interval=Interval(
            low=low,
            high=high,
            level=dev.level,
            method=f"{kind}{scale}, resampled: {dev.design} and {test.design}",
        ),
        parity=count / len(dev.values) if kind == "overlap" else 0.0,
        n=count,
    )


def _narrowing_factor(effects: PairedEffects) -> float:
    """Factor by which resampling underestimates the spread."""
    (factor,) = effects.design.factors
    # The bootstrap variance has divisor n where the sample variance has n - 1 (df).
    return float(np.sqrt(factor.n_units / factor.df))
