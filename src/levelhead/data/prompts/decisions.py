"""Decisions about a person, and names of applicants."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import NotMeasurableError
from levelhead.data.catalog.datasets import dataset
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.data.records import WordSets

if TYPE_CHECKING:
    from levelhead.data.lexicons.lexicon import Lexicon

NameGender = Literal["both", "women", "men"]
NAME_GROUPS = {"white": "W", "black": "B", "hispanic": "H", "asian": "A"}
"""Groups of names, and their signs in the published files."""


class Scenario(NamedTuple):
    """A decision with "yes" in a person's favour."""

    name: str
    text: str
    person: str
    """Subject of a sentence about the person."""
    question: str
    refusal: str
    """The opposite question: "yes" is against the person."""
    pro: str
    """A fact that speaks for the person."""
    con: str
    """A fact that speaks against the person."""


class ApplicantName(NamedTuple):
    """A full name and the group that it suggests."""

    name: str
    group: str
    gender: str


@cache
def load_scenarios() -> tuple[Scenario, ...]:
    """Load the decisions that levelhead includes."""
    text = files("levelhead.data").joinpath("decisions.toml").read_text("utf-8")
    return tuple(Scenario(**row) for row in tomllib.loads(text)["scenario"])


def describe_groups(lexicon: Lexicon, first: str, second: str) -> tuple[str, str]:
    """What a person of each group is said to be, from the first fitting row of a lexicon.

    Adjectives come first ("Black"), then words for a person ("a woman").

    Args:
        lexicon: the lexicon.
        first: first group.
        second: second group.
    """
    for kind in ("adjective", "person"):
        for term in lexicon.terms:
            words = (term.word(first), term.word(second))
            is_marked = term.is_marker_of(first) and term.is_marker_of(second)
            if term.kind == kind and is_marked and words[0] and words[1]:
                if kind == "adjective":
                    return words[0], words[1]
                return (
                    f"{indefinite_article(words[0])} {words[0]}",
                    f"{indefinite_article(words[1])} {words[1]}",
                )
    raise NotMeasurableError(
        f"{lexicon.name} has no adjective or word for a person of {first} and {second}",
        hint="give descriptions, such as 'Deaf' and 'hearing'",
    )


def load_names(gender: NameGender) -> tuple[ApplicantName, ...]:
    """Load the names of Bloomberg's audit (Yin et al. 2024), in ordinary spelling.

    Args:
        gender: names of women, of men, or both.
    """
    parts = ("women", "men") if gender == "both" else (gender,)
    group_of = {sign: group for group, sign in NAME_GROUPS.items()}
    return tuple(
        ApplicantName(name.title(), group_of[sign], part)
        for part in parts
        for row in dataset("bloomberg-names").records(part, WordSets)
        for _, sign, names in row.sets
        for name in names
    )
