"""Head by head: the mean change in each, and which of many are no chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurable
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


class HeadChange(Record):
    """One head's mean change. Layer and head are counted from 0."""

    layer: int
    head: int
    group: Group
    change: float
    interval: Interval
    p: PValue
    """Two-sided; adjusted for all heads that were tested."""


def head_changes(
    weighting: str,
    changes: Values,
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    words: Sequence[str],
    inference: Inference,
) -> tuple[tuple[HeadChange, ...], tuple[str, ...]]:
    """Every head's mean change, p corrected over all heads that can be tested.

    The null exchanges original and twin, for all sentences of a target together and in all heads at
    once; what is compared is |sum of the targets' totals| / sqrt(sum of their squares), and the
    correction is Romano and Wolf's step-down max-T. (Redrawing targets instead would let heads that
    change in few sentences, whose resamples may have hardly any spread, hide all others.)
    `scipy.stats.permutation_test` is not used: max-T needs the statistics of all heads under the
    same exchanges, which here are one matrix product.
    """
    found = _by_head(changes, words)
    left = [_label(sites[i]) for i in range(len(sites)) if not found.tested[i]]
    tested = [i for i in range(len(sites)) if found.tested[i]]
    if not tested:
        raise NotMeasurable(
            f"{weighting}: no head changes in two targets or more, so none can be tested",
            mend="give more targets, or check that the twins differ",
        )
    totals = found.sums[:, tested] / np.sqrt((found.sums[:, tested] ** 2).sum(0))
    rng = inference.rng(weighting, "heads")
    signs = rng.choice([-1.0, 1.0], size=(inference.permutations, len(totals)))
    t, null = np.abs(totals.sum(0)), np.abs(signs @ totals)
    plain = ((null >= t - 1e-12 * t).sum(0) + 1) / (len(null) + 1)
    adjusted = max_t(t, null)
    of = {column: name for name, own in groups.items() for column in own}
    heads = tuple(
        HeadChange(
            layer=sites[column].layer,
            head=int(sites[column].head or 0),
            group=of[column],
            change=float(found.mean[column]),
            interval=_t_interval(found, column, inference.level),
            p=PValue(
                value=float(plain[number]),
                method="sign flip",
                alternative="two-sided",
                draws=len(null),
                adjusted=float(adjusted[number]),
                correction="max-T",
                family=len(tested),
            ),
        )
        for number, column in enumerate(tested)
    )
    told = f"{weighting}: not tested, changed in too few targets: {', '.join(left)}"
    return heads, (told,) if left else ()


class _ByHead(NamedTuple):
    """Every head's mean change, its cluster-robust standard error, and its total by target."""

    mean: Values
    error: Values
    sums: Values
    """`[targets, heads]`."""
    tested: NDArray[np.bool_]
    """Whether an exchange of twins changes anything: at least two targets' totals are not 0."""


def _by_head(changes: Values, words: Sequence[str]) -> _ByHead:
    """Means over sentences; variance C / (C - 1) sum_c (S_c - mean n_c)^2 / n^2, C targets."""
    sums, sizes = _by_target(changes, words)
    mean = changes.mean(0)
    squares = ((sums - sizes[:, None] * mean) ** 2).sum(0)
    error = np.sqrt(squares * len(sizes) / (len(sizes) - 1)) / len(changes)
    some = np.abs(sums) > ROUNDING * np.abs(sums).max(0)
    return _ByHead(mean, error, sums, some.sum(0) > 1)


def _t_interval(found: _ByHead, column: int, level: float) -> Interval:
    targets = len(found.sums)
    reach = float(stats.t.ppf((1 + level) / 2, targets - 1)) * float(found.error[column])
    value = float(found.mean[column])
    method = f"cluster-robust t, {targets} targets"
    return Interval(low=value - reach, high=value + reach, level=level, method=method)


def _by_target(values: Values, words: Sequence[str]) -> tuple[Values, Values]:
    """`[targets, heads]` sums over a target's sentences, and how many those are."""
    _, unit = np.unique(np.array(words), return_inverse=True)
    sums = np.zeros((unit.max() + 1, values.shape[1]))
    np.add.at(sums, unit, values)
    return sums, np.bincount(unit).astype(np.float64)


def _label(site: Site) -> str:
    return f"{site.layer}.{site.head}"
