"""Maps of several models side by side (Yang et al. 2025, section 7, Appendices C and D).

The paper looks at heat maps and says: fewer biased heads, some darker, some turned round. Here
these are counts, with intervals over redrawn words of the effects on the confirm half.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, Interval, Record
from levelhead.locate.head_map import HeadMap, label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.locate.effects import Effects
    from levelhead.models.sites import Site

BOXED = 5
NOISY = (
    "darker heads and heads turned positive are counts of noisy signs: two maps of one model with "
    "other words have some, too"
)


class ChildMap(Record):
    """One model beside the first."""

    name: str
    map: HeadMap
    fewer: Estimate | None = None
    """Positive heads of the first model less those of this one."""
    darker: Estimate | None = None
    """Heads that are positive in both and larger in this one."""
    flipped: Estimate | None = None
    """Heads that are negative in the first and positive in this one."""
    boxed_flipped: int | None
    """Of the first model's five most negative heads, those with a positive score in this one; None
    where the models have other heads."""
    total: Estimate | None = None
    """The sum of effects, less that of the first model."""


class MapComparison(Record):
    """Several maps, the first of them the base."""

    name: str
    base: HeadMap
    boxed: tuple[str, ...]
    """The base's most negative heads by score, <layer>-<head>, counted from 1."""
    children: tuple[ChildMap, ...]
    notes: tuple[str, ...] = ()


def compare_maps(
    maps: Sequence[tuple[str, HeadMap]], effects: Sequence[Effects | None] = ()
) -> MapComparison:
    """Compare maps with the first of them.

    Args:
        maps: names and maps; the first is the base.
        effects: the effects they rest on, of the same items in the same draws; without them nothing
            is counted but the boxed heads.
    """
    if len(maps) < 2 or (effects and len(effects) != len(maps)):
        raise LevelheadError(
            f"{len(maps)} maps with {len(effects)} sets of effects are no comparison",
            mend="give at least two maps, and effects for all or none of them",
        )
    (name, base), *others = maps
    for other, own in others:
        if own.measure != base.measure or own.measurement.comparable != base.measurement.comparable:
            raise LevelheadError(
                f"{other} was not located by the same measure as {name}",
                mend="locate all models by one measure with the same options",
            )
        unlike = [
            what
            for what, pair in {
                "way to locate": (own.by, base.by),
                "ablation": (own.ablation, base.ablation),
                "halves": (own.halves.by, base.halves.by),
                "seed": (own.halves.seed, base.halves.seed),
            }.items()
            if pair[0] != pair[1]
        ]
        if unlike:
            raise LevelheadError(
                f"{other} has another {unlike[0]} than {name}", mend="locate all models alike"
            )
    negative = set(base.negative()[:BOXED])  # refuses a base whose sign is undetermined
    boxed = [one for one in reversed(base.ranked) if one.site in negative]
    notes = []
    children = []
    for number, (other, own) in enumerate(others, 1):
        same = (own.layers, own.heads_a_layer) == (base.layers, base.heads_a_layer)
        # In the base's direction, whatever the child's own sign is: the same measure goes up.
        turn = (own.direction.sign or 1) * base.direction.sign
        scores = {one.site: turn * one.score for one in own.heads}
        pair = (effects[0], effects[number]) if effects and same else (None, None)
        if own.direction.sign != base.direction.sign:
            notes.append(f"{other}: its own sign is {own.direction.sign}; compared as the base's")
        if effects and not (_fit(*pair) and _tested(own) == _tested(base)):
            pair = (None, None)
            notes.append(f"{other}: other heads or other items than the base's: nothing is counted")
        children.append(
            ChildMap(
                name=other,
                map=own,
                boxed_flipped=sum(scores[one.site] > 0 for one in boxed) if same else None,
                **_counts(*pair, turn),
            )
        )
    return MapComparison(
        name=name,
        base=base,
        boxed=tuple(label(one.site) for one in boxed),
        children=tuple(children),
        notes=(*notes, NOISY),
    )


def _tested(own: HeadMap) -> list[Site]:
    """The parts that were ablated."""
    return [one.site for one in own.scores if one.effect is not None]


def _fit(first: Effects | None, second: Effects | None) -> bool:
    """Whether two sets of effects are of the same heads and the same items in the same draws."""
    if first is None or second is None:
        return False
    return first.draws.shape == second.draws.shape and first.items == second.items


def _counts(first: Effects | None, second: Effects | None, turn: int) -> dict[str, Estimate]:
    if first is None or second is None:
        return {}
    second = replace(second, values=turn * second.values, draws=turn * second.draws)
    return {
        "fewer": _estimate("fewer positive heads", _fewer, first, second),
        "darker": _estimate("darker heads", _darker, first, second),
        "flipped": _estimate("heads turned positive", _flipped, first, second),
        "total": _estimate("difference of the total", _total, first, second),
    }


def _fewer(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((a > 0).sum(-1) - (b > 0).sum(-1), dtype=np.float64)


def _darker(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(((a > 0) & (b > a)).sum(-1), dtype=np.float64)


def _flipped(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(((a < 0) & (b > 0)).sum(-1), dtype=np.float64)


def _total(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(b.sum(-1) - a.sum(-1))


def _estimate(name: str, count: object, first: Effects, second: Effects) -> Estimate:
    """Percentiles over the draws: counts of noisy signs are biased, which the ends show."""
    value = float(count(first.values, second.values))  # type: ignore[operator]
    redrawn = count(first.draws, second.draws)  # type: ignore[operator]
    tail = (1 - first.level) / 2
    low, high = np.quantile(redrawn, [tail, 1 - tail])
    return Estimate(
        name=name,
        value=value,
        interval=Interval(
            low=min(float(low), value),
            high=max(float(high), value),
            level=first.level,
            method=f"percentile, {first.design}",
        ),
        n=len(first.values),
    )
