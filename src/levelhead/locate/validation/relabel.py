"""Labels dealt anew: what a map would look like if the groups meant nothing.

Targets are dealt to the sides at random, units whole and sides as large as they were; twins are
exchanged at random; and where a measure has pairs of attribute words (SEAT), the members of a pair
change sides at random. Answers stay as they are: no forward is run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts

    Values = Callable[[Readouts], torch.Tensor]


def relabelled(
    measure: Measure, readouts: Readouts, rng: np.random.Generator
) -> tuple[Callable[[Readouts], Readouts], Values]:
    """One relabelling: how readouts of these items change, and what each item then contributes.

    The same for the model and all its variants.
    """
    head = measure.headline
    if head.null == "deal":
        groups = _dealt(measure, readouts, rng)
        return (lambda own: _grouped(own, groups)), head.per_item
    if head.null == "flip":
        factor = measure.design(readouts, head).factors[0]
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], factor.units))[
            torch.from_numpy(factor.unit)
        ]
        return (lambda own: own), (lambda own: head.flip(head.per_item(own), signs))
    raise LevelheadError(
        f"{measure.name} has no labels that could be dealt anew",
        mend="describe a map of a measure that compares groups",
    )


def _dealt(measure: Measure, readouts: Readouts, rng: np.random.Generator) -> dict[str, str]:
    """A new group for every item, by id."""
    sampled = measure.sampled(readouts)
    factor = measure.design(readouts, measure.headline).factors[0]
    of_unit = np.empty(factor.units, dtype=object)
    for unit, item in zip(factor.unit, sampled.items, strict=True):
        of_unit[unit] = item.group
    dealt = rng.permutation(of_unit)
    groups = {
        item.id: str(dealt[unit]) for unit, item in zip(factor.unit, sampled.items, strict=True)
    }
    own = {item.id: item.group for item in readouts.items}
    pairs = measure.counterparts(readouts)
    if pairs:
        fixed = [item.id for item in readouts.items if not measure.samples(item)]
        names = sorted({own[name] for name in fixed})
        other = dict(zip(names, reversed(names), strict=True))
        # A word whose counterpart was not read changes sides by itself.
        together = _joined([*pairs, *((name, name) for name in fixed)], own)
        turned = {name: own[name] for name in fixed}
        while True:
            for members in together:
                side = other if rng.random() < 0.5 else {name: name for name in names}
                turned |= {name: side[own[name]] for name in members}
            if len(set(turned.values())) == len(names):  # no side may be left without words
                break
        groups |= turned
    return own | groups


def _joined(pairs: Sequence[tuple[str, str]], own: Mapping[str, str]) -> list[set[str]]:
    """Pairs that share a word change sides together."""
    found: list[set[str]] = []
    for pair in pairs:
        if not set(pair) <= own.keys():
            continue
        touching = [one for one in found if one & set(pair)]
        found = [one for one in found if not one & set(pair)]
        found.append(set(pair).union(*touching))
    return found


def _grouped(readouts: Readouts, groups: Mapping[str, str]) -> Readouts:
    items = tuple(item._replace(group=groups[item.id]) for item in readouts.items)
    return replace(readouts, items=items)
