"""Reductions that several measures share. All take the items drawn, repeats included."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.statistics.spread import is_constant

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from levelhead.core.statistics.bootstrap import Times
    from levelhead.core.statistics.designs import Draw

Rounding = Literal["round", "floor", "ceil"]
UNDECIDED = 1e-9
"""Class probabilities that differ by less are no decision."""


def drawn(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The values of the items drawn."""
    return values[torch.from_numpy(draw.items)]


def mean(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The mean over items."""
    return drawn(values, draw).mean()


def sides(values: torch.Tensor, draw: Draw) -> tuple[torch.Tensor, torch.Tensor]:
    """The values of the two groups drawn."""
    if len(draw.groups) != 2 or not all(group.size for group in draw.groups):
        raise NotMeasurable(
            f"items of {len(draw.groups)} groups where two are compared",
            mend="look at what was dropped: both sides need items",
        )
    first, second = draw.groups
    return values[torch.from_numpy(first)], values[torch.from_numpy(second)]


def half_difference(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Half the difference of the means of the occupations the first and second group dominate."""
    first, second = sides(values, draw)
    return (first.mean() - second.mean()) / 2


def _means(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    drawn: NDArray[np.float64] = (times @ values) / times.sum(-1)
    return drawn


AT_ONCE: dict[object, Callable[[NDArray[np.float64], Times], NDArray[np.float64]]] = {
    mean: lambda values, times: _means(values, times.sum(1)),
    half_difference: lambda values, times: (
        (_means(values, times[:, 0]) - _means(values, times[:, 1])) / 2
    ),
}
"""Linear reductions, of many draws at once: the same numbers from how often each item was drawn."""


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
