"""Reductions that several measures share. All take the resampled items, repeats included.

A reduction has a literal form, in torch, for one resample: it is differentiable, and tests compare
the other form with it. Many reductions have a second form, in numpy, for many resamples and many
variants of the values at once; intervals, nulls and paired effects use it if it exists.
`stats.paired` implements the arithmetic of that form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, final, get_args

import numpy as np
import torch

from levelhead.core.errors import (
    LevelheadError,
    NotMeasurableError,
    require_option,
)
from levelhead.stats.degenerate import is_constant
from levelhead.stats.paired import (
    PairedStatistic,
    group_means,
    item_means,
    standard_deviations,
    top_means,
    vectorised_form,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Resample

    LiteralAggregate = Callable[[torch.Tensor, Resample], torch.Tensor]

Rounding = Literal["round", "floor", "ceil"]
# Far above float64 rounding of a softmax, far below the differences of any trained classifier.
DECISION_TOLERANCE = 1e-9
"""Class probabilities that differ by less are regarded as equal."""


@final
class Reduction(PairedStatistic[torch.Tensor]):
    """A reduction with a literal form and a vectorised form for many resamples."""


def scale_aggregate(factor: float, aggregate: LiteralAggregate) -> LiteralAggregate:
    """Multiply a reduction by a constant."""
    vectorised = vectorised_form(aggregate)

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return factor * aggregate(values, resample)

    return (
        literal
        if vectorised is None
        else Reduction(literal, lambda v, item_counts: factor * vectorised(v, item_counts))
    )


def subtract_constant(aggregate: LiteralAggregate, constant: float) -> LiteralAggregate:
    """Subtract a constant from a reduction, such as parity: the signed distance from it."""
    vectorised = vectorised_form(aggregate)

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return aggregate(values, resample) - constant

    return (
        literal
        if vectorised is None
        else Reduction(literal, lambda v, item_counts: vectorised(v, item_counts) - constant)
    )


def absolute_value(aggregate: LiteralAggregate) -> LiteralAggregate:
    """The absolute value of a reduction."""
    vectorised = vectorised_form(aggregate)

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return aggregate(values, resample).abs()

    return (
        literal
        if vectorised is None
        else Reduction(literal, lambda v, item_counts: np.abs(vectorised(v, item_counts)))
    )


def column_difference(aggregate: LiteralAggregate, first: int, second: int) -> LiteralAggregate:
    """Difference of a reduction between two columns of the values."""
    vectorised = vectorised_form(aggregate)

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return aggregate(values[:, first], resample) - aggregate(values[:, second], resample)

    if vectorised is None:
        return literal
    return Reduction(
        literal,
        # Axes: items, variants, columns. Not the last axis: an item of a column may have several
        # numbers, such as a log-probability and its number of tokens.
        lambda v, item_counts: (
            vectorised(v[:, :, first], item_counts) - vectorised(v[:, :, second], item_counts)
        ),
    )


def take_resample(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    """The values of the resampled items."""
    return values[torch.from_numpy(resample.items)]


def _mean(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    return take_resample(values, resample).mean()


mean = Reduction(_mean, item_means)
"""The mean over items."""


def _share_above_zero(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    resampled = take_resample(values, resample)
    # The two indicators add up to 2, 1 (a tie) or 0, hence the factor 50 for a percentage.
    return 50 * ((resampled > 0).double() + (resampled >= 0).double()).mean()


def _share_above_zero_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    return item_means(50.0 * ((values > 0).astype(float) + (values >= 0)), item_counts)


share_above_zero = Reduction(_share_above_zero, _share_above_zero_many)
"""The share of values above 0, in percent; a tie counts half."""


def split_groups(values: torch.Tensor, resample: Resample) -> tuple[torch.Tensor, torch.Tensor]:
    """The values of the resampled items of both groups."""
    if len(resample.groups) != 2 or not all(group.size for group in resample.groups):
        raise _not_two_groups_error(len(resample.groups))
    first, second = resample.groups
    return values[torch.from_numpy(first)], values[torch.from_numpy(second)]


def _not_two_groups_error(groups: int) -> NotMeasurableError:
    return NotMeasurableError(
        f"items of {groups} groups where two are compared",
        hint="look at what was dropped: both sides need items",
    )


def two_group_means(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    """`[2, resamples, variants]` means of the two groups; NaN if a group has no item."""
    if item_counts.shape[1] != 2:
        raise _not_two_groups_error(item_counts.shape[1])
    return group_means(values, item_counts)


def _half_difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    first, second = split_groups(values, resample)
    # Half, so that the value is the mean signed margin of the dominating group.
    return (first.mean() - second.mean()) / 2


def _half_difference_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    first, second = two_group_means(values, item_counts)
    return np.asarray((first - second) / 2)


half_difference = Reduction(_half_difference, _half_difference_many)
"""Half the difference between the means of occupations that each of the two groups dominates."""


def tail_size(n: int, share: float, rounding: Rounding) -> int:
    """Number of items in the top share of n.

    Dawkins et al. 2024 do not report how 23.4 of 234 is rounded.

    >>> tail_size(234, 0.1, "round"), tail_size(234, 0.1, "ceil"), tail_size(749, 0.1, "round")
    (23, 24, 75)
    """
    require_option("rounding", rounding, get_args(Rounding))
    if not 0 < share <= 1:
        raise LevelheadError(f"the top {share} of the items", hint="give a share such as 0.1")
    exact = share * n
    size = {"round": round(exact), "floor": math.floor(exact), "ceil": math.ceil(exact)}[rounding]
    if size < 1:
        raise NotMeasurableError(
            f"the top {share:.0%} of {n} items holds none",
            hint="give more items, or a larger share",
        )
    return size


def top_mean(values: torch.Tensor, share: float, rounding: Rounding) -> torch.Tensor:
    """The mean over the largest values, a given share of them."""
    size = tail_size(len(values), share, rounding)
    # Selected within the resample: a fixed selection would hide its part of the variance.
    return values.topk(size).values.mean()


def make_top_mean(share: float, rounding: Rounding) -> Reduction:
    """Make a reduction that averages the top share of the resampled items."""

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return top_mean(take_resample(values, resample), share, rounding)

    def vectorised(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
        return top_means(values, item_counts, lambda n: _tail_or_nan(n, share, rounding))

    return Reduction(literal, vectorised)


def _tail_or_nan(n: int, share: float, rounding: Rounding) -> float:
    try:
        return float(tail_size(n, share, rounding))
    except NotMeasurableError:
        # NaN instead of an error: one small resample must not end the vectorised form.
        return math.nan


def make_signed_part(aggregate: Reduction) -> Reduction:
    """Half the difference between a reduction and the same with all twins exchanged.

    An exchange negates every value. Both reductions are equal under equal treatment, whatever the
    spread of the values.
    """

    def literal(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return (aggregate(values, resample) - aggregate(-values, resample)) / 2

    def vectorised(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
        return np.asarray(
            (aggregate.vectorised(values, item_counts) - aggregate.vectorised(-values, item_counts))
            / 2
        )

    return Reduction(literal, vectorised)


def _group_effect_size(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    return association_effect_size(*split_groups(values, resample))


def _group_effect_size_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    # Centred first: the difference of two large means would lose digits.
    first, second = two_group_means(values - values.mean(0), item_counts)
    return np.asarray((first - second) / standard_deviations(values, item_counts))


group_effect_size = Reduction(_group_effect_size, _group_effect_size_many)
"""Effect size of the two resampled groups: difference of means over the pooled spread."""


def association_effect_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(mean x - mean y) / std of x and y together, ddof 1; raises an error for zero spread."""
    pooled = torch.cat([x, y])
    if min(len(x), len(y)) < 1 or len(pooled) < 2:
        raise NotMeasurableError(
            f"lists of {len(x)} and {len(y)} words", hint="give at least one word a side"
        )
    # The std of the union, as in Caliskan et al. 2017, not the within-group std of Cohen's d.
    spread = pooled.std(correction=1)
    require_spread(pooled)
    return (x.mean() - y.mean()) / spread


def require_decisions(p: torch.Tensor) -> None:
    """Raise an error for class probabilities `[items, ..., classes]` without information.

    Equal classes, or one answer to every text, would look like perfect parity.
    """
    detached = p.detach()
    if float((detached.amax(-1) - detached.amin(-1)).max()) < DECISION_TOLERANCE:
        raise NotMeasurableError(
            "all classes are equal for every text: nothing is decided",
            hint="check that the classifier was trained",
        )
    if float((detached.amax(0) - detached.amin(0)).max()) < DECISION_TOLERANCE:
        raise NotMeasurableError(
            "the classifier gives the same answer to every text: all answers are equal",
            hint="check that it was trained, and that it reads the texts",
        )


def require_spread(values: torch.Tensor) -> None:
    """Raise an error for values that are equal up to rounding: an effect size needs a spread."""
    if is_constant(values.detach()):
        raise NotMeasurableError(
            "the associations of all words are equal: an effect size has no unit here",
            hint="check that the words differ and that the model reads them",
        )
