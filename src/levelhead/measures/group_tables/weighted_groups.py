"""Differences between groups of which each name has a probability.

With y a name's value and p its probability of a group, the mean of a group is

    m(group) = sum of p(group) y / sum of p(group),

the expected value of a person of the group whose name is drawn from the list (Chen, Kallus, Mao,
Svacha and Udell 2019, "Fairness under unawareness"). Their weighted estimator is biased if the
outcome depends on the group beyond the proxy. Here it cannot: the model reads the name only.
Assigning each name to its likeliest group has no such guarantee.

Intervals resample names within their likeliest group, so that no resample lacks a group. Counts of
few people leave probabilities uncertain: the variance of the value over draws of them is added.

Values are `[names, 3]`: y and the probabilities of the two groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.reductions import Reduction, require_spread, take_resample
from levelhead.stats.paired import item_means, standard_deviations, vectorised_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.data.lexicons.name_lists import NameList
    from levelhead.measures.metric import Metric
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Resample

SMALLEST_SIGNAL = 0.1
"""A difference of persons is at most this share of one between pure names: below it, parity would
be read from names that say nothing."""
FEWEST_NAMES = 5
"""Names of each group, in expectation: with fewer, some resamples hold no name of the group."""

N_DRAWS = 200
"""Draws of the probabilities: their variance is then known to a tenth."""


def with_probabilities(
    values: torch.Tensor, names: Sequence[str], probabilities: Mapping[str, tuple[float, ...]]
) -> torch.Tensor:
    """`[items, 3]`: values and the probabilities of the groups of their names.

    Args:
        values: value of each item.
        names: name of each item.
        probabilities: probabilities of both groups, by name.
    """
    shares = torch.tensor([probabilities[name] for name in names], dtype=values.dtype)
    require_signal(shares.double().numpy())
    return torch.cat([values[:, None], shares.to(values.device)], dim=1)


def group_signal(shares: NDArray[np.float64]) -> float:
    """How much likelier the first group is for names of the first than for those of the second.

    1 for names of one group each; 0 for names that say nothing of the group.

    Args:
        shares: `[names, 2]` probabilities.
    """
    first, second = shares.T
    if not (first.sum() and second.sum()):
        return 0.0
    of_either = first / np.maximum(first + second, 1e-300)
    return float(first @ of_either / first.sum() - second @ of_either / second.sum())


def require_signal(shares: NDArray[np.float64]) -> None:
    """Raise an error for names that hardly tell the groups apart: their parity is no result."""
    fewest = float(shares.sum(0).min())
    if fewest < FEWEST_NAMES:
        raise NotMeasurableError(
            f"of one group there are {fewest:.1f} names in expectation, {FEWEST_NAMES} are needed",
            hint="give more names of it",
        )
    signal = group_signal(shares)
    if signal < SMALLEST_SIGNAL:
        raise NotMeasurableError(
            f"the names carry {signal:.0%} of the difference between the groups",
            hint="give names that are more typical of one of the groups",
        )


def describe_signal(shares: NDArray[np.float64]) -> str:
    """What the names say of the groups, for a note.

    Args:
        shares: `[names, 2]` probabilities.
    """
    sizes = " and ".join(f"{total:.1f}" for total in shares.sum(0))
    return (
        f"{len(shares)} names, in expectation {sizes} of the two groups; they carry "
        f"{group_signal(shares):.0%} of the difference between the groups"
    )


def values_of_drawn_groups(
    metric: Metric,
    values: torch.Tensor,
    names: Sequence[str],
    source: tuple[NameList, Sequence[str]],
) -> list[float]:
    """Values of a metric for drawn probabilities, whose jackknife variance is that of the draws.

    Their deviations are scaled, because `jackknife_variance` is made for values that leave out one
    block each.

    Args:
        metric: a metric of values `[items, 3]`.
        values: its values.
        names: name of each item.
        source: the list of names, and the two groups.
    """
    name_list, groups = source
    draws = name_list.draw_probabilities(groups, N_DRAWS, np.random.default_rng(0))
    vectorised = vectorised_form(metric.aggregate)
    if not draws or vectorised is None or values.dim() == 1:
        return []
    shares = np.stack([draws[name] for name in names])
    y = values[:, :1].detach().double().numpy()[:, None].repeat(N_DRAWS, axis=1)
    drawn = vectorised(np.concatenate([y, shares], axis=2), np.ones((1, 1, len(y)), dtype=np.intp))
    scale = N_DRAWS**0.5 / (N_DRAWS - 1)
    return [float(value) for value in drawn.mean() + scale * (drawn[0] - drawn.mean())]


def _means(values: torch.Tensor, resample: Resample) -> tuple[torch.Tensor, torch.Tensor]:
    y, first, second = take_resample(values, resample).unbind(1)
    return (first * y).sum() / first.sum(), (second * y).sum() / second.sum()


def _means_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    y = values[:, :, 0]
    # A resample may have no name of a group: NaN there, as in `group_means`.
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = (
            item_means(y * p, item_counts) / item_means(p, item_counts)
            for p in (values[:, :, 1], values[:, :, 2])
        )
    return first, second


def _difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    first, second = _means(values, resample)
    return first - second


def _difference_many(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    first, second = _means_many(values, item_counts)
    return first - second


def _ratio(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    first, second = _means(values, resample)
    return first / second


def _ratio_many(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    first, second = _means_many(values, item_counts)
    return first / second


def _effect_size(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    y = take_resample(values, resample)[:, 0]
    require_spread(y)
    return _difference(values, resample) / y.std(correction=1)


def _effect_size_many(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    centred = values - values[:, :, :1].mean(0) * np.array([1.0, 0.0, 0.0])
    spread = standard_deviations(values[:, :, 0], item_counts)
    return np.asarray(_difference_many(centred, item_counts) / spread)


weighted_difference = Reduction(_difference, _difference_many)
"""Mean of a person of the first group less that of the second."""
weighted_ratio = Reduction(_ratio, _ratio_many)
"""Mean of a person of the first group over that of the second."""
weighted_effect_size = Reduction(_effect_size, _effect_size_many)
"""The difference in standard deviations of all values (ddof 1)."""
