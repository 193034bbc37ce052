"""Deterministic subsamples of a measure's units: complete words, pairs or occupations.

The selection depends only on the hash of the units' names: not on their order, the model or the
machine. The subsample of a fourth is contained in that of a half. Items that are not sampled stay
with their unit (an occupation's prompts with knowledge), or are always queried (SEAT's attributes).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.measures.items import MeasureItem, QuerySet

# Eight bytes of SHA-256: enough that no two units of a data set share a position.
HASHES = 2**64


def is_in_subsample(unit: str, fraction: float) -> bool:
    """Whether a unit belongs to the subsample.

    >>> [is_in_subsample(word, 0.5) for word in ("nurse", "clerk", "pilot")]
    [True, False, True]
    """
    position = int.from_bytes(hashlib.sha256(unit.encode()).digest()[:8])
    return position < fraction * HASHES


def subsample_queries(
    query_set: QuerySet, fraction: float, is_sampled: Callable[[MeasureItem], bool]
) -> QuerySet:
    """Subsample the units of the factor with the most units, and keep all their items."""
    if not 0 < fraction <= 1:
        raise LevelheadError(f"a share of {fraction:g}", hint="give one above 0 and up to 1")
    if fraction == 1 or not query_set.factors:
        return query_set
    sampled_units = [item.units for item in query_set.items if is_sampled(item)]
    units = [{row[i] for row in sampled_units} for i in range(len(query_set.factors))]
    # One factor only: subsampling both factors of a crossed design would keep the squared fraction.
    largest = max(range(len(units)), key=lambda i: len(units[i]))
    retained = {unit for unit in units[largest] if is_in_subsample(unit, fraction)}
    removed = units[largest] - retained
    items = tuple(item for item in query_set.items if item.units[largest] not in removed)
    n_units, factor = len(units[largest]), query_set.factors[largest]
    note = f"a subsample was measured: {len(retained)} of {n_units} {factor}"
    return query_set._replace(items=items, notes=(*query_set.notes, note))
