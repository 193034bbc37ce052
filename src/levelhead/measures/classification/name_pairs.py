"""Texts about {name}: pairs of names of two groups, and placebos of two names of one group.

A group is drawn for every name from its probabilities, so that a name of both groups is of either
in its share. Each text has names of its own as long as there are enough; texts that share them are
one unit, so that resampling units resamples names.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.lexicons.name_lists import read_name_list
from levelhead.measures.group_tables.weighted_groups import describe_signal, require_signal
from levelhead.measures.items import MeasureItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.records import LabelledExample

SLOT = "{name}"
SEED = 0
"""Seed of the drawn groups and pairs: items are a function of the options."""


class NameTrio(NamedTuple):
    """A name, one of the other group, and one of the same group."""

    group: str
    name: str
    other: str
    placebo: str


def draw_trios(
    source: str, groups: tuple[str, str], rng: np.random.Generator
) -> tuple[NameTrio, ...]:
    """Draw disjoint trios of names, alternating between the groups of their first name.

    Args:
        source: as for `read_name_list`.
        groups: the two groups.
        rng: random generator.
    """
    names = read_name_list(source)
    shares = np.array([row for row in names.probabilities(groups).values() if sum(row)])
    require_signal(shares)
    first, second = (list(drawn) for drawn in names.draw_groups(groups, rng).values())
    trios = []
    # Two trios take three names of each group.
    for i in range(0, min(len(first), len(second)) - 2, 3):
        (a, b, c), (d, e, f) = first[i : i + 3], second[i : i + 3]
        trios += [NameTrio(groups[0], a, d, b), NameTrio(groups[1], e, c, f)]
    if len(trios) < 2:
        raise NotMeasurableError(
            f"{len(first)} and {len(second)} names of the two groups were drawn",
            hint="give at least three names of each group",
        )
    return tuple(trios)


def make_name_items(
    texts: Sequence[LabelledExample], source: str, groups: tuple[str, str]
) -> tuple[list[MeasureItem], list[MeasureItem]]:
    """Pairs of texts that differ in the group of the name, and placebos that differ in the name.

    Args:
        texts: texts with {name}; others are dropped.
        source: as for `read_name_list`.
        groups: the two groups.
    """
    if texts and not any(SLOT in text.text for text in texts):
        raise LevelheadError(
            f"no text has {SLOT}", hint=f"write {SLOT} where the name of the person stands"
        )
    rng = np.random.default_rng(SEED)
    trios = cycle(draw_trios(source, groups, rng))
    real: list[MeasureItem] = []
    control: list[MeasureItem] = []
    for text in texts:
        if SLOT not in text.text:
            reason = f"the text has no {SLOT}"
            real.append(
                MeasureItem(text.id, (), (text.id,), groups[0], text.label, skip_reason=reason)
            )
            continue
        trio = next(trios)
        written = [(text.text.replace(SLOT, name),) for name in trio[1:]]
        for items, twin in ((real, written[1]), (control, written[2])):
            items.append(
                MeasureItem(text.id, (written[0], twin), (trio.name,), trio.group, text.label)
            )
    return real, control


def describe_names(source: str, groups: tuple[str, str]) -> str:
    """What the names say of the groups, for a note.

    Args:
        source: as for `read_name_list`.
        groups: the two groups.
    """
    shares = read_name_list(source).probabilities(groups).values()
    return describe_signal(np.array([row for row in shares if sum(row)]))
