"""Gain against price: which settings nothing else beats in both, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from levelhead.core.results import Estimate, Probability, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from levelhead.locate.effects import Effects

BASE = "base"


class Point(Record):
    """A setting on the plane of gain and price."""

    name: str
    gain: Estimate | None = None
    """None: of the base, or of a setting that changes nothing."""
    price: Estimate | None = None
    on_front: bool
    """Nothing gains as much for less, or more for as little, on all items."""
    share: Probability
    """Of resamples in which it is on the front."""


class Front(Record):
    """The settings and the base, which gains nothing for nothing."""

    points: tuple[Point, ...]
    draws: Annotated[int, Field(ge=1)]
    """Resamples, of the items of the gain and of the price."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of those on the front, cheapest first."""
        own = [point for point in self.points if point.on_front]
        own.sort(key=lambda point: 0.0 if point.price is None else point.price.value)
        return tuple(point.name for point in own)


def undominated(gain: ArrayLike, price: ArrayLike) -> NDArray[np.bool_]:
    """Which points no other point beats: gains no less for no more, one of them strictly.

    Equal points do not beat each other.

    >>> undominated([0, 1, 2, 2], [0, 1, 1, 3]).tolist()
    [True, False, True, False]
    """
    gains, prices = np.asarray(gain, dtype=np.float64), np.asarray(price, dtype=np.float64)
    no_less = (gains[:, None] >= gains) & (prices[:, None] <= prices)  # [other, own]
    better = (gains[:, None] > gains) | (prices[:, None] < prices)
    return np.asarray(~(no_less & better).any(axis=0))


def front(
    names: Sequence[str], gains: Effects, prices: Effects, *, units: tuple[str, str]
) -> Front:
    """The front of settings and base.

    Args:
        names: of the settings.
        gains: of every setting, redrawn together.
        prices: what every setting costs more than the base, redrawn together.
        units: of gain and price.
    """
    draws = min(len(gains.draws), len(prices.draws))

    def with_base(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([[0.0], values])

    on = undominated(with_base(gains.values), with_base(prices.values))
    times = np.zeros(len(names) + 1)
    for gain, price in zip(gains.draws[:draws], prices.draws[:draws], strict=True):
        times += undominated(with_base(gain), with_base(price))
    told = [
        own.estimates([f"{what} of {name}" for name in names], unit=unit)
        if own.errors.any()
        else (None,) * len(names)  # a price that no setting changes
        for own, what, unit in zip((gains, prices), ("gain", "price"), units, strict=True)
    ]
    points = [
        Point(
            name=name, gain=gain, price=price, on_front=bool(on[i]), share=float(times[i] / draws)
        )
        for i, (name, gain, price) in enumerate(
            zip((BASE, *names), (None, *told[0]), (None, *told[1]), strict=True)
        )
    ]
    return Front(points=tuple(points), draws=draws)
