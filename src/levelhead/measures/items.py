"""Items and query sets, the queries of a measure as plain data, and their subsamples.

A subsample depends only on the hash of the units' names: not on their order, the model or the
machine. The subsample of a fourth is contained in that of a half. Items that are not sampled stay
with their unit (an occupation's prompts with knowledge), or are always queried (SEAT's attributes).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.core.canonical_json import Json

# The names are part of task hashes: renaming one invalidates all stored responses.
QueryKind = Literal[
    "embed",
    "follows",
    "classify",
    "rate",
    "fill",
    "put",
    "top",
    "score",
    "choose",
    "sample",
    "generate",
]
ItemField = Literal["group", "kind"]
QueryArgs = tuple["Json", ...]
"""Arguments of one query, as plain JSON: they are hashed, and may be sent to a worker."""

# Eight bytes of SHA-256: enough that no two units of a data set share a position.
HASHES = 2**64


class MeasureItem(NamedTuple):
    """One item: its queries, its sampling units and its lint flag."""

    id: str
    queries: tuple[QueryArgs, ...]
    units: tuple[str, ...]
    """Unit of the item for each factor of the design."""
    group: str = ""
    """Group, or side of a comparison, that the item belongs to."""
    kind: str = ""
    """Kind of item, if a measure has several."""
    is_flagged: bool = False
    skip_reason: str = ""
    """Why the item cannot be queried; empty if it can."""

    @classmethod
    def from_queries(
        cls, name: str, queries: tuple[QueryArgs, ...] | str, units: tuple[str, ...], group: str
    ) -> MeasureItem:
        """An item with its queries, or with the reason why it has none."""
        if isinstance(queries, str):
            return cls(name, (), units, group, skip_reason=queries)
        return cls(name, queries, units, group)


class QuerySet(NamedTuple):
    """Items whose queries are all of one kind."""

    query_kind: QueryKind
    settings: FrozenDict
    """Settings that all queries share, such as the words of a verbalizer; the table under
    `QUERY_KINDS` lists those of each kind."""
    factors: tuple[str, ...]
    items: tuple[MeasureItem, ...]
    average_answers: bool = False
    """Whether an item's answers are averaged, such as a word over its contexts, not stacked."""
    may_be_empty: bool = False
    """Whether it is no error if none of the items can be read."""
    metadata: FrozenDict = FrozenDict({})
    """Metadata for the metrics that the queries do not contain."""
    notes: tuple[str, ...] = ()
    """Notes on the construction of the items, for reports."""
    population: int | None = None
    """Number of items in the data set, queried or not; None if all are listed here."""


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
