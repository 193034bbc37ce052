"""Measures that compare two groups of a lexicon."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.measures.base import Measure


class LexiconMeasure(Measure):
    """Abstract base class of measures that compare two groups of a lexicon."""

    @property
    @abstractmethod
    def lexicon(self) -> str | Lexicon:
        """The lexicon, or its name; an option of the measure."""

    @property
    @abstractmethod
    def groups(self) -> tuple[str, str] | None:
        """The two compared groups; by default the lexicon's. An option of the measure."""

    @cached_property
    def resolved_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return resolve_lexicon(self.lexicon)

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """The two groups that are compared."""
        return self.resolved_lexicon.resolve_group_pair(self.groups)

    @property
    def lexicon_hash(self) -> dict[str, str]:
        """SHA-256 of the lexicon, by name."""
        return {f"lexicon {self.resolved_lexicon.name}": self.resolved_lexicon.sha256}

    def excluded_groups_note(self) -> tuple[str, ...]:
        """A note if the comparison leaves out groups of the lexicon."""
        # Groups that the user chose need no note: the choice was deliberate.
        if self.groups is not None or not self.compared_groups:
            return ()
        excluded = [
            name for name in self.resolved_lexicon.groups if name not in self.compared_groups
        ]
        note = f"{' and '.join(self.compared_groups)} are compared; not {', '.join(excluded)}"
        return (note,) if excluded else ()
