"""Descriptions of persons of many groups, and of groups of two crossed attributes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, NotMeasurableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.lexicons.lexicon import Lexicon


def cross_groups(attributes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names of the groups of crossed attributes; the last attribute varies fastest.

    >>> cross_groups([("german", "turkish"), ("female", "male")])
    ('german female', 'german male', 'turkish female', 'turkish male')

    Args:
        attributes: for every attribute, its groups.
    """
    return tuple(" ".join(names) for names in itertools.product(*attributes))


def describe_persons(
    lexicons: Sequence[Lexicon],
    groups: Sequence[Sequence[str]],
    pattern: str = "{adjective} person",
) -> tuple[str, ...]:
    """A noun phrase for a person of every group, in the order of `cross_groups`.

    Attributes with an adjective come first, then the noun of an attribute that has one.

    >>> from levelhead.data.lexicons.lexicon import lexicon
    >>> describe_persons([lexicon("religion-en")], [("muslim", "jewish")])
    ('Muslim person', 'Jewish person')
    >>> both = [lexicon("gender-en"), lexicon("origin-en")]
    >>> describe_persons(both, [("female", "male"), ("german",)])
    ('German woman', 'German man')

    Args:
        lexicons: a lexicon for every attribute.
        groups: for every attribute, its groups.
        pattern: noun phrase with {adjective}, if no attribute has a word for a person.
    """
    adjectives: list[tuple[str, ...] | None] = []
    noun: tuple[int, tuple[str, ...]] | None = None
    for number, (lexicon, names) in enumerate(zip(lexicons, groups, strict=True)):
        row = _first_row(lexicon, names, "adjective")
        # An adjective for each group is preferred, except for an attribute with singular nouns:
        # "a German woman" is ordinary English, "a German female person" is not.
        singular = _singular_nouns(lexicon, names)
        if singular and noun is None:
            noun, row = (number, singular), None
        elif row is None:
            raise NotMeasurableError(
                f"{lexicon.name} has no adjective or word for a person of {', '.join(names)}",
                hint="give descriptions, such as 'Deaf person' and 'hearing person'",
            )
        adjectives.append(row)
    descriptions = []
    for levels in itertools.product(*(range(len(names)) for names in groups)):
        words = " ".join(row[level] for row, level in zip(adjectives, levels, strict=True) if row)
        if noun is None:
            descriptions.append(pattern.replace("{adjective}", words))
        else:
            descriptions.append(f"{words} {noun[1][levels[noun[0]]]}".strip())
    return tuple(descriptions)


def check_descriptions(descriptions: Sequence[str], n_groups: int) -> None:
    """Raise an error unless each group has its own description."""
    if len(descriptions) != n_groups:
        raise LevelheadError(
            f"{len(descriptions)} descriptions for {n_groups} groups",
            hint="give one for each group, with the last attribute varying fastest",
        )
    if repeated := [text for text in descriptions if list(descriptions).count(text) > 1]:
        raise LevelheadError(
            f"two groups have the same description {repeated[0]!r}",
            hint="give different descriptions",
        )


def _first_row(lexicon: Lexicon, groups: Sequence[str], kind: str) -> tuple[str, ...] | None:
    for term in lexicon.terms:
        words = tuple(term.word(group) for group in groups)
        if term.kind == kind and all(words) and all(map(term.is_marker_of, groups)):
            return tuple(filter(None, words))
    return None


def _singular_nouns(lexicon: Lexicon, groups: Sequence[str]) -> tuple[str, ...] | None:
    """The first words for one person of each group; None if the first row is a plural."""
    row = _first_row(lexicon, groups, "person")
    # Rows of nationalities and religions begin with plurals and institutions: "Germans", "church".
    # Words for one person are lower case and do not end in a plural "s".
    if row is None or any(word[0].isupper() or word.endswith("s") for word in row):
        return None
    return row
