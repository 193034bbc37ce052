"""The Pareto front of gain and utility cost, and its stability over resamples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from levelhead.core.results import Estimate, Probability, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from levelhead.stats.paired_effects import PairedEffects

BASE = "base"


class ParetoPoint(Record):
    """A setting in the plane of gain and utility cost."""

    name: str
    gain: Estimate | None = None
    """Gain; None for the base, or for a setting without any effect."""
    cost: Estimate | None = None
    is_on_front: bool
    """Whether no other setting has a larger gain at the same cost, or the same gain at a lower
    cost, on all items."""
    share: Probability
    """Share of resamples in which the setting is on the front."""


class ParetoFront(Record):
    """The settings and the base, which has no gain and no cost."""

    points: tuple[ParetoPoint, ...]
    n_resamples: Annotated[int, Field(ge=1)]
    """Number of resamples of the items of gain and utility cost."""

    @property
    def names(self) -> tuple[str, ...]:
        """The points on the front, the cheapest first."""
        on_front = [point for point in self.points if point.is_on_front]
        # A setting that does not change the utility costs as much as the base: 0.
        on_front.sort(key=lambda point: 0.0 if point.cost is None else point.cost.value)
        return tuple(point.name for point in on_front)


def is_non_dominated(gain: ArrayLike, cost: ArrayLike) -> NDArray[np.bool_]:
    """Whether each point is dominated by no other: one with as much gain for as little, or better.

    A point is not dominated by an equal point.

    >>> is_non_dominated([0, 1, 2, 2], [0, 1, 1, 3]).tolist()
    [True, False, True, False]
    """
    gains, costs = np.asarray(gain, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    no_less = (gains[:, None] >= gains) & (costs[:, None] <= costs)  # [other, own]
    better = (gains[:, None] > gains) | (costs[:, None] < costs)
    return np.asarray(~(no_less & better).any(axis=0))


def compute_pareto_front(
    names: Sequence[str], gains: PairedEffects, costs: PairedEffects, *, units: tuple[str, str]
) -> ParetoFront:
    """Compute the front of settings and base.

    Args:
        names: Names of the settings.
        gains: Gains of all settings, resampled together.
        costs: Utility costs of all settings beyond the base, resampled together.
        units: Units of gain and utility cost.
    """
    # Row i of both: measures of the same items share their resamples, so gain and cost stay paired.
    n_resamples = min(len(gains.resamples), len(costs.resamples))

    # The unedited model is a point, too: a setting that loses by both is worse than no edit.
    def with_base(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([[0.0], values])

    is_optimal = is_non_dominated(with_base(gains.values), with_base(costs.values))
    counts = np.zeros(len(names) + 1)
    for gain, cost in zip(
        gains.resamples[:n_resamples], costs.resamples[:n_resamples], strict=True
    ):
        counts += is_non_dominated(with_base(gain), with_base(cost))
    estimates = [
        effects.to_estimates([f"{kind} of {name}" for name in names], unit=unit)
        if effects.standard_errors.any()
        else (None,) * len(names)  # a utility that no setting changes
        for effects, kind, unit in zip((gains, costs), ("gain", "price"), units, strict=True)
    ]
    points = [
        ParetoPoint(
            name=name,
            gain=gain,
            cost=cost,
            is_on_front=bool(is_optimal[i]),
            share=float(counts[i] / n_resamples),
        )
        for i, (name, gain, cost) in enumerate(
            zip((BASE, *names), (None, *estimates[0]), (None, *estimates[1]), strict=True)
        )
    ]
    return ParetoFront(points=tuple(points), n_resamples=n_resamples)
