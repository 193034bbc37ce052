"""A language: what it says of persons, what it cannot show, and which data sets measures read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.toml import parse_toml
from levelhead.data.catalog.datasets import dataset
from levelhead.data.lexicons.lexicon import Side, TargetFamily

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from levelhead.data.catalog.datasets import Dataset

ENGLISH = "en"
ROW_FILE, PERSONS_FILE = "language.toml", "persons.toml"
ROW_KEYS = frozenset({"code", "name", "grammatical_gender", "cannot", "data"})
ADJECTIVE = "{adjective}"


class PersonSentences(NamedTuple):
    """Sentences about a person, and families of adjectives."""

    description: str
    """Noun phrase for a person with an adjective of the group, such as "{adjective} person"."""
    templates: tuple[str, ...]
    families: tuple[TargetFamily, ...]

    def family(self, name: str) -> TargetFamily:
        """Return a family of adjectives, by name."""
        for family in self.families:
            if family.name == name:
                return family
        raise UnknownNameError("family of adjectives", name, [row.name for row in self.families])


@final
@dataclass(frozen=True)
class LanguageEntry:
    """A language by its row and its folder."""

    code: str
    name: str
    grammatical_gender: str
    """Which words change with the grammatical gender of a person."""
    cannot: str
    """What cannot be measured in the language, and why."""
    data: tuple[tuple[str, str], ...]
    """For every measure with data in the language, "data set:part"."""
    folder: Traversable

    def source(self, measure: str) -> tuple[Dataset, str]:
        """Return the data set and the part that a measure reads in this language.

        Args:
            measure: name of the measure.
        """
        for name, text in self.data:
            if name == measure:
                dataset_name, _, part = text.partition(":")
                return dataset(dataset_name), part
        raise LevelheadError(
            f"{measure} has no data in {self.name}",
            hint="`levelhead data list --language` shows what there is; or give your own items",
        )

    @property
    def default_lexicon(self) -> str:
        """Name, or path, of its lexicon of religions."""
        name = f"religion-{self.code}"
        return name if self.code in languages() else str(self.folder.joinpath(f"{name}.toml"))

    @cached_property
    def persons(self) -> PersonSentences:
        """Its sentences about a person."""
        return _parse_persons(self.folder.joinpath(PERSONS_FILE))


def language(code: str) -> LanguageEntry:
    """Return a language of levelhead by its code, or a user's language by the path of its folder.

    >>> language("fr").persons.description
    'personne {adjective}'

    Args:
        code: code, such as "fr", or path of a folder with language.toml and persons.toml.
    """
    if code in languages():
        return languages()[code]
    folder = Path(code).expanduser()
    if folder.is_dir():
        return _make_language(_read_toml(folder / ROW_FILE), folder)
    raise UnknownNameError("language", code, languages())


@cache
def languages() -> dict[str, LanguageEntry]:
    """Return the languages that levelhead includes, by code."""
    root = files("levelhead.data").joinpath("languages")
    rows = _read_toml(root.joinpath("languages.toml"))["language"]
    return {row["code"]: _make_language(row, root.joinpath(row["code"])) for row in rows}


_Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    # Strict: a text in the place of a list would be taken for a list of letters.
    model_config = ConfigDict(strict=True)


class _Row(_Strict):
    code: str = Field(pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")
    """Checked, because names of files are made of it."""
    name: _Text
    grammatical_gender: _Text
    cannot: _Text
    data: dict[str, str]


class _Side(_Strict):
    words: list[_Text] = Field(min_length=1)


class _Family(_Strict):
    about: str
    sides: dict[str, _Side]


class _Persons(_Strict):
    description: str
    templates: list[_Text] = Field(min_length=1)
    targets: dict[str, _Family]


_Parsed = TypeVar("_Parsed", bound=_Strict)


def _validate(schema: type[_Parsed], content: dict[str, Any], path: Traversable) -> _Parsed:
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise LevelheadError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            hint="see languages/languages.toml and languages/en/persons.toml for the format",
        ) from None


def _make_language(row: dict[str, Any], folder: Traversable) -> LanguageEntry:
    if set(row) != ROW_KEYS:
        raise LevelheadError(
            f"the row of a language has the keys {', '.join(sorted(row))}",
            hint=f"give {', '.join(sorted(ROW_KEYS))}",
        )
    entry = _validate(_Row, row, folder)
    return LanguageEntry(
        entry.code,
        entry.name,
        entry.grammatical_gender,
        " ".join(entry.cannot.split()),
        tuple(sorted(entry.data.items())),
        folder,
    )


def _parse_persons(path: Traversable) -> PersonSentences:
    content = _validate(_Persons, _read_toml(path), path)
    sentences = PersonSentences(
        content.description,
        tuple(content.templates),
        tuple(
            TargetFamily(
                name,
                family.about,
                tuple(Side(side, None, tuple(row.words)) for side, row in family.sides.items()),
            )
            for name, family in content.targets.items()
        ),
    )
    if sentences.description.count(ADJECTIVE) != 1:
        raise LevelheadError(
            f"{path}: the description {sentences.description!r} has no {ADJECTIVE}",
            hint=f"write for example '{ADJECTIVE} person'",
        )
    return sentences


def _read_toml(path: Traversable) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="check the file") from None
    return parse_toml(text, path, hint="check the file")
