"""More than two groups: a measure compares two, so every pair of them is measured."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure


def every_pair(measure: Measure, groups: Sequence[str] | None = None) -> tuple[Measure, ...]:
    """The same measure for every pair of groups; `run` corrects their p-values together (Holm).

    Args:
        measure: one that lets its groups be chosen.
        groups: which; by default all of its lexicon.

    >>> from levelhead.measures.embedding.seat import Seat
    >>> len(every_pair(Seat(lexicon="race-en")))
    6
    """
    lexicon = getattr(measure, "own_lexicon", None)
    if lexicon is None or "groups" not in {field.name for field in fields(measure)}:
        raise LevelheadError(
            f"the groups of {measure.name} are those of its data",
            mend="choose the data instead; seat, nli_gap, counterfactual and the like take groups",
        )
    chosen = lexicon.groups if groups is None else groups
    if len(chosen) < 2:
        raise LevelheadError("there are no two groups", mend="name at least two")
    return tuple(replace(measure, groups=pair) for pair in combinations(chosen, 2))  # type: ignore[call-arg]
