"""Agreement in a language, as a table: which words change with the grammatical gender of a person.

A lexicon names its table (`agreement = "agreement.toml"`), a file in the same folder. It lists

- `phrase`: words before a noun (articles, possessives, prepositions joined with an article) with
  the form of each group, and their case where the language has cases;
- `suffixes`: endings of adjectives and participles after a verb such as "is" (`copulas`), and of
  names of jobs (`role_suffixes`);
- `context`: words with several readings, and the words after them that decide;
- what is skipped between a person and the verb, which words never change, and forms that depend on
  the next letter ("le" + "homme" = "l'homme").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

from pydantic import Field, ValidationError

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.core.toml import parse_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

CASE = "case"


class _Block(Record):
    model_config = Record.model_config | {"strict": False}


class Variant(_Block):
    """A form of a word before certain letters: "le" before a vowel is "l'"."""

    word: str
    before: str
    """Pattern of the beginning of the next word."""
    form: str


class Context(_Block):
    """A reading of an ambiguous word, decided by its neighbours."""

    word: str
    new: str | None = None
    """Its counterpart; None: it stands for no person and stays."""
    after: str
    """Pattern of the text after the word."""
    before: str = ""
    """Pattern of the end of the text before the word."""


class _File(_Block):
    elided: list[str] = Field(default_factory=list)
    phrase: list[dict[str, str]] = Field(default_factory=list)
    cases: dict[str, list[str]] = Field(default_factory=dict)
    clause_starts: list[str] = Field(default_factory=list)
    copulas: list[str] = Field(default_factory=list)
    skipped: list[str] = Field(default_factory=list)
    auxiliaries: list[str] = Field(default_factory=list)
    """Skipped before a copula only: "a" in "a été"."""
    adjective: str = "(?!)"
    """Pattern of what looks like an adjective right after a person."""
    suffixes: list[dict[str, str]] = Field(default_factory=list)
    role_suffixes: list[dict[str, str]] = Field(default_factory=list)
    role_before: list[str] = Field(default_factory=list)
    """Words after which the name of a job is that of the subject."""
    unclear: list[str] = Field(default_factory=list)
    """Words that may stand for a person, and change with it."""
    invariable: str = "(?!)"
    """Pattern of words that end like those that change, and do not."""
    variants: list[Variant] = Field(default_factory=list)
    context: list[Context] = Field(default_factory=list)


@final
@dataclass(frozen=True, eq=False)
class Grammar:
    """The table of a language."""

    rows: _File

    @cached_property
    def words(self) -> re.Pattern[str]:
        """Pattern of the words and signs of a text; elided articles are words of their own."""
        elided = "|".join(map(re.escape, sorted(self.rows.elided, key=len, reverse=True)))
        first = rf"(?i:\b(?:{elided}))(?=\w)|" if elided else ""
        return re.compile(rf"{first}\w+(?:-\w+)*|[^\w\s]")

    @cached_property
    def copulas(self) -> frozenset[str]:
        """Verbs after which an adjective agrees with the person before them."""
        return frozenset(self.rows.copulas)

    @cached_property
    def skipped(self) -> frozenset[str]:
        """Words between a person and a copula, or a copula and an adjective."""
        return frozenset(self.rows.skipped)

    @cached_property
    def _phrase(self) -> Mapping[tuple[str, str], tuple[tuple[str, str], ...]]:
        forms: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for row in self.rows.phrase:
            case = row.get(CASE, "")
            groups = {group: word for group, word in row.items() if group != CASE}
            for group, word in groups.items():
                for other, new in groups.items():
                    if other != group:
                        forms.setdefault((group, word), []).append((new, case))
        return {key: tuple(dict.fromkeys(options)) for key, options in forms.items()}

    def phrase_forms(self, word: str, group: str) -> tuple[tuple[str, str], ...]:
        """(form of the other group, case) of a word before a noun of a group; () if it is none."""
        return self._phrase.get((group, word), ())

    def other_ending(self, word: str, group: str, *, role: bool = False) -> str | None:
        """A word with the ending of the other group; None if it has none of the group's.

        Args:
            word: an adjective or a participle, or the name of a job.
            group: group whose ending it may have.
            role: whether it is the name of a job.
        """
        if self.is_invariable(word):
            return None
        for row in self.rows.role_suffixes if role else self.rows.suffixes:
            ending = row[group]
            (new,) = (value for key, value in row.items() if key != group)
            if word.endswith(ending) and len(word) > len(ending) + 1:
                return word[: len(word) - len(ending)] + new
        return None

    def is_invariable(self, word: str) -> bool:
        """Whether a word never changes with a person's gender."""
        return re.search(self.rows.invariable, word.lower()) is not None

    def has_ending(self, word: str) -> bool:
        """Whether a word has an ending of some group."""
        groups = {group for row in self.rows.suffixes for group in row}
        return any(self.other_ending(word, group) is not None for group in groups)

    def fit_next(self, word: str, following: str) -> str:
        """The form of a word before the next one."""
        for row in self.rows.variants:
            if row.word == word.lower() and re.match(row.before, following.lower()):
                return row.form
        return word


def parse_grammar(data: bytes, name: str) -> Grammar:
    """Parse a table of agreement.

    Args:
        data: bytes of the TOML file.
        name: name for errors.
    """
    try:
        grammar = Grammar(_File.model_validate(parse_toml(data.decode(), name, hint="correct it")))
        patterns = [
            grammar.rows.invariable,
            grammar.rows.adjective,
            *(row.before for row in grammar.rows.variants),
        ]
        patterns += [row.after for row in grammar.rows.context]
        for pattern in patterns:
            re.compile(pattern)
    except (ValidationError, UnicodeDecodeError, re.error) as error:
        raise LevelheadError(
            f"{name} is no table of agreement: {str(error).splitlines()[0]}",
            hint="see languages/es/agreement.toml for the format",
        ) from None
    return grammar
