"""Shares of generated texts: values of items, and how they are aggregated.

Two designs. In a *paired* one an item has texts about both groups, such as a request that is made
about each; its values are a hit count and a number of texts for either group. In a *separate* one
an item has texts about one group, such as a prompt about a person. Shares are ratios of sums, so
that an item without a countable text is no share of 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.reductions import Reduction, split_groups, take_resample
from levelhead.stats.intervals import constant_mean_interval, proportion_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from levelhead.core.results import Interval
    from levelhead.measures.generation.scoring.scorer_calibration import ErrorRates, GroupRates
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Design, Resample

DIFFERENCE, FIRST, FIRST_COUNT, SECOND, SECOND_COUNT = range(5)
"""Columns of a paired item: what reports show, then sums and counts of each group."""
SHARE, HITS, COUNT = range(3)
"""Columns of a separate item: what reports show, then sum and count."""
ROUNDING = 1e-6
"""Percentage points by which equal shares differ."""
NO_TEXT = "no text about a group could be counted"
NO_TEXT_HINT = "look at refusals and empty texts; give more tokens or texts"


# -- paired items


def count_by_side(hits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """`[items, 5]` sums over the texts about each group; the first column is filled in later.

    Args:
        hits: `[items, 2, texts]` values of the texts.
        counts: `[items, 2, texts]` 1 for texts that count.
    """
    first, second = hits.sum(2).unbind(1)
    n_first, n_second = counts.sum(2).unbind(1)
    return torch.stack([torch.zeros_like(first), first, n_first, second, n_second], dim=1)


def with_difference(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Scale the sums, and add what reports show of each item; 0 where a group has no text."""
    scaled = values.clone()
    scaled[:, [FIRST, SECOND]] *= factor
    ratios = [
        # Without texts the sum is 0 as well: at least 1 keeps 0 / 0 out of the reports.
        scaled[:, column] / scaled[:, count].clamp(min=1)
        for column, count in ((FIRST, FIRST_COUNT), (SECOND, SECOND_COUNT))
    ]
    scaled[:, DIFFERENCE] = ratios[0] - ratios[1]
    return scaled


def _ratio_difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    sampled = take_resample(values, resample).sum(0)
    _require_texts(sampled[FIRST_COUNT], sampled[SECOND_COUNT])
    return sampled[FIRST] / sampled[FIRST_COUNT] - sampled[SECOND] / sampled[SECOND_COUNT]


def _ratio_difference_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    sums = np.tensordot(item_counts.sum(1).astype(float), values, axes=(1, 0))
    # A resample without texts about a group has no value: NaN, which is replaced.
    with np.errstate(divide="ignore", invalid="ignore"):
        first = sums[..., FIRST] / sums[..., FIRST_COUNT]
        return np.asarray(first - sums[..., SECOND] / sums[..., SECOND_COUNT])


difference_of_ratios = Reduction(_ratio_difference, _ratio_difference_many)
"""Difference of two ratios of sums over paired items."""


def exchange_groups(values: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Exchange the columns of the two groups of paired items where the sign is negative."""
    exchanged = values[:, [DIFFERENCE, SECOND, SECOND_COUNT, FIRST, FIRST_COUNT]]
    exchanged = exchanged.clone()
    exchanged[:, DIFFERENCE] *= -1
    return torch.where(signs[:, None] < 0, exchanged, values)


# -- separate items


def count_texts(hits: torch.Tensor, counts: torch.Tensor, factor: float) -> torch.Tensor:
    """`[items, 3]` share of each item, for reports, and its sum and count.

    Args:
        hits: `[items, texts]` values of the texts.
        counts: `[items, texts]` 1 for texts that count.
        factor: 100 for percent.
    """
    total, n = factor * (hits * counts).sum(1), counts.sum(1)
    return torch.stack([total / n.clamp(min=1), total, n], dim=1)


def _group_difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    first, second = (group.sum(0) for group in split_groups(values, resample))
    _require_texts(first[COUNT], second[COUNT])
    return first[HITS] / first[COUNT] - second[HITS] / second[COUNT]


def _group_difference_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    # [resamples, groups, variants, columns]
    sums = np.tensordot(item_counts.astype(float), values, axes=(2, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = sums[..., HITS] / sums[..., COUNT]
        return np.asarray(shares[:, 0] - shares[:, 1])


difference_between_groups = Reduction(_group_difference, _group_difference_many)
"""Difference of the ratios of sums of two groups of separate items."""


def make_group_ratio(number: int) -> Reduction:
    """The ratio of sums of one of two groups of separate items.

    Args:
        number: 0 or 1.
    """

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        sums = split_groups(values, resample)[number].sum(0)
        _require_texts(sums[COUNT])
        return sums[HITS] / sums[COUNT]

    def vectorised(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
        sums = np.tensordot(item_counts[:, number].astype(float), values, axes=(1, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums[..., HITS] / sums[..., COUNT])

    return Reduction(literal, vectorised)


# -- shares that are equal everywhere, where resampling has no width


class GroupShares(NamedTuple):
    """Shares of the items about a group, and the number of units that these are from."""

    shares: torch.Tensor
    n_units: int

    @property
    def is_uniform(self) -> bool:
        """Whether there are shares, and all are equal."""
        return _is_uniform(self.shares)

    @property
    def is_total(self) -> bool:
        """Whether all shares are 100%, without a correction."""
        return self.is_uniform and abs(float(self.shares[0]) - 100) < ROUNDING


def paired_shares(values: torch.Tensor, design: Design) -> tuple[GroupShares, GroupShares]:
    """Shares of each group, of paired items."""
    first, second = (
        _select_shares(values[:, column] / values[:, count].clamp(min=1), values[:, count], design)
        for column, count in ((FIRST, FIRST_COUNT), (SECOND, SECOND_COUNT))
    )
    return first, second


def separate_shares(values: torch.Tensor, design: Design) -> tuple[GroupShares, GroupShares]:
    """Shares of each group, of separate items."""
    first, second = (
        _select_shares(
            values[:, SHARE],
            values[:, COUNT] * torch.from_numpy(design.group_of_item == number),
            design,
        )
        for number in (0, 1)
    )
    return first, second


def _select_shares(shares: torch.Tensor, counts: torch.Tensor, design: Design) -> GroupShares:
    is_counted = counts > 0
    # Of crossed factors the scarcer one: many words in one template are one trial of the template.
    n_units = min(
        np.unique(factor.unit_of_item[is_counted.numpy()]).size for factor in design.factors
    )
    return GroupShares(shares[is_counted], n_units)


def uniform_share_interval(
    group: GroupShares, rates: ErrorRates | None, level: float
) -> Interval | None:
    """Interval, in percent, of a share that is the same in all items; else None.

    Wilson's of 0% and 100%, else the exact one of equal units. The units are the trials: texts of
    one unit are not independent.

    Args:
        group: Shares of a group, corrected by the error rates.
        rates: Error rates of the scorer; None: the shares are not corrected.
        level: Confidence level.
    """
    if not group.is_uniform:
        return None
    value, low, high = float(group.shares[0]), _correct(0, rates), _correct(1, rates)
    for hits, end in ((0, low), (group.n_units, high)):
        if abs(value - end) < ROUNDING:
            interval = proportion_interval(hits, group.n_units, level=level)
            ends = {
                "low": _correct(interval.low, rates),
                "high": _correct(interval.high, rates),
            }
            return interval.model_copy(update=ends)
    return constant_mean_interval(value, low, high, group.n_units, level=level)


def separate_difference_interval(
    values: torch.Tensor, design: Design, rates: GroupRates | None, level: float
) -> Interval | None:
    """Interval of the difference of two shares of separate items, each equal in all; else None.

    Newcombe 1998, method 10: the distances from the ends of the shares' intervals are added in
    quadrature. Without it, a model with the strongest possible bias would not be measured, and
    neither would one that never refuses.
    """
    groups = separate_shares(values, design)
    first, second = (
        uniform_share_interval(group, rates and rates[number], level)
        for number, group in enumerate(groups)
    )
    return first and second and _combine(groups, first, second)


def paired_difference_interval(
    values: torch.Tensor, design: Design, rates: GroupRates | None, level: float
) -> Interval | None:
    """Interval of a difference of two shares that is the same in all paired items; else None.

    Newcombe's of 0% and 100%, else the exact one of equal units: a model that refuses nobody shows
    that few units can differ, and how far they can move the difference.
    """
    groups = paired_shares(values, design)
    first, second = (
        uniform_share_interval(group, rates and rates[number], level)
        for number, group in enumerate(groups)
    )
    if first and second and {first.method, second.method} == {"wilson"}:
        is_low = [
            # Intervals of 0% lie above it, those of 100% below.
            float(group.shares[0]) - interval.low < interval.high - float(group.shares[0])
            for group, interval in zip(groups, (first, second), strict=True)
        ]
        if is_low[0] != is_low[1]:
            return _combine(groups, first, second)
    # With unequal counts a difference of ratios of sums is no mean of the items' differences.
    is_mean = all(_is_uniform(values[:, count]) for count in (FIRST_COUNT, SECOND_COUNT))
    has_texts = bool((values[:, [FIRST_COUNT, SECOND_COUNT]] > 0).all())
    if first and second:
        difference = float(groups[0].shares[0] - groups[1].shares[0])
    elif is_mean and has_texts and _is_uniform(values[:, DIFFERENCE]):
        difference = float(values[0, DIFFERENCE])
    else:
        return None
    return constant_mean_interval(
        difference,
        _correct(0, rates and rates[0]) - _correct(1, rates and rates[1]),
        _correct(1, rates and rates[0]) - _correct(0, rates and rates[1]),
        min(group.n_units for group in groups),
        level=level,
    )


def _combine(
    groups: tuple[GroupShares, GroupShares], first: Interval, second: Interval
) -> Interval:
    p, q = (float(group.shares[0]) for group in groups)
    return first.model_copy(
        update={
            "low": p - q - math.hypot(p - first.low, second.high - q),
            "high": p - q + math.hypot(first.high - p, q - second.low),
            "method": "newcombe",
        }
    )


def _correct(share: float, rates: ErrorRates | None) -> float:
    """A share of labelled texts as a corrected percentage."""
    s, t = rates or (1.0, 1.0)
    return 100 * (share + t - 1) / (s + t - 1)


def _is_uniform(values: torch.Tensor) -> bool:
    return len(values) > 0 and float(values.max() - values.min()) < ROUNDING


def _require_texts(*counts: torch.Tensor) -> None:
    if any(float(count) <= 0 for count in counts):
        raise NotMeasurableError(NO_TEXT, hint=NO_TEXT_HINT)
