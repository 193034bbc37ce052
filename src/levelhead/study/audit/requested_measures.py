"""Measures that the user of an audit asks for: of certain groups, or in other languages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.languages.language import language
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.measures.group_tables.group_table import GroupTable
from levelhead.measures.registry import parse_measure
from levelhead.study.audit.core_suite import BERT, CAUSAL, CHAT, CHATS, MASKED, CoreMeasure, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIKELIHOODS: tuple[Kind, ...] = (BERT, MASKED, CAUSAL, CHAT)
FAMILIES = ("threat", "competence")
"""Families of adjectives, by the two dimensions along which opinions of groups differ."""
LANGUAGE_MEASURES: dict[str, tuple[str, tuple[Kind, ...]]] = {
    "crows": ("subsample_fraction=0.125", LIKELIHOODS),
    "stereoset": ("subsample_fraction=0.25", LIKELIHOODS),
    "bbq": ("per_template=6,subsample_fraction=0.125", CHATS),
}
"""Options and kinds of models of the measures that have data in other languages."""


def request_measures(
    groups: Sequence[str] = (), languages: Sequence[str] = ()
) -> tuple[CoreMeasure, ...]:
    """Return the measures of some groups and languages, as a part of an audit's suite.

    >>> [row.name for row in request_measures(["origin-en"])]
    ['origin-en-threat', 'origin-en-competence', 'origin-en-decisions']

    Args:
        groups: lexicons, such as "origin-en"; of two crossed attributes "origin-en*gender-en", and
            with only some groups of the second "origin-en*gender-en:female+male".
        languages: codes of languages, such as "fr".
    """
    rows = [row for text in groups for row in _measures_of_groups(text)]
    rows += [row for code in languages for row in _measures_in_language(code)]
    names = [row.name for row in rows]
    if len(set(names)) < len(names):
        raise LevelheadError("groups or languages are named twice", hint="name each once")
    for row in rows:
        measure = parse_measure(row.text)
        # Names of lexicons and groups fail here, before a model is loaded.
        if isinstance(measure, GroupTable):
            measure.resolved_descriptions  # noqa: B018  # it raises for unknown names
    return tuple(rows)


def _measures_of_groups(text: str) -> Iterator[CoreMeasure]:
    attributes, _, chosen = text.partition(":")
    lexicon, _, second = attributes.partition("*")
    options = f"lexicon={lexicon}"
    lexicons = [resolve_lexicon(name) for name in (lexicon, second) if name]
    label = "-x-".join(words.name for words in lexicons)
    if second:
        options += f",crossed_with={second}"
    if chosen:
        options += f",{'crossed_groups' if second else 'groups'}={chosen}"
    for family in FAMILIES:
        yield CoreMeasure(
            _slug(f"{label}-{family}"),
            f"association_spread:{options},family={family}",
            LIKELIHOODS,
        )
    yield CoreMeasure(_slug(f"{label}-decisions"), f"decision_spread:{options}", CHATS)


def _measures_in_language(code: str) -> Iterator[CoreMeasure]:
    row = language(code)
    for family in FAMILIES:
        yield CoreMeasure(
            _slug(f"{row.name}-{family}"),
            f"association_spread:language={code},family={family}",
            LIKELIHOODS,
        )
    for name, _ in row.data:
        if name in LANGUAGE_MEASURES:
            options, kinds = LANGUAGE_MEASURES[name]
            yield CoreMeasure(
                _slug(f"{row.name}-{name}"), f"{name}:language={code},{options}", kinds
            )


def _slug(name: str) -> str:
    """A name as studies allow it."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower())
