"""Questions about two people or places that a context does not answer (UnQover, Li et al. 2020).

Each question is put with both orders of the two subjects, and negated: what depends on the order,
or does not depend on the question, is no bias.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, require_option
from levelhead.data.catalog.datasets import dataset
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.data.prompts.pronoun_twins import BALANCED, load_shares_of_women
from levelhead.data.records import Template

if TYPE_CHECKING:
    from collections.abc import Mapping

UnqoverPart = Literal["gender", "ethnicity", "religion", "country"]
NAME_LISTS = ("female", "male")
"""Parts with names; a pair of names is one of each."""
NO_STATISTICS = "the labour statistics do not have the occupation"
_ARTICLE_BEFORE_SUBJECT = re.compile(r"\b([Aa])n? (?=\{(first|second)\})")


class UnderspecifiedQuestion(NamedTuple):
    """A question about two subjects and its negation, after a context that answers neither."""

    id: str
    template: str
    """Context, without what its versions differ in."""
    attribute: str
    """What the question is about, such as an occupation."""
    side: str
    """Group that the attribute is the stereotype of; empty for negative statements."""
    context: str
    """Text with {first} and {second}."""
    question: str
    negated: str
    fact: str
    """Text with {subject} that answers the question."""
    negated_fact: str
    """Text with {subject} that answers the negated question."""
    pairs: tuple[tuple[str, str], ...]
    """Subjects, one of each compared group."""
    fault: str = ""
    """Why the question cannot be used; empty if it can."""


def unqover_hashes(part: UnqoverPart) -> dict[str, str]:
    """SHA-256 of the files of a part."""
    lists: tuple[str, ...] = (part, f"{part}-statements")
    extra: dict[str, str] = {}
    if part == "gender":
        lists, extra = (*NAME_LISTS, "occupations"), dataset("winogender-occupations").hashes()
    return {
        **dataset("unqover-templates").hashes(part),
        **dataset("unqover-lists").hashes(*lists),
        **extra,
    }


def load_unqover_subjects(part: UnqoverPart) -> tuple[str, ...]:
    """Names of the groups of a part: female and male, or the subjects themselves."""
    require_option("part", part, get_args(UnqoverPart))
    return NAME_LISTS if part == "gender" else tuple(_read_list(part)["subj"])


def load_unqover(
    part: UnqoverPart, groups: tuple[str, str], n_pairs: int
) -> tuple[UnderspecifiedQuestion, ...]:
    """Load the questions of a part about two groups; unusable ones have a `fault`.

    Args:
        part: kind of the groups.
        groups: two of `load_unqover_subjects`.
        n_pairs: number of pairs of names, which only gender has.
    """
    known = load_unqover_subjects(part)
    for group in groups:
        require_option(f"subject of {part}", group, known)
    pairs = _make_pairs(part, groups, n_pairs)
    shares = load_shares_of_women() if part == "gender" else {}
    statements = _read_list("occupations" if part == "gender" else f"{part}-statements")
    return tuple(
        _make_question(row, statements, number, pairs, shares)
        for row in dataset("unqover-templates").records(part, Template)
        for number in range(len(statements[_slot_of(row)]))
    )


def _read_list(part: str) -> dict[str, list[str]]:
    by_slot: dict[str, list[str]] = defaultdict(list)
    for row in dataset("unqover-lists").records(part, Template):
        by_slot[dict(row.slots)["slot"]].append(row.text)
    return dict(by_slot)


def _make_pairs(
    part: UnqoverPart, groups: tuple[str, str], n_pairs: int
) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Pairs of subjects for each form, `subj` or `subj:dem` ("Spain", "Spanish")."""
    if part == "gender":
        # The lists are sorted by frequency: equal ranks are about equally common names.
        lists = [_read_list(group)["subj"][:n_pairs] for group in groups]
        return {"subj": tuple(zip(*lists, strict=True))}
    forms = _read_list(part)
    first, second = (forms["subj"].index(group) for group in groups)
    return {slot: ((texts[first], texts[second]),) for slot, texts in forms.items()}


def _slot_of(row: Template) -> str:
    match = re.search(r"\[([\w-]+)\]", dict(row.slots)["question"])
    if match is None:
        raise LevelheadError(f"{row.id}: the question has no slot", hint="check the templates")
    return match[1]


def _make_question(
    row: Template,
    statements: Mapping[str, list[str]],
    number: int,
    pairs: Mapping[str, tuple[tuple[str, str], ...]],
    shares: Mapping[str, float],
) -> UnderspecifiedQuestion:
    slots, slot = dict(row.slots), _slot_of(row)
    positive, negative = statements[slot][number], statements[f"{slot}:neg"][number]
    form = "subj:dem" if "[subj1:dem]" in row.text else "subj"
    context = re.sub(r"\[subj1(:dem)?\]", "{first}", row.text)
    context = re.sub(r"\[subj2(:dem)?\]", "{second}", context)
    # The plural form names the statement in both forms.
    attribute, side, fault = statements[slot.removesuffix("-single")][number], "", ""
    if shares:
        attribute = re.sub(r"^was an? ", "", positive)
        share = shares.get(attribute)
        fault = NO_STATISTICS if share is None else BALANCED if share == 50 else ""
        side = "" if fault else "female" if (share or 0) > 50 else "male"
    question, negated = (
        slots[name].replace(f"[{mark}]", text)
        for name, mark, text in (
            ("question", slot, positive),
            ("negated", f"{slot}:neg", negative),
        )
    )
    subject = "{subject}"
    if not shares and question.startswith("Who "):
        subject = "The {subject} " + ("person" if slot.endswith("-single") else "people")
    return UnderspecifiedQuestion(
        f"{row.id}: {attribute}",
        # A context is one unit, whether its people are men or women.
        f"context {int(slots['cluster']) + 1}",
        attribute,
        side,
        context,
        question,
        negated,
        _answer_by(question, subject),
        _answer_by(negated, subject),
        pairs[form],
        fault,
    )


def _answer_by(question: str, subject: str) -> str:
    """The sentence that answers a question.

    >>> _answer_by("Which place has people that were poor?", "{subject}")
    '{subject} has people that were poor.'
    """
    return re.sub(r"^(Who|Which place)\b", subject, question).removesuffix("?") + "."


def fill_context(context: str, first: str, second: str) -> str:
    """Fill in two subjects, with the indefinite articles that fit.

    >>> fill_context("A {first} man met a {second} man.", "Asian", "White")
    'An Asian man met a White man.'
    """
    subjects = {"first": first, "second": second}

    def fit_article(match: re.Match[str]) -> str:
        article = indefinite_article(subjects[match[2]])
        return (article.capitalize() if match[1] == "A" else article) + " "

    text = _ARTICLE_BEFORE_SUBJECT.sub(fit_article, context)
    return text.replace("{first}", first).replace("{second}", second)
