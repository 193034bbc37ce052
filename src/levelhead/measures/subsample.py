"""A part of what a measure asks: whole words, pairs or occupations, the same ones every time.

Which are kept follows from the hash of their names alone: not from their order, the model or the
machine. The part of a fourth lies within that of a half. What is not sampled goes with what it is
about (an occupation's prompts with knowledge), or is asked whole (SEAT's attributes).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.measures.items import Asked, Item

HASHES = 2**64


def kept(unit: str, share: float) -> bool:
    """Whether a unit belongs to the part.

    >>> [kept(word, 0.5) for word in ("nurse", "clerk", "pilot")]
    [True, False, True]
    """
    place = int.from_bytes(hashlib.sha256(unit.encode()).digest()[:8])
    return place < share * HASHES


def part_of(asked: Asked, share: float, samples: Callable[[Item], bool]) -> Asked:
    """A share of the units of the factor that has most of them, with all their items."""
    if not 0 < share <= 1:
        raise LevelheadError(f"a share of {share:g}", mend="give one above 0 and up to 1")
    if share == 1 or not asked.factors:
        return asked
    own = [item.units for item in asked.items if samples(item)]
    units = [{row[i] for row in own} for i in range(len(asked.factors))]
    most = max(range(len(units)), key=lambda i: len(units[i]))
    stay = {unit for unit in units[most] if kept(unit, share)}
    gone = units[most] - stay
    items = tuple(item for item in asked.items if item.units[most] not in gone)
    note = f"a part was asked: {len(stay)} of {len(units[most])} {asked.factors[most]}"
    return asked._replace(items=items, notes=(*asked.notes, note))
