"""Paired bootstrap: the same units are resampled for all variants of the same items.

Values are `[items, variants]`: the contribution of each item with the base model, without a head,
or with an edit. A resample is a row of counts of each item of each group. A statistic computes
`[resamples, variants]` from both: by a matrix product `counts @ values` if it depends only on sums
over items, otherwise by one vectorised call. A statistic with neither form is computed resample by
resample; tests compare the other two forms with this loop.

This module does not use `scipy.stats.bootstrap` (`bootstrap` does, for one variant), for three
reasons. scipy computes the distribution of one statistic, but here several statistics, also of the
units left out, belong to the same resample. It cannot replace a resample that has no value in one
of the variants. And it passes gathered values, `[resamples, items, variants]`, so that no matrix
product is possible: 999 resamples of 1,508 pairs without each of 144 heads would need 1.7 GB
instead of 12 MB of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, SupportsFloat, TypeVar, final

import numpy as np

from levelhead.core.errors import NotMeasurableError
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import Resample, count_items

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Design, Indices

    VectorisedStatistic = Callable[[NDArray[np.float64], ItemCounts], NDArray[np.float64]]
    """Values `[items, variants]` (or `[items, variants, columns]`) and counts `[resamples, groups,
    items]`: `[resamples, variants]`. NaN where a resample has no value, such as one without
    spread."""

MAX_TRIES_PER_RESAMPLE = 5
"""Tries per requested resample: a resample without spread (all words alike) has no value and is
replaced."""
BATCH_SIZE = 128
"""Number of resamples that are reduced together; limits the memory."""

Values = TypeVar("Values", bound=SupportsFloat)
"""Contributions of the items, in the array type of the literal form, such as a torch tensor."""


@dataclass(frozen=True)
class PairedStatistic(Generic[Values]):
    """A statistic in two forms: for one resample (literal) and for many (vectorised)."""

    literal: Callable[[Values, Resample], Values]
    vectorised: VectorisedStatistic

    def __call__(self, values: Values, resample: Resample) -> Values:
        """Compute the statistic of one resample."""
        return self.literal(values, resample)


def vectorised_form(statistic: Callable[[Values, Resample], Values]) -> VectorisedStatistic | None:
    """Return the form of a statistic for many resamples; None if it has none."""
    return statistic.vectorised if isinstance(statistic, PairedStatistic) else None


def resample_statistics(
    design: Design,
    values: Sequence[Values],
    statistics: Sequence[Callable[[Values, Resample], Values]],
    rng: np.random.Generator,
    n_resamples: int,
    *,
    left_out_statistics: Sequence[Callable[[Values, Resample], Values]] = (),
) -> list[NDArray[np.float64]]:
    """Compute statistics of several variants of the same items, with the same resampled units.

    If any statistic of a resample has no value (all words alike, a group without items), the
    resample is replaced for all statistics.

    Args:
        design: what was sampled; the units of its factors are resampled.
        values: contributions of the items, one array per variant.
        statistics: statistics of the sampled units.
        rng: random generator.
        n_resamples: number of resamples.
        left_out_statistics: statistics of the units that the same resample leaves out.

    Returns:
        For every statistic, `[resamples, variants]`; those of left-out units come last.
    """
    results: list[list[NDArray[np.float64]]] = [[] for _ in (*statistics, *left_out_statistics)]
    count = 0
    reducers = [
        _make_reducer(statistic, values) for statistic in (*statistics, *left_out_statistics)
    ]
    for begin in range(0, MAX_TRIES_PER_RESAMPLE * n_resamples, BATCH_SIZE):
        size = min(BATCH_SIZE, MAX_TRIES_PER_RESAMPLE * n_resamples - begin)
        inside = _Resamples(design, _draw_units(design, rng, size))
        outside = _Resamples(design, inside.units, are_left_out=True)
        batch = [
            reduce(inside if number < len(statistics) else outside)
            for number, reduce in enumerate(reducers)
        ]
        # All variants share one resample, so that their differences are paired.
        has_value = np.all([np.isfinite(column).all(axis=1) for column in batch], axis=0)
        for result, column in zip(results, batch, strict=True):
            result.append(column[has_value])
        count += int(has_value.sum())
        if count >= n_resamples:
            return [np.concatenate(result)[:n_resamples] for result in results]
    raise NotMeasurableError(
        f"only {count} of {MAX_TRIES_PER_RESAMPLE * n_resamples} resamples have a value",
        hint="give more items",
    )


@final
@dataclass(frozen=True, eq=False)
class _Resamples:
    """A batch of resamples: the sampled units, or those left out."""

    design: Design
    units: Sequence[Indices]
    """For every stratum, the sampled units `[resamples, units]`."""
    are_left_out: bool = False

    @cached_property
    def non_empty(self) -> Indices:
        """Indices of resamples with units in every stratum: a resample may leave out no unit."""
        if not self.are_left_out:
            return np.arange(len(self.units[0]))
        # A stratum without a left-out unit would leave a group empty and its mean undefined.
        has_remaining = [
            [len(set(row)) < len(stratum) for row in rows.tolist()]
            for stratum, rows in zip(self.design.samples, self.units, strict=True)
        ]
        return np.flatnonzero(np.all(has_remaining, axis=0))

    @cached_property
    def counts(self) -> Indices:
        """Count of each item of each group in the non-empty resamples."""
        rows = [units[self.non_empty] for units in self.units] if self.are_left_out else self.units
        return count_items(self.design, rows, left_out=self.are_left_out)

    def resample(self, index: int) -> Resample:
        """Return a single resample, by its index."""
        samples = tuple(units[index] for units in self.units)
        if self.are_left_out:
            pairs = zip(self.design.samples, samples, strict=True)
            samples = tuple(np.setdiff1d(stratum, units) for stratum, units in pairs)
        return Resample(self.design, samples)


def _make_reducer(
    statistic: Callable[[Values, Resample], Values], values: Sequence[Values]
) -> Callable[[_Resamples], NDArray[np.float64]]:
    """Make a function to `[resamples, variants]`, vectorised if possible; NaN without a value."""
    vectorised = vectorised_form(statistic)

    def reduce_each(resamples: _Resamples) -> NDArray[np.float64]:
        result = np.full((len(resamples.units[0]), len(values)), np.nan)
        for index in resamples.non_empty:
            resample = resamples.resample(index)
            try:
                result[index] = [float(statistic(variant, resample)) for variant in values]
            except NotMeasurableError:
                # All words alike: NaN marks the resample, and the caller replaces it.
                continue
        return result

    if vectorised is None:
        return reduce_each
    stacked = np.stack([np.asarray(variant, dtype=np.float64) for variant in values], axis=1)

    def reduce_vectorised(resamples: _Resamples) -> NDArray[np.float64]:
        result = np.full((len(resamples.units[0]), len(values)), np.nan)
        if resamples.non_empty.size:
            result[resamples.non_empty] = vectorised(stacked, resamples.counts)
        return result

    return reduce_vectorised


def _draw_units(design: Design, rng: np.random.Generator, size: int) -> list[Indices]:
    """Sample units of every stratum, `[resamples, units]`; batches do not change the result."""
    # `Generator.choice` calls `integers` after slow argument checks.
    if len(design.samples) == 1:
        (stratum,) = design.samples
        return [stratum[rng.integers(0, len(stratum), (size, len(stratum)))]]
    positions = [np.empty((size, len(stratum)), dtype=np.intp) for stratum in design.samples]
    # This loop order makes the random stream independent of the batch size.
    for number in range(size):
        for rows in positions:
            rows[number] = rng.integers(0, rows.shape[1], rows.shape[1])
    return [stratum[rows] for stratum, rows in zip(design.samples, positions, strict=True)]


def pooled_item_counts(item_counts: ItemCounts) -> NDArray[np.float64]:
    """Count each item over all groups: `[resamples, items]`.

    The counts are floats, because every matrix product would convert integers again.

    Args:
        item_counts: count of each item of each group in each resample.
    """
    has_one_group = item_counts.shape[1] == 1
    return np.asarray(item_counts[:, 0] if has_one_group else item_counts.sum(1), dtype=np.float64)


def item_means(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    """Compute means of the resampled items, `[resamples, variants]`, by one matrix product."""
    count = pooled_item_counts(item_counts)
    return np.asarray((count @ values) / count.sum(-1)[:, None])


def group_means(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    """Compute group means, `[groups, resamples, variants]`; NaN if a group has no item."""
    with np.errstate(invalid="ignore"):
        counts = [np.asarray(item_counts[:, group], float) for group in range(item_counts.shape[1])]
        return np.stack([(count @ values) / count.sum(-1)[:, None] for count in counts])


CANCELLATION_RATIO = 1e-3
"""Variances below this share of the second moment are computed in two passes, because the
difference of two sums would lose digits."""


def standard_deviations(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    """Compute standard deviations (ddof 1), `[resamples, variants]`; NaN without spread."""
    # Squares of centred values lose fewer digits.
    centred = values - values.mean(0)
    pooled_counts = pooled_item_counts(item_counts)
    count = pooled_counts.sum(1)[:, None].astype(float)
    total, squares = pooled_counts @ centred, pooled_counts @ centred**2
    # A resample of one item divides by 0; the second pass below turns it into "no value".
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (squares - total**2 / count) / (count - 1)
        result = np.sqrt(np.maximum(variance, 0))
        # `~(>)` instead of `<=`, so that variances of NaN are recomputed as well.
        cancelling = ~(variance > CANCELLATION_RATIO * squares / count)
    for row, column in zip(*np.nonzero(cancelling), strict=True):
        resampled_column = np.repeat(values[:, column], pooled_counts[row].astype(int))
        # Rounding errors are not spread: such a resample has no value.
        is_degenerate = len(resampled_column) < 2 or is_constant(resampled_column)
        result[row, column] = np.nan if is_degenerate else resampled_column.std(ddof=1)
    return np.asarray(result)


ALIGNMENT = 64
"""Matrix products are truncated at multiples of this number. The truncated weights are zeros at the
end, so that the sums are equal to those of all items to the last bit, for every SIMD width."""


def top_means(
    values: NDArray[np.float64], item_counts: ItemCounts, top_size: Callable[[int], float]
) -> NDArray[np.float64]:
    """Compute means of the largest resampled items, `[resamples, variants]`.

    Args:
        values: `[items, variants]`.
        item_counts: count of each item of each group in each resample.
        top_size: function from the number of items to the number that is averaged; NaN if no mean
            can be computed.
    """
    count = pooled_item_counts(item_counts)
    sizes = {int(n): top_size(int(n)) for n in set(count.sum(-1))}
    largest = np.array([sizes[int(n)] for n in count.sum(-1)])[:, None]
    result = np.empty((len(count), values.shape[1]))
    # A top share needs only the first items of the order. Twice the top size is enough for most
    # resamples; the check in the loop finds the others.
    first = ALIGNMENT * math.ceil(2 * np.nanmax(largest, initial=0) / ALIGNMENT)
    for variant, column in enumerate(values.T):
        order = np.argsort(-column, kind="stable")
        ordered = count[:, order[:first]]
        # A NaN size fails the comparison, takes the full order and leaves NaN as its mean.
        if not (ordered.sum(-1) >= largest[:, 0]).all():
            ordered = count[:, order]
        # Copies of an item count only as far as they are within the top share.
        weights = np.clip(largest - (np.cumsum(ordered, axis=1) - ordered), 0, ordered)
        result[:, variant] = (weights @ column[order[: ordered.shape[1]]]) / largest[:, 0]
    return result
