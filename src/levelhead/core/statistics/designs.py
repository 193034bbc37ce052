"""Which things were drawn independently: the design that resampling must repeat.

Items are what a measure reads; units are what was sampled. A design says for every item which unit
of which factor it belongs to. Redrawing the units of every factor on its own and keeping each item
as often as the product of its units' counts is the ordinary bootstrap for one item a unit, the
cluster bootstrap for one factor, and the pigeonhole bootstrap for crossed factors (Owen 2007,
"The pigeonhole bootstrap", Annals of Applied Statistics 1:386-411).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, final

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurable

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Indices = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Factor:
    """One axis of sampling: the unit of every item, and the strata units are redrawn within."""

    name: str
    unit: Indices  # [items], 0 .. units - 1
    strata: tuple[Indices, ...]  # each the units that are exchangeable with one another

    @property
    def units(self) -> int:
        """How many units there are."""
        return sum(len(stratum) for stratum in self.strata)


@final
@dataclass(frozen=True, eq=False)
class Design:
    """The factors of a data set. Use `groups`, `clusters` or `crossed` to make one."""

    factors: tuple[Factor, ...]

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.factors[0].unit)

    @property
    def smallest(self) -> int:
        """The smallest number of exchangeable units: what limits every interval."""
        return min(len(stratum) for factor in self.factors for stratum in factor.strata)

    @property
    def samples(self) -> tuple[Indices, ...]:
        """Every stratum of every factor: each is redrawn on its own."""
        return tuple(stratum for factor in self.factors for stratum in factor.strata)

    def drawn(self, *samples: Indices) -> Indices:
        """The items of a resample, repeated as often as it holds them, in order of the items."""
        times = np.ones(self.items, dtype=np.intp)
        rest = iter(samples)
        for factor in self.factors:
            units = np.concatenate([next(rest) for _ in factor.strata])
            times *= np.bincount(units, minlength=factor.units)[factor.unit]
        return np.repeat(np.arange(self.items), times)

    def __str__(self) -> str:
        return " x ".join(
            f"{'+'.join(str(len(stratum)) for stratum in factor.strata)} {factor.name}"
            for factor in self.factors
        )


def groups(*sizes: int, name: str = "items") -> Design:
    """Independent items in one or more groups of fixed size, listed group after group.

    >>> print(groups(84, 84, name="words"))
    84+84 words
    """
    _at_least_two(min(sizes, default=0), name)
    edges = np.cumsum((0, *sizes))
    strata = tuple(np.arange(a, b) for a, b in pairwise(edges))
    return Design((Factor(name, np.arange(sum(sizes)), strata),))


def clusters(
    labels: Sequence[Hashable], *, name: str = "clusters", strata: Sequence[Hashable] | None = None
) -> Design:
    """Items that share a label are drawn together, within their stratum if there are any.

    >>> print(clusters(["nurse", "nurse", "cook", "pilot"], name="occupations"))
    3 occupations
    """
    return crossed({name: labels}, strata={} if strata is None else {name: strata})


def crossed(
    labels: Mapping[str, Sequence[Hashable]],
    *,
    strata: Mapping[str, Sequence[Hashable]] = MappingProxyType({}),
) -> Design:
    """Factors that cross: each item has a label in every one of them.

    >>> print(crossed({"words": ["she", "she", "he", "he"], "contexts": [1, 2, 1, 2]}))
    2 words x 2 contexts

    Args:
        labels: for every factor, the label of every item.
        strata: for some factors, the stratum of every item: units are redrawn within theirs.
    """
    sizes = [(name, len(column)) for name, column in (*labels.items(), *strata.items())]
    if len({size for _, size in sizes}) != 1 or not strata.keys() <= labels.keys():
        raise LevelheadError(
            "the columns of a design do not fit together: "
            + ", ".join(f"{name} {size} items" for name, size in sizes),
            mend="give every item one label in every factor, and strata to factors that exist",
        )
    return Design(
        tuple(
            _factor(name, column, strata.get(name, [None] * len(column)))
            for name, column in labels.items()
        )
    )


def meet(factors: Sequence[Factor]) -> Design:
    """One factor whose units are the cells in which the given factors meet."""
    cells = list(zip(*(factor.unit.tolist() for factor in factors), strict=True))
    strata = list(zip(*(_stratum_of_items(factor) for factor in factors), strict=True))
    return clusters(cells, name="-".join(factor.name for factor in factors), strata=strata)


def _stratum_of_items(factor: Factor) -> list[int]:
    stratum = np.empty(factor.units, dtype=np.intp)
    for number, units in enumerate(factor.strata):
        stratum[units] = number
    return [int(number) for number in stratum[factor.unit]]


def _factor(name: str, labels: Sequence[Hashable], strata: Sequence[Hashable]) -> Factor:
    # Numbered in order of appearance: labels need not be sortable.
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    stratum = dict(zip(labels, strata, strict=True))
    if any(stratum[label] != own for label, own in zip(labels, strata, strict=True)):
        raise LevelheadError(
            f"some {name} lie in more than one stratum", mend="give each unit one stratum"
        )
    members: dict[Hashable, list[int]] = {}
    for label, number in numbers.items():
        members.setdefault(stratum[label], []).append(number)
    _at_least_two(min(map(len, members.values()), default=0), name)
    unit = np.array([numbers[label] for label in labels], dtype=np.intp)
    return Factor(name, unit, tuple(np.array(units) for units in members.values()))


def _at_least_two(units: int, name: str) -> None:
    if units < 2:
        raise NotMeasurable(
            f"{units} {name}: chance cannot be told from effect with fewer than two",
            mend=f"give at least two {name}",
        )
