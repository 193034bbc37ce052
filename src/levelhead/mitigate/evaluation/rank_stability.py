"""Do settings rank alike on other items? Agreement of dev and test, over all and over the best.

Intervals are over items, dev's and test's redrawn apart; the settings are all there are. They are
of the correlation of ranks as measured: chance in the items makes measured gains agree less than
the gains themselves do, the more so the less settings differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Probability, Record
from levelhead.stats.degenerate import is_constant
from levelhead.stats.rank_correlation import kendall, spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.locate.effects import Effects

SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
FEWEST = 3
"""Settings below which ranks are not correlated."""
FEW = 8
"""Settings below which a correlation has no Fisher scale: few orders are possible at all."""
EDGE = 0.9999
"""Fisher's z has no value at 1."""


class Agreement(Record):
    """How far dev and test agree on the best settings."""

    share: Probability
    """Of the settings: the best by dev."""
    settings: Annotated[int, Field(ge=1)]
    """How many that is."""
    overlap: Estimate | None = None
    """The share of them that are as high on test; None for all settings. Its parity is chance."""
    spearman: Estimate | None = None
    """Of their gains on dev and test; None for fewer than three, or without spread."""
    kendall: Estimate | None = None


class _Found(NamedTuple):
    """`[rows]` each; of the correlations, of those rows that have them."""

    overlap: NDArray[np.float64]
    spearman: NDArray[np.float64]
    kendall: NDArray[np.float64]


def agreement(
    dev: Effects, test: Effects, *, shares: Sequence[float] = SHARES
) -> tuple[Agreement, ...]:
    """How far the gains of the same settings agree on dev and test.

    Which settings are the best by dev is found anew in every resample.

    Args:
        dev: gains of all settings.
        test: of the same ones, in the same order.
        shares: of the settings, best by dev first.
    """
    if len(dev.values) != len(test.values):
        raise LevelheadError(
            f"{len(dev.values)} settings on dev and {len(test.values)} on test",
            mend="give the same settings for both",
        )
    if not all(0 < share <= 1 for share in shares):
        raise LevelheadError("a share of the settings lies in (0, 1]", mend="such as 0.1")
    draws = min(len(dev.draws), len(test.draws))
    found = []
    for share in shares:
        count = math.ceil(share * len(dev.values) - 1e-9)
        whole = _found(dev.values[None], test.values[None], count)
        redrawn = _found(dev.draws[:draws], test.draws[:draws], count)
        told = {
            kind: _estimate(kind, whole, redrawn, dev, test, count)
            for kind in ("overlap", "spearman", "kendall")
        }
        found.append(Agreement(share=share, settings=count, **told))
    return tuple(found)


def correlated(first: Effects, second: Effects, name: str) -> Estimate | None:
    """Spearman's correlation of two effects over all settings; None without spread.

    Args:
        first: effects of settings on one measure.
        second: of the same settings on another.
        name: of the estimate.
    """
    if len(first.values) != len(second.values):
        raise LevelheadError(
            f"{len(first.values)} and {len(second.values)} settings", mend="give the same ones"
        )
    count = len(first.values)
    draws = min(len(first.draws), len(second.draws))
    redrawn = _found(first.draws[:draws], second.draws[:draws], count)
    whole = _found(first.values[None], second.values[None], count)
    found = _estimate("spearman", whole, redrawn, first, second, count)
    return None if found is None else found.model_copy(update={"name": name})


def _found(dev: NDArray[np.float64], test: NDArray[np.float64], count: int) -> _Found:
    best, other = (np.argsort(-own, axis=1, kind="stable")[:, :count] for own in (dev, test))
    is_best, is_other = np.zeros((2, *dev.shape), dtype=bool)
    np.put_along_axis(is_best, best, True, axis=1)
    np.put_along_axis(is_other, other, True, axis=1)
    overlap = (is_best & is_other).sum(1) / count
    none = np.empty(0)
    if count < FEWEST:
        return _Found(overlap, none, none)
    first, second = (np.take_along_axis(own, best, axis=1) for own in (dev, test))
    differ = [
        not (is_constant(one) or is_constant(two)) for one, two in zip(first, second, strict=True)
    ]
    if not any(differ):
        return _Found(overlap, none, none)
    rows = first[differ], second[differ]
    return _Found(overlap, spearman(*rows), kendall(*rows))


def _estimate(
    kind: Literal["overlap", "spearman", "kendall"],
    whole: _Found,
    redrawn: _Found,
    dev: Effects,
    test: Effects,
    count: int,
) -> Estimate | None:
    """A number of `_Found` with its interval.

    Resampled ranks are noisier than the ranks themselves, so their quantiles lie too low, and only
    their spread is used: of correlations on Fisher's scale. Of a few settings the quantiles are
    taken, wide as they are: a correlation of 1 has no spread to speak of.
    """
    values, draws = getattr(whole, kind), getattr(redrawn, kind)
    every = count == len(dev.values)
    if not len(values) or len(draws) < 2 or (kind == "overlap" and every):
        return None
    value = float(values[0])
    narrow = max(_narrow(dev), _narrow(test))
    df = min(own.design.scarcest.df for own in (dev, test))
    reach = float(stats.t.ppf((1 + dev.level) / 2, df)) * narrow
    if kind == "overlap":
        distance = reach * float(draws.std(ddof=1))
        low, high = max(value - distance, 0.0), min(value + distance, 1.0)
    elif count < FEW:
        tails = (1 - dev.level) / 2
        low, high = np.quantile([value, *draws], [tails, 1 - tails], method="linear").tolist()
        low, high = min(low, value), max(high, value)
    else:
        z = np.arctanh(np.clip([value, *draws], -EDGE, EDGE))
        distance = reach * float(z[1:].std(ddof=1))
        low, high = (float(np.tanh(z[0] + way * distance)) for way in (-1, 1))
    scale = "" if kind == "overlap" else ", quantiles" if count < FEW else ", fisher z"
    return Estimate(
        name=f"{kind} of dev and test, best {count}",
        value=value,
        interval=Interval(
            low=low,
            high=high,
            level=dev.level,
            method=f"{kind}{scale}, redrawn: {dev.design} and {test.design}",
        ),
        parity=count / len(dev.values) if kind == "overlap" else 0.0,
        n=count,
    )


def _narrow(found: Effects) -> float:
    """By how much resampling understates the spread."""
    (factor,) = found.design.factors
    return float(np.sqrt(factor.units / factor.df))
