"""What is asked of a model: items, each a few questions of one verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.frozen import Frozen

if TYPE_CHECKING:
    from levelhead.core.canonical_json import Json

Verb = Literal["embed", "follows", "classify", "rate", "fill", "put", "top", "score", "sample"]
Ask = tuple["Json", ...]
"""The arguments of one question, as plain JSON: they are hashed, and may travel to a worker."""


class Item(NamedTuple):
    """One thing that is asked, what was sampled with it, and whether the linter flagged it."""

    id: str
    asks: tuple[Ask, ...]
    units: tuple[str, ...]
    """For every factor of the design, the unit the item belongs to."""
    group: str = ""
    """The side of a comparison it is on."""
    kind: str = ""
    """What sort of question it is, where a measure asks several."""
    flagged: bool = False
    cannot: str = ""
    """Why it cannot be asked; empty: it can."""


class Asked(NamedTuple):
    """Items whose questions are all of one verb."""

    verb: Verb
    settings: Frozen
    """What all questions share: the words of a verbalizer, a pooling."""
    factors: tuple[str, ...]
    items: tuple[Item, ...]
    averaged: bool = False
    """An item's answers are averaged (a word over its contexts), not set side by side."""
    optional: bool = False
    """That none of its items can be read is no error."""
    facts: Frozen = Frozen({})
    """What the formulas must know and the questions do not say."""
    notes: tuple[str, ...] = ()
    """What a reader must know of how the items came about."""
    population: int | None = None
    """Items that the data set holds, asked or not; None: as many as are listed here."""
