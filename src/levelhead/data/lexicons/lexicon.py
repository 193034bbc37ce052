"""Lexicons: the words of groups, paired by meaning, and the words they may be associated with.

A lexicon is a TOML file with its source, its licence and a line on what it cannot tell. Group names
come from the file, never from code.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from pydantic import Field, ValidationError, model_validator

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.counterfactuals.swap import Swapped

Kind = Literal["pronoun", "title", "person", "kinship", "role", "adjective", "name"]
Role = Literal["subject", "object", "possessive determiner", "possessive pronoun", "reflexive"]


@final
@dataclass(frozen=True)
class Term:
    """One meaning, and each group's word for it."""

    kind: str
    words: tuple[tuple[str, str], ...]
    """(group, word), in the order of the lexicon's groups."""
    role: str | None = None
    """What a pronoun does in its sentence."""
    generic: tuple[str, ...] = ()
    """Groups whose word is used for everybody, and so marks no group."""

    def word(self, group: str) -> str | None:
        """A group's word for it, if it has one."""
        return dict(self.words).get(group)

    def marks(self, group: str) -> bool:
        """Whether the group's word tells the group."""
        return self.word(group) is not None and group not in self.generic


@final
@dataclass(frozen=True)
class Side:
    """One side of a contrast, and the group that common opinion joins it with."""

    name: str
    leans: str | None
    words: tuple[str, ...]


@final
@dataclass(frozen=True)
class Targets:
    """A contrast whose association with groups can be measured."""

    name: str
    about: str
    sides: tuple[Side, ...]

    def side(self, name: str) -> tuple[str, ...]:
        """The words of one side."""
        for side in self.sides:
            if side.name == name:
                return side.words
        raise UnknownName("side", name, [side.name for side in self.sides])


@final
@dataclass(frozen=True)
class Lexicon:
    """Words of groups, paired by meaning. `lexicon` reads it."""

    name: str
    language: str
    groups: tuple[str, ...]
    source: str
    licence: str
    limits: str
    sha256: str
    terms: tuple[Term, ...] = field(repr=False)
    placebos: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = field(repr=False)
    """(group, pairs): words of one group that may stand for each other as a control."""
    families: tuple[Targets, ...] = field(repr=False)

    def __hash__(self) -> int:
        return hash(self.sha256)  # of the file; all else would be hashed at every swap

    def two(self, groups: Sequence[str] | None = None) -> tuple[str, str]:
        """The two groups that are compared: those named, or the first two of the file."""
        chosen = self.groups[:2] if groups is None else groups
        for group in chosen:
            self._check(group)
        if len(chosen) == 2 and chosen[0] == chosen[1]:
            raise LevelheadError(f"{chosen[0]} twice", mend="name two groups, or use placebo")
        if len(chosen) != 2:
            raise LevelheadError(
                f"{len(chosen)} groups where two are compared: {', '.join(chosen)}",
                mend=f"name two of {', '.join(self.groups)}; for all pairs, groups=all on the "
                "command line or levelhead.every_pair",
            )
        return chosen[0], chosen[1]

    def words(self, group: str) -> tuple[str, ...]:
        """The words that mark a group, each once, in the order of the file."""
        self._check(group)
        found = (term.word(group) for term in self.terms if term.marks(group))
        return tuple(dict.fromkeys(word for word in found if word is not None))

    def pairs(self, first: str, second: str) -> tuple[tuple[str, str], ...]:
        """Both groups' words for each meaning they share, each pair once."""
        self._check(first)
        self._check(second)
        found = (
            (term.word(first), term.word(second))
            for term in self.terms
            if term.marks(first) and term.marks(second)
        )
        return tuple(dict.fromkeys((a, b) for a, b in found if a is not None and b is not None))

    def targets(self, name: str) -> Targets:
        """A contrast, by name."""
        for family in self.families:
            if family.name == name:
                return family
        raise UnknownName("family of targets", name, [family.name for family in self.families])

    def swap(self, text: str, *, groups: tuple[str, str] | None = None) -> Swapped:
        """The text with the words of two groups exchanged; see `data.counterfactuals.swap`."""
        from levelhead.data.counterfactuals.swap import swap

        return swap(text, self, groups=groups)

    def groups_of(self, word: str) -> tuple[str, ...]:
        """The groups a word marks; none if it is not in the lexicon."""
        return self._groups_of.get(word.casefold(), ())

    @cached_property
    def _groups_of(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for group in self.groups:
            for word in self.words(group):
                key = word.casefold()
                found[key] = (*found.get(key, ()), group)
        return found

    def _check(self, group: str) -> None:
        if group not in self.groups:
            raise UnknownName("group", group, self.groups)


def lexicon(name: str | os.PathLike[str]) -> Lexicon:
    """A lexicon that ships with levelhead, by name, or one of your own, by path.

    >>> gender = lexicon("gender-en")
    >>> gender.pairs("female", "male")[5:8]
    (('Ms', 'Mr'), ('Mrs', 'Mr'), ('Miss', 'Mr'))
    """
    text = os.fspath(name)
    path = Path(text).expanduser()
    if path.suffix == ".toml" or path.is_file():
        try:
            return parsed(path.read_bytes(), str(path))
        except OSError as error:
            raise LevelheadError(f"cannot read {path}: {error}", mend="check the path") from None
    if text not in shipped():
        raise UnknownName("lexicon", text, shipped())
    return parsed(files("levelhead.data").joinpath("lexicons", f"{text}.toml").read_bytes(), text)


def shipped() -> tuple[str, ...]:
    """Names of the lexicons that ship with levelhead."""
    folder = files("levelhead.data").joinpath("lexicons")
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in folder.iterdir()
            if entry.name.endswith(".toml")
        )
    )


def parsed(data: bytes, name: str) -> Lexicon:
    """A lexicon from the bytes of its file; every fault says where it is."""
    try:
        file = _File.model_validate(tomllib.loads(data.decode()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise LevelheadError(
            f"{name}: {where or 'the file'}: {first['msg']}",
            mend="see the lexicon gender-en for how a lexicon is written",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LevelheadError(f"{name} is no TOML: {error}", mend="correct it there") from None
    return Lexicon(
        name=file.name,
        language=file.language,
        groups=tuple(file.groups),
        source=file.source,
        licence=file.licence,
        limits=" ".join(file.limits.split()),
        sha256=hashlib.sha256(data).hexdigest(),
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
            Targets(
                key,
                family.about,
                tuple(Side(k, side.leans, tuple(side.words)) for k, side in family.sides.items()),
            )
            for key, family in file.targets.items()
        ),
    )


class _Strict(Record):
    """TOML has lists, not tuples; an unknown key is an error."""

    model_config = Record.model_config | {"strict": False}


class _Terms(_Strict):
    kind: Kind
    generic: list[str] = Field(default_factory=list)
    rows: list[dict[str, str]] = Field(min_length=1)

    def check(self, groups: list[str]) -> None:
        """Raise unless every row pairs words of known groups."""
        for row in self.rows:
            if unknown := set(row) - set(groups) - {"role", "generic"}:
                raise ValueError(f"{sorted(unknown)[0]!r} in {row} is no group")
            if len(set(row) & set(groups)) < 2:
                raise ValueError(f"{row} pairs nothing: a row has words of two groups")
            if any(not word.strip() for word in row.values()):
                raise ValueError(f"{row} holds an empty word")
            if strange := {*self.generic, row.get("generic", groups[0])} - set(groups):
                raise ValueError(f"generic names {sorted(strange)[0]!r}, which is no group")


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
    terms: list[_Terms] = Field(min_length=1)
    placebo: list[_Placebo] = Field(default_factory=list)
    targets: dict[str, _Targets] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_fit(self) -> _File:
        if len(set(self.groups)) < len(self.groups):
            raise ValueError("a group is named twice")
        for block in self.terms:
            block.check(self.groups)
        for placebo in self.placebo:
            if placebo.group not in self.groups:
                raise ValueError(f"placebo for {placebo.group!r}, which is no group")
        for name, family in self.targets.items():
            for side in family.sides.values():
                if side.leans is not None and side.leans not in self.groups:
                    raise ValueError(f"targets.{name} leans to {side.leans!r}, which is no group")
        return self
