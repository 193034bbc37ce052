"""Reductions that several measures share. All take the items drawn, repeats included.

A reduction has a literal form, in torch, of one resample: it is differentiated, and it is what
tests compare with. Many have a second form, in numpy, for many resamples and many variants of the
values at once; where they have it, intervals, nulls and paired effects use it. The arithmetic of
that form is `stats.paired`'s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, final, get_args

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.stats.degenerate import is_constant
from levelhead.stats.paired import (
    PairedStatistic,
    group_means,
    many_of,
    means,
    standard_deviations,
    top_means,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from levelhead.stats.bootstrap import Times
    from levelhead.stats.designs import Draw

    Literally = Callable[[torch.Tensor, Draw], torch.Tensor]

Rounding = Literal["round", "floor", "ceil"]
UNDECIDED = 1e-9
"""Class probabilities that differ by less are no decision."""


@final
class Reduction(PairedStatistic[torch.Tensor]):
    """A reduction, and the same for many resamples at once."""


def scaled_by(factor: float, over: Literally) -> Literally:
    """A reduction times a number."""
    many = many_of(over)

    def literal(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return factor * over(values, draw)

    return literal if many is None else Reduction(literal, lambda v, times: factor * many(v, times))


def less(over: Literally, constant: float) -> Literally:
    """A reduction less a number: its distance from parity, with its sign."""
    many = many_of(over)

    def literal(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return over(values, draw) - constant

    return (
        literal if many is None else Reduction(literal, lambda v, times: many(v, times) - constant)
    )


def absolute(over: Literally) -> Literally:
    """The absolute value of a reduction."""
    many = many_of(over)

    def literal(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return over(values, draw).abs()

    return literal if many is None else Reduction(literal, lambda v, times: np.abs(many(v, times)))


def of_columns(over: Literally, first: int, second: int) -> Literally:
    """A reduction of one column of the values less the same of another column."""
    many = many_of(over)

    def literal(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return over(values[:, first], draw) - over(values[:, second], draw)

    if many is None:
        return literal
    return Reduction(
        literal, lambda v, times: many(v[..., first], times) - many(v[..., second], times)
    )


def drawn(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The values of the items drawn."""
    return values[torch.from_numpy(draw.items)]


def _mean(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    return drawn(values, draw).mean()


mean = Reduction(_mean, means)
"""The mean over items."""


def _share_above_zero(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    own = drawn(values, draw)
    return 50 * ((own > 0).double() + (own >= 0).double()).mean()


def _share_above_zero_many(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    return means(50.0 * ((values > 0).astype(float) + (values >= 0)), times)


share_above_zero = Reduction(_share_above_zero, _share_above_zero_many)
"""The share of values above 0, in percent; a tie counts half."""


def sides(values: torch.Tensor, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """The values of the two groups drawn."""
    if len(draw.groups) != 2 or not all(group.size for group in draw.groups):
        raise _not_two(len(draw.groups))
    first, second = draw.groups
    return values[torch.from_numpy(first)], values[torch.from_numpy(second)]


def _not_two(groups: int) -> NotMeasurable:
    return NotMeasurable(
        f"items of {groups} groups where two are compared",
        mend="look at what was dropped: both sides need items",
    )


def side_means(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    """`[2, resamples, variants]` means of the two groups; NaN where a group has no item."""
    if times.shape[1] != 2:
        raise _not_two(times.shape[1])
    return group_means(values, times)


def _half_difference(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    first, second = sides(values, draw)
    return (first.mean() - second.mean()) / 2


def _half_difference_many(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    first, second = side_means(values, times)
    return np.asarray((first - second) / 2)


half_difference = Reduction(_half_difference, _half_difference_many)
"""Half the difference of the means of the occupations the first and second group dominate."""


def tail_size(n: int, share: float, rounding: Rounding) -> int:
    """How many items the top share of n is.

    Dawkins et al. 2024 do not say how 23.4 of 234 is rounded.

    >>> tail_size(234, 0.1, "round"), tail_size(234, 0.1, "ceil"), tail_size(749, 0.1, "round")
    (23, 24, 75)
    """
    if rounding not in get_args(Rounding):
        raise UnknownName("rounding", rounding, get_args(Rounding))
    if not 0 < share <= 1:
        raise LevelheadError(f"the top {share} of the items", mend="give a share such as 0.1")
    exact = share * n
    size = {"round": round(exact), "floor": math.floor(exact), "ceil": math.ceil(exact)}[rounding]
    if size < 1:
        raise NotMeasurable(
            f"the top {share:.0%} of {n} items holds none",
            mend="give more items, or a larger share",
        )
    return size


def top_mean(values: torch.Tensor, share: float, rounding: Rounding) -> torch.Tensor:
    """The mean over the top share of the values themselves: chosen anew in every resample."""
    size = tail_size(len(values), share, rounding)
    return values.topk(size).values.mean()


def top_mean_of(share: float, rounding: Rounding) -> Reduction:
    """The mean over the top share of the items drawn, as a reduction."""

    def literal(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return top_mean(drawn(values, draw), share, rounding)

    def many(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
        return top_means(values, times, lambda n: _tail_or_nan(n, share, rounding))

    return Reduction(literal, many)


def _tail_or_nan(n: int, share: float, rounding: Rounding) -> float:
    try:
        return float(tail_size(n, share, rounding))
    except NotMeasurable:
        return math.nan  # the top share of so few items holds none


def one_sided_part(over: Reduction) -> Reduction:
    """Half of what a reduction is above the same with all twins exchanged (every value negated).

    The two are alike where groups are treated alike, whatever the spread of the values.
    """

    def literal(values: torch.Tensor, draw: Draw) -> torch.Tensor:
        return (over(values, draw) - over(-values, draw)) / 2

    def many(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
        return np.asarray((over.many(values, times) - over.many(-values, times)) / 2)

    return Reduction(literal, many)


def _group_effect_size(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    return effect_size(*sides(values, draw))


def _group_effect_size_many(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    first, second = side_means(values - values.mean(0), times)  # far from 0 digits are lost
    return np.asarray((first - second) / standard_deviations(values, times))


group_effect_size = Reduction(_group_effect_size, _group_effect_size_many)
"""The effect size of the two groups drawn: difference of means over the spread of both."""


def effect_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(mean x - mean y) / std of x and y together, ddof 1; zero spread is refused."""
    both = torch.cat([x, y])
    if min(len(x), len(y)) < 1 or len(both) < 2:
        raise NotMeasurable(
            f"lists of {len(x)} and {len(y)} words", mend="give at least one word a side"
        )
    spread = both.std(correction=1)
    refuse_no_spread(both)
    return (x.mean() - y.mean()) / spread


def refuse_undecided(p: torch.Tensor) -> None:
    """Refuse class probabilities `[items, ..., classes]` that decide nothing.

    Classes that are equal, or one answer to everything, would read as perfect parity.
    """
    fixed = p.detach()
    if float((fixed.amax(-1) - fixed.amin(-1)).max()) < UNDECIDED:
        raise NotMeasurable(
            "all classes are equal for every text: nothing is decided",
            mend="check that the classifier was trained",
        )
    if float((fixed.amax(0) - fixed.amin(0)).max()) < UNDECIDED:
        raise NotMeasurable(
            "the classifier says the same of every text: all answers are equal",
            mend="check that it was trained, and that it reads the texts",
        )


def refuse_no_spread(values: torch.Tensor) -> None:
    """Refuse values that are all alike up to rounding: they have no unit to be measured in."""
    if is_constant(values.detach()):
        raise NotMeasurable(
            "the associations of all words are equal: an effect size has no unit here",
            mend="check that the words differ and that the model reads them",
        )
