"""Paired resampling: the same units redrawn for all variants of the same items.

Values are `[items, variants]`: what each item contributes with the model as it is, without a head,
with an edit. A resample is a row of counts, how often it took each item of each group. A statistic
makes `[resamples, variants]` of both: a matrix product `counts @ values` where it looks at the
items through sums only, one vectorised call otherwise. A statistic that has neither is computed
resample by resample; that loop is also what tests compare the other two with.

`scipy.stats.bootstrap` is not used here (it is in `bootstrap`, for one variant). It gives the
distribution of one statistic, while here several statistics, and those of the units left out,
belong to the same resample; it cannot draw again what has no value in any one of the variants; and
it hands over the values gathered, `[resamples, items, variants]`, so that no product is possible:
999 resamples of 1,508 pairs without each of 144 heads would be 1.7 GB instead of 12 MB of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, SupportsFloat, TypeVar, final

import numpy as np

from levelhead.core.errors import NotMeasurable
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import Draw, times_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from levelhead.stats.bootstrap import Times
    from levelhead.stats.designs import Design, Indices

    Many = Callable[[NDArray[np.float64], Times], NDArray[np.float64]]
    """Values `[items, variants]` (or `[items, variants, columns]`) and counts `[resamples, groups,
    items]`: `[resamples, variants]`. NaN where a resample has no value, such as one without
    spread."""

SPARE = 5
"""A resample without spread (all words alike) has no value; as many times the resamples wanted are
tried."""
BATCH = 128
"""Resamples that are reduced at once: bounds the memory."""

Values = TypeVar("Values", bound=SupportsFloat)
"""What the items contribute, in the array type of the literal form: a torch tensor, say."""


@dataclass(frozen=True)
class PairedStatistic(Generic[Values]):
    """A statistic of one resample, literally, and the same for many resamples at once."""

    literal: Callable[[Values, Draw], Values]
    many: Many

    def __call__(self, values: Values, draw: Draw) -> Values:
        """Of one resample."""
        return self.literal(values, draw)


def many_of(statistic: Callable[[Values, Draw], Values]) -> Many | None:
    """The form for many resamples at once, if a statistic has it."""
    return statistic.many if isinstance(statistic, PairedStatistic) else None


def resampled(
    design: Design,
    values: Sequence[Values],
    overs: Sequence[Callable[[Values, Draw], Values]],
    rng: np.random.Generator,
    draws: int,
    *,
    left_out: Sequence[Callable[[Values, Draw], Values]] = (),
) -> list[NDArray[np.float64]]:
    """Statistics of several variants of the same items, of units redrawn for all of them alike.

    A resample in which any statistic has no value (all words alike, a group without items) is drawn
    again, for all statistics.

    Args:
        design: what was sampled; the units of its factors are redrawn.
        values: what each item contributes, an array a variant.
        overs: the statistics of the units drawn.
        rng: chance.
        draws: how many resamples.
        left_out: statistics of the units that the same resample left out.

    Returns:
        For every statistic, those of units left out last, `[draws, variants]`.
    """
    results: list[list[NDArray[np.float64]]] = [[] for _ in (*overs, *left_out)]
    count = 0
    reducers = [_reducer(over, values) for over in (*overs, *left_out)]
    for begin in range(0, SPARE * draws, BATCH):
        size = min(BATCH, SPARE * draws - begin)
        inside = _Resamples(design, _draw_units(design, rng, size))
        outside = _Resamples(design, inside.units, are_left_out=True)
        batch = [
            reduce(inside if number < len(overs) else outside)
            for number, reduce in enumerate(reducers)
        ]
        has_value = np.all([np.isfinite(column).all(axis=1) for column in batch], axis=0)
        for result, column in zip(results, batch, strict=True):
            result.append(column[has_value])
        count += int(has_value.sum())
        if count >= draws:
            return [np.concatenate(result)[:draws] for result in results]
    raise NotMeasurable(
        f"only {count} of {SPARE * draws} draws have a value", mend="give more items"
    )


@final
@dataclass(frozen=True, eq=False)
class _Resamples:
    """Some resamples: the units drawn, or those left out."""

    design: Design
    units: Sequence[Indices]
    """For every stratum, `[resamples, units]` drawn."""
    are_left_out: bool = False

    @cached_property
    def filled(self) -> Indices:
        """The resamples that have units in every stratum: all may have been drawn."""
        if not self.are_left_out:
            return np.arange(len(self.units[0]))
        has_rest = [
            [len(set(row)) < len(stratum) for row in rows.tolist()]
            for stratum, rows in zip(self.design.samples, self.units, strict=True)
        ]
        return np.flatnonzero(np.all(has_rest, axis=0))

    @cached_property
    def counts(self) -> Indices:
        """How often each item of each group is in those that are filled."""
        rows = [units[self.filled] for units in self.units] if self.are_left_out else self.units
        return times_of(self.design, rows, left_out=self.are_left_out)

    def draw(self, number: int) -> Draw:
        """A single resample."""
        drawn = tuple(units[number] for units in self.units)
        if self.are_left_out:
            pairs = zip(self.design.samples, drawn, strict=True)
            drawn = tuple(np.setdiff1d(stratum, units) for stratum, units in pairs)
        return Draw(self.design, drawn)


def _reducer(
    over: Callable[[Values, Draw], Values], values: Sequence[Values]
) -> Callable[[_Resamples], NDArray[np.float64]]:
    """`[resamples, variants]` of a statistic, all at once where it can; NaN without a value."""
    many = many_of(over)

    def literal(resamples: _Resamples) -> NDArray[np.float64]:
        result = np.full((len(resamples.units[0]), len(values)), np.nan)
        for number in resamples.filled:
            draw = resamples.draw(number)
            try:
                result[number] = [float(over(variant, draw)) for variant in values]
            except NotMeasurable:
                continue  # all words alike: no value, in no model
        return result

    if many is None:
        return literal
    stacked = np.stack([np.asarray(variant, dtype=np.float64) for variant in values], axis=1)

    def at_once(resamples: _Resamples) -> NDArray[np.float64]:
        result = np.full((len(resamples.units[0]), len(values)), np.nan)
        if resamples.filled.size:
            result[resamples.filled] = many(stacked, resamples.counts)
        return result

    return at_once


def _draw_units(design: Design, rng: np.random.Generator, size: int) -> list[Indices]:
    """For every stratum `[resamples, units]`; the same whether drawn together or one by one."""
    # `integers` is what `choice` calls, without its checks.
    if len(design.samples) == 1:
        (stratum,) = design.samples
        return [stratum[rng.integers(0, len(stratum), (size, len(stratum)))]]
    places = [np.empty((size, len(stratum)), dtype=np.intp) for stratum in design.samples]
    for number in range(size):
        for rows in places:
            rows[number] = rng.integers(0, rows.shape[1], rows.shape[1])
    return [stratum[rows] for stratum, rows in zip(design.samples, places, strict=True)]


def item_counts(times: Times) -> NDArray[np.float64]:
    """`[resamples, items]` how often each item was drawn, whichever group it is of.

    As floats: a product with integers would convert them every time.
    """
    has_one_group = times.shape[1] == 1
    return np.asarray(times[:, 0] if has_one_group else times.sum(1), dtype=np.float64)


def means(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    """`[resamples, variants]` means of the items drawn: one matrix product."""
    count = item_counts(times)
    return np.asarray((count @ values) / count.sum(-1)[:, None])


def group_means(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    """`[groups, resamples, variants]` means of each group; NaN where a group has no item."""
    with np.errstate(invalid="ignore"):
        counts = [np.asarray(times[:, group], float) for group in range(times.shape[1])]
        return np.stack([(count @ values) / count.sum(-1)[:, None] for count in counts])


CANCELS = 1e-3
"""A variance that is a smaller part of the second moment than this is computed in two passes: of
the difference of two sums, digits would be lost."""


def standard_deviations(values: NDArray[np.float64], times: Times) -> NDArray[np.float64]:
    """`[resamples, variants]` standard deviations (ddof 1) of the items drawn; NaN without any."""
    centred = values - values.mean(0)  # so that squares lose fewer digits
    drawn_times = item_counts(times)
    count = drawn_times.sum(1)[:, None].astype(float)
    total, squares = drawn_times @ centred, drawn_times @ centred**2
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (squares - total**2 / count) / (count - 1)
        result = np.sqrt(np.maximum(variance, 0))
        cancelling = ~(variance > CANCELS * squares / count)
    for row, column in zip(*np.nonzero(cancelling), strict=True):
        some = np.repeat(values[:, column], drawn_times[row].astype(int))
        alike = len(some) < 2 or is_constant(some)  # rounding is not spread
        result[row, column] = np.nan if alike else some.std(ddof=1)
    return np.asarray(result)


STEP = 64
"""A product is cut at multiples of it: what it leaves out are zeros at the end, so that the sums
are those of all items to the last bit, in whatever lanes they are added."""


def top_means(
    values: NDArray[np.float64], times: Times, size: Callable[[int], float]
) -> NDArray[np.float64]:
    """`[resamples, variants]` means of the largest of the items drawn.

    Args:
        values: `[items, variants]`.
        times: how often each item was drawn.
        size: of so many items drawn, how many are averaged; NaN: none can be.
    """
    count = item_counts(times)
    sizes = {int(n): size(int(n)) for n in set(count.sum(-1))}
    largest = np.array([sizes[int(n)] for n in count.sum(-1)])[:, None]
    result = np.empty((len(count), values.shape[1]))
    # A top share needs the first items of the order only: as many as no resample goes beyond.
    first = STEP * math.ceil(2 * np.nanmax(largest, initial=0) / STEP)
    for variant, column in enumerate(values.T):
        order = np.argsort(-column, kind="stable")
        ordered = count[:, order[:first]]
        if not (ordered.sum(-1) >= largest[:, 0]).all():
            ordered = count[:, order]
        # Of an item's copies those count that are still within the top share.
        taken = np.clip(largest - (np.cumsum(ordered, axis=1) - ordered), 0, ordered)
        result[:, variant] = (taken @ column[order[: ordered.shape[1]]]) / largest[:, 0]
    return result
