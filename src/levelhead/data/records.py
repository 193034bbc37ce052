"""Items of data sets: frozen records of plain text with stable ids."""

from __future__ import annotations

from typing import NamedTuple


class StereoSetItem(NamedTuple):
    """A context with a stereotype, an anti-stereotype and an unrelated ending (StereoSet)."""

    id: str
    kind: str
    """intrasentence (the context contains BLANK) or intersentence."""
    bias: str
    target: str
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str


class TwinTriple(NamedTuple):
    """A context with three next sentences, and their counterfactuals with genders exchanged.

    Labels are those of the original. In the counterfactual, stereotype and anti-stereotype change
    places: the counterfactual of the stereotype is an anti-stereotype.
    """

    id: str
    group: str
    """F or M: the gender of the original context."""
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str
    # Field names are those of stored results: a new name would change their keys.
    twin_context: str
    twin_stereotype: str
    twin_anti_stereotype: str
    twin_unrelated: str
    other_context: str = ""
    """Different text of another row of this context or its counterfactual, if the rows disagree."""


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


class LabelledExample(NamedTuple):
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
    """A sentence of a template and the values of its slots."""

    id: str
    text: str
    slots: tuple[tuple[str, str], ...]


class WordSets(NamedTuple):
    """Named sets of words or sentences, such as the targets and attributes of a WEAT test."""

    id: str
    sets: tuple[tuple[str, str, tuple[str, ...]], ...]
    """(role, name, words); roles as in the file: targ1, targ2, attr1, attr2, or words."""


class GapPassage(NamedTuple):
    """A text with a pronoun and two names that it may refer to (GAP)."""

    id: str
    text: str
    pronoun: str
    # The pronoun may occur several times in the text, so its position is part of the record.
    start: int
    names: tuple[str, str]
    is_antecedent: tuple[bool, bool]


class BbqRow(NamedTuple):
    """A row of BBQ: a context, a question and three answers, as published."""

    id: str
    """Category and number; the number is that of the table of targets."""
    template: str
    condition: str
    """ambig or disambig."""
    polarity: str
    """neg or nonneg."""
    context: str
    question: str
    answers: tuple[str, str, str]
    answer_groups: tuple[str, str, str]
    """The group of each answer; "unknown" for the answer that names nobody."""
    stereotyped_groups: tuple[str, ...]
    label: int
    """Index of the right answer."""


class BbqTarget(NamedTuple):
    """Which answer of a BBQ row fits the stereotype, as its authors state it."""

    id: str
    row: str
    """Id of the row of BBQ."""
    answer: int | None
    """Index of the answer; None if none is named."""


DatasetItem = (
    StereoSetItem
    | TwinTriple
    | MinimalPair
    | TextPair
    | LabelledExample
    | Sentence
    | Template
    | WordSets
    | GapPassage
    | BbqRow
    | BbqTarget
)
