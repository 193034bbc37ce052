"""Items and query sets: the queries of a measure as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.frozen import FrozenDict

if TYPE_CHECKING:
    from levelhead.core.canonical_json import Json

# The names are part of task hashes: renaming one invalidates all stored responses.
QueryKind = Literal["embed", "follows", "classify", "rate", "fill", "put", "top", "score", "sample"]
ItemField = Literal["group", "kind"]
QueryArgs = tuple["Json", ...]
"""Arguments of one query, as plain JSON: they are hashed, and may be sent to a worker."""


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


class QuerySet(NamedTuple):
    """Items whose queries are all of one kind."""

    query_kind: QueryKind
    settings: FrozenDict
    """Settings that all queries share, such as the words of a verbalizer or a pooling."""
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
