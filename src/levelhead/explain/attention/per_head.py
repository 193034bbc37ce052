"""Mean change in each head, with p-values corrected over all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Interval, PValue, Record
from levelhead.explain.attention.head_groups import Group
from levelhead.stats.degenerate import ROUNDING
from levelhead.stats.multiple_testing import max_t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.models.sites import Site

    Values = NDArray[np.float64]


class HeadAttentionChange(Record):
    """Mean change of one head. Layer and head are counted from 0."""

    layer: int
    head: int
    group: Group
    change: float
    interval: Interval
    p: PValue
    """Two-sided p-value, adjusted for all heads that were tested."""


def compute_head_changes(
    weighting: str,
    changes: Values,
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    targets: Sequence[str],
    inference: Inference,
) -> tuple[tuple[HeadAttentionChange, ...], tuple[str, ...]]:
    """Mean change of every head, with p corrected over all heads that can be tested.

    The null distribution exchanges original and twin, for all sentences of a target together and in
    all heads at once. The statistic is |sum of the targets' totals| / sqrt(sum of their squares),
    and the correction is Romano and Wolf's step-down max-T. (If targets were resampled instead,
    heads that change in few sentences, with hardly any spread in their resamples, would hide all
    others.) `scipy.stats.permutation_test` is not used: max-T needs the statistics of all heads
    under the same exchanges, which here are one matrix product.
    """
    summary = _summarise_heads(changes, targets)
    untested = [_label(sites[i]) for i in range(len(sites)) if not summary.is_testable[i]]
    testable = [i for i in range(len(sites)) if summary.is_testable[i]]
    if not testable:
        raise NotMeasurableError(
            f"{weighting}: no head changes in two targets or more, so none can be tested",
            hint="give more targets, or check that the twins differ",
        )
    # Variance 1 under random signs for every head, so that max-T weighs all heads alike.
    totals = summary.sums[:, testable] / np.sqrt((summary.sums[:, testable] ** 2).sum(0))
    rng = inference.rng(weighting, "heads")
    # One sign per target for all heads keeps their dependence, which max-T needs.
    signs = rng.choice([-1.0, 1.0], size=(inference.permutations, len(totals)))
    t, null = np.abs(totals.sum(0)), np.abs(signs @ totals)
    # Ties that differ by rounding count, and + 1 counts the observed signs: both conservative.
    unadjusted_p = ((null >= t - 1e-12 * t).sum(0) + 1) / (len(null) + 1)
    adjusted = max_t(t, null)
    group_of = {column: name for name, columns in groups.items() for column in columns}
    heads = tuple(
        HeadAttentionChange(
            layer=sites[column].layer,
            head=int(sites[column].head or 0),
            group=group_of[column],
            change=float(summary.mean[column]),
            interval=_t_interval(summary, column, inference.level),
            p=PValue(
                value=float(unadjusted_p[row]),
                method="sign flip",
                alternative="two-sided",
                n_resamples=len(null),
                adjusted=float(adjusted[row]),
                correction="max-T",
                family=len(testable),
            ),
        )
        for row, column in enumerate(testable)
    )
    note = f"{weighting}: not tested, changed in too few targets: {', '.join(untested)}"
    return heads, (note,) if untested else ()


class _HeadSummary(NamedTuple):
    """Mean change of every head, its cluster-robust standard error, and its total by target."""

    mean: Values
    standard_error: Values
    sums: Values
    """`[targets, heads]` totals."""
    is_testable: NDArray[np.bool_]
    """Whether an exchange of counterfactuals changes the statistic: at least two totals are not
    0."""


def _summarise_heads(changes: Values, targets: Sequence[str]) -> _HeadSummary:
    """Means over sentences; variance C / (C - 1) sum_c (S_c - mean n_c)^2 / n^2, C targets."""
    sums, sizes = _sum_by_target(changes, targets)
    mean = changes.mean(0)
    squares = ((sums - sizes[:, None] * mean) ** 2).sum(0)
    # Cluster-robust: sentences of one target are dependent, so targets are the units.
    standard_error = np.sqrt(squares * len(sizes) / (len(sizes) - 1)) / len(changes)
    # With one target that changes, a flip of its sign leaves |t| as it is: p would be 1.
    is_nonzero = np.abs(sums) > ROUNDING * np.abs(sums).max(0)
    return _HeadSummary(mean, standard_error, sums, is_nonzero.sum(0) > 1)


def _t_interval(summary: _HeadSummary, column: int, level: float) -> Interval:
    n_targets = len(summary.sums)
    # Targets, not sentences, give the degrees of freedom.
    half_width = float(stats.t.ppf((1 + level) / 2, n_targets - 1)) * float(
        summary.standard_error[column]
    )
    value = float(summary.mean[column])
    method = f"cluster-robust t, {n_targets} targets"
    return Interval(low=value - half_width, high=value + half_width, level=level, method=method)


def _sum_by_target(values: Values, targets: Sequence[str]) -> tuple[Values, Values]:
    """`[targets, heads]` sums over the sentences of a target, and the numbers of sentences."""
    _, target_index = np.unique(np.array(targets), return_inverse=True)
    sums = np.zeros((target_index.max() + 1, values.shape[1]))
    # `np.add.at` adds repeated indices; `sums[target_index] += values` would keep the last of them
    # only.
    np.add.at(sums, target_index, values)
    return sums, np.bincount(target_index).astype(np.float64)


def _label(site: Site) -> str:
    return f"{site.layer}.{site.head}"
