"""Measures of all pairs of groups, for lexicons with more than two groups."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.measures.lexicon_measure import LexiconMeasure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure


def all_group_pairs(measure: Measure, groups: Sequence[str] | None = None) -> tuple[Measure, ...]:
    """Make one measure for every pair of groups; `run_measures` corrects their p-values (Holm).

    Args:
        measure: A measure with the option `groups`.
        groups: Names of the groups; by default all of the measure's lexicon.

    >>> from levelhead.measures.embedding.seat import Seat
    >>> len(all_group_pairs(Seat(lexicon="race-en")))
    6
    """
    # Measures on published pairs have groups that the data fix.
    if not isinstance(measure, LexiconMeasure):
        raise LevelheadError(
            f"the groups of {measure.name} are those of its data",
            hint="choose the data instead; seat, nli_gap, counterfactual and the like take groups",
        )
    selected = measure.resolved_lexicon.groups if groups is None else groups
    if len(selected) < 2:
        raise LevelheadError("there are no two groups", hint="name at least two")
    return tuple(measure.with_options(groups=pair) for pair in combinations(selected, 2))
