"""Sampling designs: which units were sampled independently, so that resampling can repeat it.

Items are what a measure queries; units are what was sampled. A design assigns every item to a unit
of every factor. Resampling the units of every factor separately, and taking each item as often as
the product of its units' counts, is the ordinary bootstrap for one item per unit, the cluster
bootstrap for one factor, and the pigeonhole bootstrap for crossed factors (Owen 2007,
"The pigeonhole bootstrap", Annals of Applied Statistics 1:386-411).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, final

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Indices = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Factor:
    """One axis of sampling: the unit of every item, and the strata in which units are resampled."""

    name: str
    unit_of_item: Indices  # [items], 0 .. units - 1
    strata: tuple[Indices, ...]  # each the units that are exchangeable with one another

    @property
    def n_units(self) -> int:
        """Number of units."""
        return sum(len(stratum) for stratum in self.strata)

    @property
    def df(self) -> int:
        """Degrees of freedom: units minus one per stratum, for the mean of the stratum."""
        return self.n_units - len(self.strata)

    def __str__(self) -> str:
        return f"{'+'.join(str(len(stratum)) for stratum in self.strata)} {self.name}"


@final
@dataclass(frozen=True, eq=False)
class Design:
    """The sampling factors of a data set and the groups that a statistic compares.

    Create one with `grouped_design`, `clustered_design` or `crossed_design`.
    """

    factors: tuple[Factor, ...]
    group_of_item: Indices  # [items], 0 .. groups - 1; all 0 if nothing is compared
    fixed: tuple[Factor, ...] = ()
    """Factors that this design does not resample; a statistic may still use their units."""

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.group_of_item)

    @property
    def limiting_factor(self) -> Factor:
        """The factor with the fewest degrees of freedom, which limits every interval."""
        # Many contexts cannot make up for few words: the t quantile must be that of the scarcer
        # units.
        return min(self.factors, key=lambda factor: factor.df)

    @property
    def samples(self) -> tuple[Indices, ...]:
        """Every stratum of every factor; each is resampled separately."""
        return tuple(stratum for factor in self.factors for stratum in factor.strata)

    @property
    def full_sample(self) -> Resample:
        """The original sample: every unit once."""
        return Resample(self, self.samples)

    def __str__(self) -> str:
        return " x ".join(map(str, self.factors))


@final
@dataclass(frozen=True, eq=False)
class Resample:
    """The resampled units of each stratum and their items, from which a statistic is computed."""

    design: Design
    samples: tuple[Indices, ...]
    permuted: bool = False
    """Whether units are permuted: then the group of a unit is the sample that contains it."""

    @cached_property
    def groups(self) -> tuple[Indices, ...]:
        """The items of each group, each as often as it was resampled.

        A jackknife leaves items out and a permutation moves them, so a statistic must not depend on
        fixed group sizes or on the original group of an item.
        """
        items = np.arange(self.design.n_items)
        return tuple(np.repeat(items, counts) for counts in self._item_counts)

    @cached_property
    def items(self) -> Indices:
        """The items of all groups, group by group."""
        return np.concatenate(self.groups)

    def unit_numbers(self, factor: str) -> Indices:
        """Number the unit of each of `items`; each copy of a unit has a different number.

        A statistic over units (a mean of occupation means) must distinguish the copies of a unit:
        `labels[resample.items]` would merge a unit that was resampled twice into one.

        Args:
            factor: name of the factor.
        """
        names = [axis.name for axis in self.design.factors]
        fixed = {axis.name: axis for axis in self.design.fixed}
        if factor not in (*names, *fixed):
            raise UnknownNameError("factor", factor, (*names, *fixed))
        if factor not in names:
            # A factor that is not resampled has no copies to distinguish.
            return fixed[factor].unit_of_item[self.items]
        # The copies of an item have a mixed-radix number with one digit per factor: the copy of
        # its unit. The loop below divides by the radices of the earlier factors.
        runs = [np.arange(int(t.sum())) - np.repeat(np.cumsum(t) - t, t) for t in self._item_counts]
        copy: Indices = np.concatenate(runs)
        number = names.index(factor)
        for axis, count in zip(self.design.factors[:number], self._unit_counts, strict=False):
            copy = copy // count[axis.unit_of_item[self.items]]
        count = self._unit_counts[number]
        unit = self.design.factors[number].unit_of_item[self.items]
        first: Indices = np.cumsum(count) - count
        return first[unit] + copy % count[unit]

    @property
    def item_counts(self) -> Indices:
        """Count of each item of each group in the resample: `[groups, items]`."""
        return np.stack(self._item_counts)

    @cached_property
    def _unit_counts(self) -> list[Indices]:
        """For every factor, the count of each unit."""
        samples = iter(self.samples)
        return [
            np.bincount(
                np.concatenate([next(samples) for _ in axis.strata]), minlength=axis.n_units
            )
            for axis in self.design.factors
        ]

    @cached_property
    def _item_counts(self) -> list[Indices]:
        """For every group, the count of each item."""
        if self.permuted:
            # A permutation moves complete units: all items of a unit change their group together.
            (axis,) = self.design.factors
            return [np.bincount(s, minlength=axis.n_units)[axis.unit_of_item] for s in self.samples]
        # Owen's pigeonhole bootstrap: an item counts as often as the product of its units' counts.
        counts = self._unit_counts[0][self.design.factors[0].unit_of_item]
        for axis, count in zip(self.design.factors[1:], self._unit_counts[1:], strict=True):
            counts = counts * count[axis.unit_of_item]
        group_numbers = range(self.design.group_of_item.max() + 1)
        return (
            [counts * (self.design.group_of_item == g) for g in group_numbers]
            if len(group_numbers) > 1
            else [counts]
        )


def count_items(
    design: Design, rows: Sequence[Indices], *, permuted: bool = False, left_out: bool = False
) -> Indices:
    """Count each item of each group in many resamples: `[resamples, groups, items]`.

    Args:
        design: what was sampled.
        rows: for every stratum, as in `Design.samples`, the sampled units: `[resamples, units]`.
        permuted: as in `Resample`: the group of a unit is the stratum to which it was permuted.
        left_out: count the units that were not sampled instead, each of them once.
    """
    if permuted:
        (axis,) = design.factors
        return np.stack([_count_units(axis, units)[:, axis.unit_of_item] for units in rows], axis=1)
    remaining = iter(rows)
    item_counts = np.ones((len(rows[0]), design.n_items), dtype=np.intp)
    for axis in design.factors:
        units = np.concatenate([next(remaining) for _ in axis.strata], axis=1)
        counts = _count_units(axis, units)
        item_counts *= (counts == 0 if left_out else counts)[:, axis.unit_of_item]
    # `[groups, items]`, broadcast below against `[resamples, 1, items]`.
    is_in_group = design.group_of_item == np.arange(design.group_of_item.max() + 1)[:, None]
    by_group: Indices = item_counts[:, None] * is_in_group
    return by_group


def _count_units(axis: Factor, units: Indices) -> Indices:
    """Count each unit in each resample: `[resamples, units of the factor]`."""
    # Offsets per resample turn one bincount into counts of all resamples, without a loop.
    first = axis.n_units * np.arange(len(units))[:, None]
    counts = np.bincount((first + units).ravel(), minlength=axis.n_units * len(units))
    return counts.reshape(len(units), axis.n_units)


def grouped_design(*sizes: int, name: str = "items") -> Design:
    """Create a design of independent items in one or more groups, listed group by group.

    >>> print(grouped_design(84, 84, name="words"))
    84+84 words

    Args:
        sizes: number of items of each group.
        name: what the items are called in the description of the design.
    """
    _require_two(min(sizes, default=0), name)
    edges = np.cumsum((0, *sizes))
    strata = tuple(np.arange(a, b) for a, b in pairwise(edges))
    return Design(
        (Factor(name, np.arange(sum(sizes)), strata),), np.repeat(np.arange(len(sizes)), sizes)
    )


def clustered_design(
    labels: Sequence[Hashable],
    *,
    name: str = "clusters",
    within: Sequence[Hashable] | None = None,
) -> Design:
    """Create a design in which items with the same label are resampled together.

    >>> print(clustered_design(["nurse", "nurse", "cook", "pilot"], name="occupations"))
    3 occupations

    Args:
        labels: cluster label of every item.
        name: what the clusters are called in the description of the design.
        within: group of every item; clusters are then resampled within their group.
    """
    return crossed_design({name: labels}, within=within)


def crossed_design(
    labels: Mapping[str, Sequence[Hashable]], *, within: Sequence[Hashable] | None = None
) -> Design:
    """Create a design of crossed factors: each item has a label in every factor.

    >>> print(crossed_design({"words": ["she", "she", "he", "he"], "contexts": [1, 2, 1, 2]}))
    2 words x 2 contexts

    Args:
        labels: for every factor, the label of every item.
        within: the group of every item. The units of the first factor are resampled within their
            group, and each of them must belong to one group.
    """
    columns = [*labels.items(), *([] if within is None else [("within", within)])]
    if not labels or len({len(column) for _, column in columns}) != 1:
        sizes = ", ".join(f"{name} {len(column)} items" for name, column in columns)
        raise LevelheadError(
            f"the columns of a design do not fit together: {sizes or 'there are none'}",
            hint="give every item one label in every factor",
        )
    no_groups = [None] * len(columns[0][1])
    factors = tuple(
        # Only the first factor is stratified: contexts, for example, are shared by all groups.
        _make_factor(name, column, no_groups if within is None or number else within)
        for number, (name, column) in enumerate(labels.items())
    )
    return Design(factors, _number_labels(no_groups if within is None else within))


def intersect_factors(design: Design, factors: Sequence[Factor]) -> Design:
    """Create a design of the same items with one factor, whose units are cells of some factors.

    Args:
        design: the original design.
        factors: factors whose crossing forms the cells.
    """
    cells = list(zip(*(factor.unit_of_item.tolist() for factor in factors), strict=True))
    within: list[Hashable] = list(
        zip(*(_stratum_of_items(factor) for factor in factors), strict=True)
    )
    # A stratum with a single cell has no variance when it is resampled within itself, so such
    # strata are merged with the most common one.
    size = Counter(dict(zip(cells, within, strict=True)).values())
    singletons = [stratum for stratum, count in size.items() if count < 2]
    merged = dict.fromkeys((*singletons, *size.most_common(1)[0][:1])) if singletons else {}
    within = [merged.get(stratum, stratum) for stratum in within]
    name = "-".join(factor.name for factor in factors)
    return Design((_make_factor(name, cells, within),), design.group_of_item, fixed=design.factors)


def single_factor_design(design: Design) -> Design:
    """Reduce a design to its limiting factor, which is resampled jointly for all variants."""
    return (
        design if len(design.factors) == 1 else intersect_factors(design, [design.limiting_factor])
    )


def _stratum_of_items(factor: Factor) -> list[int]:
    stratum = np.empty(factor.n_units, dtype=np.intp)
    for number, units in enumerate(factor.strata):
        stratum[units] = number
    return [int(number) for number in stratum[factor.unit_of_item]]


def _number_labels(labels: Sequence[Hashable]) -> Indices:
    """Number labels in order of appearance, because they need not be sortable."""
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.array([numbers[label] for label in labels], dtype=np.intp)


def _make_factor(name: str, labels: Sequence[Hashable], within: Sequence[Hashable]) -> Factor:
    stratum = dict(zip(labels, within, strict=True))
    if any(stratum[label] != group for label, group in zip(labels, within, strict=True)):
        raise LevelheadError(
            f"some {name} belong to more than one group", hint=f"give each of the {name} one group"
        )
    members: dict[Hashable, list[int]] = {}
    for number, label in enumerate(dict.fromkeys(labels)):
        members.setdefault(stratum[label], []).append(number)
    _require_two(min(map(len, members.values()), default=0), name)
    return Factor(
        name, _number_labels(labels), tuple(np.array(units) for units in members.values())
    )


def _require_two(units: int, name: str) -> None:
    if units < 2:
        raise NotMeasurableError(
            f"{units} {name}: fewer than two give no estimate of variance",
            hint=f"give at least two {name}",
        )
