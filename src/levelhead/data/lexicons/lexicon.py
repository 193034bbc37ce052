"""Lexicons: words of groups, paired by meaning, and target words of stereotypes.

A lexicon is a TOML file with its source, its licence and its limitations. Group names come from the
file, never from code.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from pydantic import Field, ValidationError, model_validator

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.results import Record
from levelhead.core.toml import parse_toml
from levelhead.data.counterfactuals.agreeing_swap import PersonWord, swap_with_agreement
from levelhead.data.counterfactuals.grammar import Grammar, parse_grammar
from levelhead.data.counterfactuals.replacement import (
    Replacement,
    ReplacementTable,
    entry_key,
    replace_words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.resources.abc import Traversable

    from levelhead.data.counterfactuals.replacement import SwapResult

TermKind = Literal["pronoun", "title", "person", "kinship", "role", "adjective", "name"]


@final
@dataclass(frozen=True)
class Term:
    """One meaning, with the word of each group."""

    kind: str
    words: tuple[tuple[str, str], ...]
    """(group, word), in the order of the lexicon's groups."""
    role: str | None = None
    """Grammatical role of a pronoun."""
    generic: tuple[str, ...] = ()
    """Groups whose word is used for all people and therefore marks no group."""

    def word(self, group: str) -> str | None:
        """Return the word of a group; None if it has none."""
        return dict(self.words).get(group)

    def is_marker_of(self, group: str) -> bool:
        """Return whether the word of a group marks this group."""
        return self.word(group) is not None and group not in self.generic


@final
@dataclass(frozen=True)
class Side:
    """One side of a contrast, with the group that stereotypes associate with it."""

    name: str
    stereotyped_group: str | None
    words: tuple[str, ...]


@final
@dataclass(frozen=True)
class TargetFamily:
    """A contrast whose association with groups can be measured."""

    name: str
    description: str
    sides: tuple[Side, ...]

    def side(self, name: str) -> tuple[str, ...]:
        """Return the words of one side, by name."""
        for side in self.sides:
            if side.name == name:
                return side.words
        raise UnknownNameError("side", name, [side.name for side in self.sides])


@final
@dataclass(frozen=True)
class Lexicon:
    """Words of groups, paired by meaning. `lexicon` reads one from a file."""

    name: str
    language: str
    groups: tuple[str, ...]
    source: str
    licence: str
    limits: str
    sha256: str
    terms: tuple[Term, ...] = field(repr=False)
    placebos: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = field(repr=False)
    """(group, pairs): words of one group that replace each other in a control."""
    families: tuple[TargetFamily, ...] = field(repr=False)
    grammar: Grammar | None = field(default=None, repr=False, compare=False)
    """What agrees with the words, for swaps; None: the rules of English pronouns."""

    def __hash__(self) -> int:
        # Only the hash of the file: hashing all fields at every swap would be slow.
        return hash(self.sha256)

    def resolve_group_pair(self, groups: Sequence[str] | None = None) -> tuple[str, str]:
        """Return the two compared groups: the given ones, or the first two of the file.

        Args:
            groups: two groups of the lexicon; None for the first two.
        """
        selected = self.groups[:2] if groups is None else groups
        for group in selected:
            self._check_group(group)
        if len(selected) == 2 and selected[0] == selected[1]:
            raise LevelheadError(
                f"the group {selected[0]} is given twice", hint="name two groups, or use placebo"
            )
        if len(selected) != 2:
            raise LevelheadError(
                f"{len(selected)} groups where two are compared: {', '.join(selected)}",
                hint=f"name two of {', '.join(self.groups)}; for all pairs, groups=all on the "
                "command line or levelhead.every_pair",
            )
        return selected[0], selected[1]

    def words(self, group: str) -> tuple[str, ...]:
        """Return the words that mark a group, each once, in the order of the file."""
        self._check_group(group)
        candidates = (term.word(group) for term in self.terms if term.is_marker_of(group))
        return tuple(dict.fromkeys(word for word in candidates if word is not None))

    def pairs(self, first: str, second: str) -> tuple[tuple[str, str], ...]:
        """Return the word pairs of two groups for all shared meanings, each pair once.

        Args:
            first: first group.
            second: second group.
        """
        self._check_group(first)
        self._check_group(second)
        candidates = (
            (term.word(first), term.word(second))
            for term in self.terms
            if term.is_marker_of(first) and term.is_marker_of(second)
        )
        return tuple(
            dict.fromkeys((a, b) for a, b in candidates if a is not None and b is not None)
        )

    def targets(self, name: str) -> TargetFamily:
        """Return a contrast, by name."""
        for family in self.families:
            if family.name == name:
                return family
        raise UnknownNameError("family of targets", name, [family.name for family in self.families])

    def swap(self, text: str, *, groups: tuple[str, str] | None = None) -> SwapResult:
        """Exchange the words of two groups in a text; see `data.counterfactuals.swap`.

        Args:
            text: any text.
            groups: the two groups; by default the first two of the lexicon.
        """
        first, second = self.resolve_group_pair(groups)
        if self.grammar is not None:
            return swap_with_agreement(text, _person_words(self, first, second), self.grammar)
        return replace_words(text, _cross_group_table(self, first, second))

    def groups_of(self, word: str) -> tuple[str, ...]:
        """Return the groups that a word marks; empty if it is not in the lexicon."""
        return self._groups_by_word.get(word.casefold(), ())

    @cached_property
    def _groups_by_word(self) -> Mapping[str, tuple[str, ...]]:
        groups_by_word: dict[str, tuple[str, ...]] = {}
        for group in self.groups:
            for word in self.words(group):
                key = word.casefold()
                groups_by_word[key] = (*groups_by_word.get(key, ()), group)
        return groups_by_word

    def _check_group(self, group: str) -> None:
        if group not in self.groups:
            raise UnknownNameError("group", group, self.groups)


@cache
def _person_words(
    lexicon: Lexicon, first: str, second: str
) -> Mapping[str, tuple[PersonWord, ...]]:
    """Counterparts of the words of both groups; several where cases differ."""
    words: dict[str, dict[PersonWord, None]] = {}
    for term in lexicon.terms:
        for source_group, target_group in ((first, second), (second, first)):
            old, new = term.word(source_group), term.word(target_group)
            if old is not None and new is not None and term.is_marker_of(source_group):
                row = PersonWord(source_group, new, term.role or "")
                words.setdefault(old.lower(), {})[row] = None
    return {word: tuple(options) for word, options in words.items()}


# Mining swaps millions of sentences with one table.
@cache
def _cross_group_table(lexicon: Lexicon, first: str, second: str) -> ReplacementTable:
    """Build the table of words of both groups with their replacements."""
    entries_by_key: dict[tuple[str, ...], list[Replacement]] = {}
    for term in lexicon.terms:
        for source_group, target_group in ((first, second), (second, first)):
            old, new = term.word(source_group), term.word(target_group)
            if old is None or new is None or not term.is_marker_of(source_group):
                continue
            entries = entries_by_key.setdefault(entry_key(old), [])
            # The first row of a word decides, except that a pronoun may have several roles.
            if not entries or (term.role and new not in [entry.word for entry in entries]):
                title = term.kind == "title" and old[0].isupper()
                entries.append(Replacement(new, term.role, title, term.kind))
    return ReplacementTable.from_entries(
        {key: tuple(entries) for key, entries in entries_by_key.items()}
    )


def lexicon(name: str | os.PathLike[str]) -> Lexicon:
    """Read a lexicon of levelhead, by name, or a user's lexicon, by path.

    >>> gender = lexicon("gender-en")
    >>> gender.pairs("female", "male")[5:8]
    (('Ms', 'Mr'), ('Mrs', 'Mr'), ('Miss', 'Mr'))

    Args:
        name: name or path of a lexicon.
    """
    text = os.fspath(name)
    path = Path(text).expanduser()
    # A missing .toml file should be reported as a file, not as an unknown name.
    if path.suffix == ".toml" or path.is_file():
        try:
            return parse_lexicon(path.read_bytes(), str(path), folder=path.parent)
        except OSError as error:
            raise LevelheadError(f"cannot read {path}: {error}", hint="check the path") from None
    shipped = _shipped_lexicon_files()
    if text not in shipped:
        raise UnknownNameError("lexicon", text, shipped)
    code = text.rpartition("-")[2]
    folder = files("levelhead.data").joinpath("languages", code)
    return parse_lexicon(shipped[text].read_bytes(), text, folder=folder)


def list_shipped_lexicons() -> tuple[str, ...]:
    """Return the names of the lexicons that levelhead includes."""
    return tuple(sorted(_shipped_lexicon_files()))


@cache
def _shipped_lexicon_files() -> dict[str, Traversable]:
    """Files by name: English ones, and those in the folders of other languages."""
    root = files("levelhead.data")
    folders = [root.joinpath("lexicons")]
    folders += [entry for entry in root.joinpath("languages").iterdir() if entry.is_dir()]
    return {
        entry.name.removesuffix(".toml"): entry
        for folder in folders
        for entry in folder.iterdir()
        # Names end in the language, such as religion-fr; other files of a language do not.
        if entry.name.endswith(".toml") and "-" in entry.name
    }


def parse_lexicon(data: bytes, name: str, *, folder: Traversable | None = None) -> Lexicon:
    """Parse a lexicon; errors state the position of a fault.

    Args:
        data: bytes of the TOML file.
        name: name for errors.
        folder: where the file's table of agreement is.
    """
    try:
        file = _File.model_validate(parse_toml(data.decode(), name, hint="correct the file"))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise LevelheadError(
            f"{name}: {location or 'the file'}: {first['msg']}",
            hint="see the lexicon gender-en for the format",
        ) from None
    except UnicodeDecodeError as error:
        raise LevelheadError(f"{name} is no TOML: {error}", hint="correct the file") from None
    grammar, hashed = None, data
    if file.agreement:
        if (
            folder is None
            or "/" in file.agreement
            or not (path := folder.joinpath(file.agreement)).is_file()
        ):
            raise LevelheadError(
                f"{name}: there is no table of agreement {file.agreement!r} in its folder",
                hint="put the file into the folder of the lexicon",
            )
        grammar = parse_grammar(path.read_bytes(), file.agreement)
        hashed = data + path.read_bytes()
    return Lexicon(
        name=file.name,
        language=file.language,
        groups=tuple(file.groups),
        source=file.source,
        licence=file.licence,
        limits=" ".join(file.limits.split()),
        # The hash of the bytes, so that every change of the file changes provenance.
        sha256=hashlib.sha256(hashed).hexdigest(),
        grammar=grammar,
        terms=tuple(
            Term(
                block.kind,
                tuple((group, row[group]) for group in file.groups if group in row),
                row.get("role"),
                (*block.generic, *(part for part in (row.get("generic"),) if part)),
            )
            for block in file.terms
            for row in block.rows
        ),
        placebos=tuple(
            (block.group, tuple((old, new) for old, new in block.rows)) for block in file.placebo
        ),
        families=tuple(
            TargetFamily(
                key,
                family.about,
                tuple(
                    Side(side_name, side.leans, tuple(side.words))
                    for side_name, side in family.sides.items()
                ),
            )
            for key, family in file.targets.items()
        ),
    )


class _Strict(Record):
    """A block of the TOML file; unknown keys are errors, and lists may become tuples."""

    # Record is strict, and TOML has arrays but no tuples.
    model_config = Record.model_config | {"strict": False}


class _Terms(_Strict):
    kind: TermKind
    generic: list[str] = Field(default_factory=list)
    rows: list[dict[str, str]] = Field(min_length=1)

    def check(self, groups: list[str]) -> None:
        """Raise unless every row pairs words of known groups."""
        for row in self.rows:
            if unknown := set(row) - set(groups) - {"role", "generic"}:
                raise ValueError(f"{sorted(unknown)[0]!r} in {row} is no group")
            # A row with one word has no counterpart and cannot be swapped.
            if len(set(row) & set(groups)) < 2:
                raise ValueError(f"{row} has words of fewer than two groups")
            if any(not word.strip() for word in row.values()):
                raise ValueError(f"{row} contains an empty word")
            if unknown_generic := {*self.generic, row.get("generic", groups[0])} - set(groups):
                raise ValueError(f"generic names {sorted(unknown_generic)[0]!r}, which is no group")


class _Placebo(_Strict):
    group: str
    rows: list[tuple[str, str]] = Field(min_length=1)


class _Side(_Strict):
    leans: str | None = None
    words: list[str] = Field(min_length=1)


class _Targets(_Strict):
    about: str
    sides: dict[str, _Side] = Field(min_length=2)


class _File(_Strict):
    name: str = Field(min_length=1)
    language: str
    groups: list[str] = Field(min_length=2)
    source: str = Field(min_length=1)
    licence: str = Field(min_length=1)
    limits: str = Field(min_length=1)
    agreement: str = ""
    terms: list[_Terms] = Field(min_length=1)
    placebo: list[_Placebo] = Field(default_factory=list)
    targets: dict[str, _Targets] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_fit(self) -> _File:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError("a group is listed twice")
        for block in self.terms:
            block.check(self.groups)
        for placebo in self.placebo:
            if placebo.group not in self.groups:
                raise ValueError(f"placebo for {placebo.group!r}, which is no group")
        for name, family in self.targets.items():
            for side in family.sides.values():
                if side.leans is not None and side.leans not in self.groups:
                    raise ValueError(f"targets.{name} names {side.leans!r}, which is no group")
        return self
