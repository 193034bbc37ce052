"""Names as signals of groups: each name has a count for every group, so a probability over groups.

A name stands for a perceived group, and often for several: of the people who are called Jordan,
some are women. `NameList` keeps the counts, so that measures can weigh names by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.prompts.decisions import NAME_GROUPS, load_names
from levelhead.data.user_files import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PUBLISHED = "bloomberg-names"
NAME_COLUMN = "name"


class CountedName(NamedTuple):
    """A name and how many people of each group have it."""

    name: str
    counts: tuple[float, ...]


@final
@dataclass(frozen=True)
class NameList:
    """Names with a count for every group."""

    groups: tuple[str, ...]
    names: tuple[CountedName, ...]
    is_counted: bool = True
    """Whether counts are those of people; else names were chosen as typical of one group."""

    @property
    def sha256(self) -> str:
        """Hash of groups, names and counts."""
        return content_hash(
            [list(self.groups), [[row.name, list(row.counts)] for row in self.names]]
        )

    def probabilities(self, groups: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """The probability of each given group for every name: its share of the name's count.

        Shares are not smoothed: they are unbiased for any count, and a prior would move the names
        of few people towards each other.

        Args:
            groups: groups of the list; the others have what is missing from 1.
        """
        columns = self._columns(groups)
        return {
            row.name: tuple(row.counts[column] / sum(row.counts) for column in columns)
            for row in self.names
        }

    def _columns(self, groups: Sequence[str]) -> list[int]:
        for group in groups:
            if group not in self.groups:
                raise UnknownNameError("group of names", group, self.groups)
        return [self.groups.index(group) for group in groups]

    def draw_probabilities(
        self, groups: Sequence[str], n_draws: int, rng: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        """`[draws, groups]` probabilities of every name that its counts allow.

        Draws of a Dirichlet distribution with Jeffreys' prior, 1/2 for every group; none for names
        without counts.

        Args:
            groups: groups of the list.
            n_draws: number of draws.
            rng: random generator.
        """
        if not self.is_counted:
            return {}
        columns = self._columns(groups)
        return {
            row.name: rng.dirichlet(np.array(row.counts) + 0.5, n_draws)[:, columns]
            for row in self.names
        }

    def draw_groups(
        self, groups: Sequence[str], rng: np.random.Generator
    ) -> dict[str, tuple[str, ...]]:
        """Draw one group for every name from its probabilities; names by group, in random order.

        Args:
            groups: groups whose names are kept.
            rng: random generator.
        """
        shares = self.probabilities(groups)
        drawn: dict[str, list[str]] = {group: [] for group in groups}
        edges: NDArray[np.float64] = np.cumsum(list(shares.values()), axis=1)
        numbers = (rng.random(len(edges))[:, None] > edges).sum(1)
        for row in rng.permutation(len(edges)):
            # A number beyond the last edge is one of the other groups.
            if numbers[row] < len(groups):
                drawn[groups[numbers[row]]].append(self.names[row].name)
        return {group: tuple(names) for group, names in drawn.items()}


def read_name_list(source: str) -> NameList:
    """Read a list of names with counts from a file, or the published names of Yin et al. 2024.

    Args:
        source: "bloomberg-names", or a CSV, TSV or JSON Lines file with a column "name" and a
            column of counts for every group.
    """
    if source == PUBLISHED:
        # Chosen by their authors as typical of one group: no counts are published.
        groups = tuple(NAME_GROUPS)
        return NameList(
            groups,
            tuple(
                CountedName(row.name, tuple(float(row.group == group) for group in groups))
                # A name of women and of men is one name.
                for row in {row.name: row for row in load_names("both")}.values()
            ),
            is_counted=False,
        )
    rows = list(read_rows(source))
    groups = tuple(column for column in (rows[0] if rows else {}) if column != NAME_COLUMN)
    if len(groups) < 2 or NAME_COLUMN not in rows[0]:
        raise LevelheadError(
            f"{source} has no names with counts of two groups",
            hint="give a column 'name' and a column of counts for every group",
        )
    names = tuple(_parse_row(source, i, row, groups) for i, row in enumerate(rows, 1))
    if len({row.name for row in names}) < len(names):
        raise LevelheadError(
            f"{source} lists a name twice", hint="add the counts of equal names up"
        )
    return NameList(groups, names)


def _parse_row(
    source: str, number: int, row: dict[str, object], groups: tuple[str, ...]
) -> CountedName:
    name = str(row.get(NAME_COLUMN, "")).strip()
    try:
        counts = tuple(float(str(row[group])) for group in groups)
    except (KeyError, ValueError):
        counts = ()
    is_valid = counts and all(math.isfinite(count) and count >= 0 for count in counts)
    if not name or not is_valid or not sum(counts):
        raise LevelheadError(
            f"row {number} of {source} has no name, or counts that say nothing of its group",
            hint="give a name and counts of 0 or more, not all of them 0",
        )
    return CountedName(name, counts)
