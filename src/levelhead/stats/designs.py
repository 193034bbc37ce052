"""Which things were drawn independently: the design that resampling must repeat.

Items are what a measure reads; units are what was sampled. A design says for every item which unit
of which factor it belongs to. Redrawing the units of every factor on its own and keeping each item
as often as the product of its units' counts is the ordinary bootstrap for one item a unit, the
cluster bootstrap for one factor, and the pigeonhole bootstrap for crossed factors (Owen 2007,
"The pigeonhole bootstrap", Annals of Applied Statistics 1:386-411).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, final

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName

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

    @property
    def df(self) -> int:
        """Degrees of freedom: every stratum spends one on its own mean."""
        return self.units - len(self.strata)

    def __str__(self) -> str:
        return f"{'+'.join(str(len(stratum)) for stratum in self.strata)} {self.name}"


@final
@dataclass(frozen=True, eq=False)
class Design:
    """The factors of a data set, and the groups that a statistic compares.

    Use `groups`, `clusters` or `crossed` to make one.
    """

    factors: tuple[Factor, ...]
    group: Indices  # [items], 0 .. groups - 1; all 0 if nothing is compared
    fixed: tuple[Factor, ...] = ()
    """Factors that this design does not redraw; a statistic may still ask for their units."""

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.group)

    @property
    def scarcest(self) -> Factor:
        """The factor with the fewest degrees of freedom: what limits every interval."""
        return min(self.factors, key=lambda factor: factor.df)

    @property
    def samples(self) -> tuple[Indices, ...]:
        """Every stratum of every factor: each is redrawn on its own."""
        return tuple(stratum for factor in self.factors for stratum in factor.strata)

    @property
    def whole(self) -> Draw:
        """The data themselves: every unit once."""
        return Draw(self, self.samples)

    def __str__(self) -> str:
        return " x ".join(map(str, self.factors))


@final
@dataclass(frozen=True, eq=False)
class Draw:
    """The units drawn for each stratum, and so the items: what a statistic is computed from."""

    design: Design
    samples: tuple[Indices, ...]
    dealt: bool = False
    """In a permutation units are dealt out: their group is the sample they are in."""

    @cached_property
    def groups(self) -> tuple[Indices, ...]:
        """The items of each group, an item as often as it was drawn.

        A jackknife leaves items out and a permutation moves them: rely on neither the sizes nor on
        what group an item came from.
        """
        items = np.arange(self.design.items)
        return tuple(np.repeat(items, times) for times in self._times)

    @cached_property
    def items(self) -> Indices:
        """The items of all groups, group after group."""
        return np.concatenate(self.groups)

    def units(self, factor: str) -> Indices:
        """For each of `items`, the number of its unit, copies of a unit having their own numbers.

        A statistic over units (a mean of occupation means) must tell the copies of a unit apart:
        `labels[draw.items]` would merge a unit that was drawn twice into one.
        """
        names = [axis.name for axis in self.design.factors]
        fixed = {axis.name: axis for axis in self.design.fixed}
        if factor not in (*names, *fixed):
            raise UnknownName("factor", factor, (*names, *fixed))
        if factor not in names:
            return fixed[factor].unit[self.items]
        # The copies of an item are numbered through; each factor takes its digit of that number.
        runs = [np.arange(int(t.sum())) - np.repeat(np.cumsum(t) - t, t) for t in self._times]
        copy: Indices = np.concatenate(runs)
        number = names.index(factor)
        for axis, count in zip(self.design.factors[:number], self._counts, strict=False):
            copy = copy // count[axis.unit[self.items]]
        count = self._counts[number]
        unit = self.design.factors[number].unit[self.items]
        first: Indices = np.cumsum(count) - count
        return first[unit] + copy % count[unit]

    @property
    def times(self) -> Indices:
        """How often each item of each group was drawn: `[groups, items]`."""
        return np.stack(self._times)

    @cached_property
    def _counts(self) -> list[Indices]:
        """For every factor, how often each unit was drawn."""
        rest = iter(self.samples)
        return [
            np.bincount(np.concatenate([next(rest) for _ in axis.strata]), minlength=axis.units)
            for axis in self.design.factors
        ]

    @cached_property
    def _times(self) -> list[Indices]:
        """For every group, how often each item was drawn."""
        if self.dealt:
            (axis,) = self.design.factors
            return [np.bincount(s, minlength=axis.units)[axis.unit] for s in self.samples]
        times = self._counts[0][self.design.factors[0].unit]
        for axis, count in zip(self.design.factors[1:], self._counts[1:], strict=True):
            times = times * count[axis.unit]
        compared = range(self.design.group.max() + 1)
        return (
            [times * (self.design.group == g) for g in compared] if len(compared) > 1 else [times]
        )


def times_of(
    design: Design, rows: Sequence[Indices], *, dealt: bool = False, left_out: bool = False
) -> Indices:
    """For many draws, how often each item of each group was drawn: `[draws, groups, items]`.

    Args:
        design: what was sampled.
        rows: for every stratum, as in `Design.samples`, the units drawn: `[draws, units]`.
        dealt: as in `Draw`: the group of a unit is the stratum it was dealt to.
        left_out: of the units that were not drawn instead, each of them once.
    """
    if dealt:
        (axis,) = design.factors
        return np.stack([_counted(axis, units)[:, axis.unit] for units in rows], axis=1)
    rest = iter(rows)
    times = np.ones((len(rows[0]), design.items), dtype=np.intp)
    for axis in design.factors:
        units = np.concatenate([next(rest) for _ in axis.strata], axis=1)
        counts = _counted(axis, units)
        times *= (counts == 0 if left_out else counts)[:, axis.unit]
    own = design.group == np.arange(design.group.max() + 1)[:, None]
    found: Indices = times[:, None] * own
    return found


def _counted(axis: Factor, units: Indices) -> Indices:
    """How often each unit was drawn: `[draws, units of the factor]`."""
    first = axis.units * np.arange(len(units))[:, None]
    counts = np.bincount((first + units).ravel(), minlength=axis.units * len(units))
    return counts.reshape(len(units), axis.units)


def groups(*sizes: int, name: str = "items") -> Design:
    """Independent items in one or more groups of fixed size, listed group after group.

    >>> print(groups(84, 84, name="words"))
    84+84 words
    """
    _at_least_two(min(sizes, default=0), name)
    edges = np.cumsum((0, *sizes))
    strata = tuple(np.arange(a, b) for a, b in pairwise(edges))
    return Design(
        (Factor(name, np.arange(sum(sizes)), strata),), np.repeat(np.arange(len(sizes)), sizes)
    )


def clusters(
    labels: Sequence[Hashable],
    *,
    name: str = "clusters",
    within: Sequence[Hashable] | None = None,
) -> Design:
    """Items that share a label are drawn together, within their group if there are any.

    >>> print(clusters(["nurse", "nurse", "cook", "pilot"], name="occupations"))
    3 occupations
    """
    return crossed({name: labels}, within=within)


def crossed(
    labels: Mapping[str, Sequence[Hashable]], *, within: Sequence[Hashable] | None = None
) -> Design:
    """Factors that cross: each item has a label in every one of them.

    >>> print(crossed({"words": ["she", "she", "he", "he"], "contexts": [1, 2, 1, 2]}))
    2 words x 2 contexts

    Args:
        labels: for every factor, the label of every item.
        within: the group of every item. The units of the first factor are redrawn within their
            group, and each of them must lie in one.
    """
    columns = [*labels.items(), *([] if within is None else [("within", within)])]
    if not labels or len({len(column) for _, column in columns}) != 1:
        sizes = ", ".join(f"{name} {len(column)} items" for name, column in columns)
        raise LevelheadError(
            f"the columns of a design do not fit together: {sizes or 'there are none'}",
            mend="give every item one label in every factor",
        )
    nowhere = [None] * len(columns[0][1])
    factors = tuple(
        _factor(name, column, nowhere if within is None or number else within)
        for number, (name, column) in enumerate(labels.items())
    )
    return Design(factors, _numbered(nowhere if within is None else within))


def meet(design: Design, factors: Sequence[Factor]) -> Design:
    """The same items with one factor, whose units are the cells in which some factors meet."""
    cells = list(zip(*(factor.unit.tolist() for factor in factors), strict=True))
    within: list[Hashable] = list(
        zip(*(_stratum_of_items(factor) for factor in factors), strict=True)
    )
    # A stratum with a single cell cannot be redrawn within itself: such strata are redrawn as one.
    size = Counter(dict(zip(cells, within, strict=True)).values())
    alone = [stratum for stratum, count in size.items() if count < 2]
    merged = dict.fromkeys((*alone, *size.most_common(1)[0][:1])) if alone else {}
    within = [merged.get(stratum, stratum) for stratum in within]
    name = "-".join(factor.name for factor in factors)
    return Design((_factor(name, cells, within),), design.group, fixed=design.factors)


def one_factor(design: Design) -> Design:
    """The scarcest factor of a design alone: what is redrawn jointly for all variants."""
    return design if len(design.factors) == 1 else meet(design, [design.scarcest])


def _stratum_of_items(factor: Factor) -> list[int]:
    stratum = np.empty(factor.units, dtype=np.intp)
    for number, units in enumerate(factor.strata):
        stratum[units] = number
    return [int(number) for number in stratum[factor.unit]]


def _numbered(labels: Sequence[Hashable]) -> Indices:
    """Labels as numbers in the order of their appearance: they need not be sortable."""
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([numbers[label] for label in labels], dtype=np.intp)


def _factor(name: str, labels: Sequence[Hashable], within: Sequence[Hashable]) -> Factor:
    stratum = dict(zip(labels, within, strict=True))
    if any(stratum[label] != own for label, own in zip(labels, within, strict=True)):
        raise LevelheadError(
            f"some {name} lie in more than one group", mend=f"give each of the {name} one group"
        )
    members: dict[Hashable, list[int]] = {}
    for number, label in enumerate(dict.fromkeys(labels)):
        members.setdefault(stratum[label], []).append(number)
    _at_least_two(min(map(len, members.values()), default=0), name)
    return Factor(name, _numbered(labels), tuple(np.array(units) for units in members.values()))


def _at_least_two(units: int, name: str) -> None:
    if units < 2:
        raise NotMeasurable(
            f"{units} {name}: chance cannot be told from effect with fewer than two",
            mend=f"give at least two {name}",
        )
