"""What a data set holds: frozen items with stable ids, as plain text."""

from __future__ import annotations

from typing import NamedTuple


class Association(NamedTuple):
    """A context with a stereotype, an anti-stereotype and an unrelated ending (StereoSet)."""

    id: str
    kind: str
    """intrasentence (the context holds BLANK) or intersentence."""
    bias: str
    target: str
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str


class TwinTriple(NamedTuple):
    """Three next sentences of a context, and the same with the genders exchanged.

    Labels are those of the original. In the twin, stereotype and anti-stereotype change places:
    the twin of the stereotype is an anti-stereotype.
    """

    id: str
    group: str
    """F or M: the gender of the original context."""
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str
    twin_context: str
    twin_stereotype: str
    twin_anti_stereotype: str
    twin_unrelated: str
    other_context: str = ""
    """Where the rows of one context disagree about it or its twin: what another row says."""


class MinimalPair(NamedTuple):
    """Two sentences that differ in a group; `more` is the more stereotypical one (CrowS-Pairs)."""

    id: str
    bias: str
    direction: str
    more: str
    less: str


class TextPair(NamedTuple):
    """Two texts and a label."""

    id: str
    first: str
    second: str
    label: str


class Labelled(NamedTuple):
    """A text and a label."""

    id: str
    text: str
    label: str


class Sentence(NamedTuple):
    """A sentence of a document."""

    id: str
    document: str
    text: str


class Template(NamedTuple):
    """A sentence made from a template, and what was put in."""

    id: str
    text: str
    slots: tuple[tuple[str, str], ...]


class WordSets(NamedTuple):
    """Named sets of words or sentences, such as the targets and attributes of a WEAT test."""

    id: str
    sets: tuple[tuple[str, str, tuple[str, ...]], ...]
    """(role, name, words); roles as in the file: targ1, targ2, attr1, attr2, or words."""


class Passage(NamedTuple):
    """A text with a pronoun and two names that it may mean (GAP)."""

    id: str
    text: str
    pronoun: str
    start: int
    names: tuple[str, str]
    means: tuple[bool, bool]


Item = (
    Association
    | TwinTriple
    | MinimalPair
    | TextPair
    | Labelled
    | Sentence
    | Template
    | WordSets
    | Passage
)
