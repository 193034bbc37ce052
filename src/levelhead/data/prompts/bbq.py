"""Questions of BBQ with the answer that fits the stereotype, and their faults.

Parrish et al. 2022. An ambiguous context does not say which of two people a question is about; a
disambiguated one does. The authors' table names the answer that fits the stereotype: of a negative
question the stereotyped person, of any other question the other person.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError, require_option
from levelhead.data.catalog.datasets import dataset
from levelhead.data.languages.language import ENGLISH, language
from levelhead.data.records import BbqRow, BbqTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

AMBIGUOUS, DISAMBIGUATED = "ambiguous", "disambiguated"
STEREOTYPED, OTHER, UNKNOWN = 0, 1, 2
"""Columns of answers: the one that fits the stereotype, the other person, and nobody."""
NO_TARGET = "no answer is named as the one that fits the stereotype"
CONFLICT = "its duplicates name different answers as the one that fits the stereotype"
DUPLICATE = "the same context and question as an earlier item"
SHARED_GROUP = "both answers are of a group that the item names as stereotyped"


class BbqQuestion(NamedTuple):
    """A question about two people, with its answers in the order of the columns."""

    id: str
    category: str
    template: str
    """Sampling unit: templates that share a question are one, with names and with labels."""
    condition: str
    """ambiguous or disambiguated."""
    is_negative: bool
    context: str
    question: str
    answers: tuple[str, str, str]
    """The answer that fits the stereotype, the other person, and that it is unknown."""
    right: int
    """Column of the right answer."""
    order: tuple[int, int, int] = (0, 1, 2)
    """Columns in the order in which the item lists its answers."""
    fault: str = ""
    """Why the question cannot be used; empty if it can."""


def bbq_categories(code: str = ENGLISH) -> tuple[str, ...]:
    """Names of the categories in a language."""
    source, ending = language(code).source("bbq")
    return tuple(part.removesuffix(ending) for part in source.parts if part.endswith(ending))


def bbq_hashes(categories: Sequence[str], code: str = ENGLISH) -> dict[str, str]:
    """SHA-256 of the files of some categories and of the table of stereotyped answers."""
    source, ending = language(code).source("bbq")
    hashes = source.hashes(*(f"{name}{ending}" for name in categories))
    # The table is about the English items only.
    return hashes | dataset("bbq-targets").hashes() if code == ENGLISH else hashes


def load_bbq(
    categories: Sequence[str], *, keep_shared_group: bool = False, code: str = ENGLISH
) -> tuple[BbqQuestion, ...]:
    """Load the questions of some categories; unusable ones have a `fault`.

    Args:
        categories: names of categories.
        keep_shared_group: whether to use items whose two answers are both of a stereotyped group.
            The authors' table names one of them by gender or income.
        code: language of the items.
    """
    for name in categories:
        require_option("category of BBQ", name, bbq_categories(code))
    source, ending = language(code).source("bbq")
    targets: dict[str, set[int | None]] = defaultdict(set)
    for target in dataset("bbq-targets").records("all", BbqTarget) if code == ENGLISH else ():
        targets[target.row].add(target.answer)
    questions: list[BbqQuestion] = []
    for name in dict.fromkeys(categories):
        rows = source.records(f"{name}{ending}", BbqRow)
        questions += make_bbq_questions(
            rows,
            targets if code == ENGLISH else match_targets(rows),
            category=name,
            keep_shared_group=keep_shared_group,
        )
    return tuple(questions)


def match_targets(rows: Sequence[BbqRow]) -> dict[str, set[int | None]]:
    """The stereotyped answers of rows without a table: those whose group is a stereotyped one.

    Spaces and capitals do not count ("low SES", "lowSES"). A row without exactly one such answer
    has no target and is not used.

    Args:
        rows: rows as published.
    """
    targets: dict[str, set[int | None]] = {}
    for row in rows:
        stereotyped = {_squeeze(group) for group in row.stereotyped_groups}
        hits: set[int | None] = {
            index
            for index, group in enumerate(row.answer_groups)
            if group != "unknown" and _squeeze(group) in stereotyped
        }
        targets[row.id] = hits if len(hits) == 1 else {None}
    return targets


def _squeeze(group: str) -> str:
    return group.replace(" ", "").casefold()


def make_bbq_questions(
    rows: Sequence[BbqRow],
    targets: Mapping[str, set[int | None]],
    *,
    category: str,
    keep_shared_group: bool = False,
) -> list[BbqQuestion]:
    """Join rows of one category with the answers that fit the stereotype.

    Args:
        rows: rows as published.
        targets: for each row, the index of the answer that fits the stereotype.
        category: name of the category.
        keep_shared_group: as in `load_bbq`.
    """
    units = merge_templates((row.template, row.question) for row in rows)
    # Duplicates differ in the order of answers or the wording of "unknown" only. Keeping all would
    # count them twice; where they disagree about the stereotype, none can be used.
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        named[row.context, row.question] |= {
            row.answers[index] for index in targets.get(row.id, ()) if index is not None
        }
    seen: set[tuple[str, str]] = set()
    questions = []
    for row in rows:
        key = (row.context, row.question)
        row_targets = targets.get(row.id, set())
        fault = ""
        if len(row_targets) != 1 or None in row_targets:
            fault = NO_TARGET
        elif len(named[key]) > 1:
            fault = CONFLICT
        elif key in seen:
            fault = DUPLICATE
        elif not keep_shared_group and _has_shared_group(row):
            fault = SHARED_GROUP
        else:
            seen.add(key)
        (target,) = row_targets if fault != NO_TARGET else (None,)
        questions.append(
            _make_question(row, target, fault, category, f"{category}-{units[row.template]}")
        )
    return questions


def merge_templates(questions: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Merge templates that share a question, such as the versions with names and with labels.

    Args:
        questions: template and question of each row.

    Returns:
        The name of the merged template, by template: the smallest number among its members.

    >>> merge_templates([("1", "Who is late?"), ("26", "Who is late?"), ("2", "Who is tired?")])
    {'1': '1', '26': '1', '2': '2'}
    """
    by_question: dict[str, list[str]] = defaultdict(list)
    parent: dict[str, str] = {}
    for template, question in questions:
        parent.setdefault(template, template)
        by_question[question].append(template)

    def find_root(template: str) -> str:
        while parent[template] != template:
            template = parent[template]
        return template

    for templates in by_question.values():
        for template in dict.fromkeys(templates):
            roots = sorted((find_root(templates[0]), find_root(template)), key=_template_order)
            parent[roots[1]] = roots[0]
    return {template: find_root(template) for template in parent}


def _template_order(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (0, name)


def _has_shared_group(row: BbqRow) -> bool:
    # Groups are written as "F-Black" or "lowSES-M-Latino": the last part is the race.
    groups = [group for group in row.answer_groups if group != "unknown"]
    return all(
        group in row.stereotyped_groups or group.split("-")[-1] in row.stereotyped_groups
        for group in groups
    )


def _make_question(
    row: BbqRow, target: int | None, fault: str, category: str, unit: str
) -> BbqQuestion:
    unknown = row.answer_groups.index("unknown")
    if target == unknown:
        raise LevelheadError(
            f"{row.id}: the answer that names nobody is said to fit the stereotype",
            hint="check the table of targets",
        )
    people = [index for index in range(3) if index != unknown]
    # Without a target the order of the two people is arbitrary; the item is not used.
    first = people[0] if target is None else target
    columns = (first, next(index for index in people if index != first), unknown)
    return BbqQuestion(
        id=row.id,
        category=category,
        template=unit,
        condition={"ambig": AMBIGUOUS, "disambig": DISAMBIGUATED}[row.condition],
        is_negative=row.polarity == "neg",
        context=row.context,
        question=row.question,
        answers=(row.answers[columns[0]], row.answers[columns[1]], row.answers[columns[2]]),
        right=columns.index(row.label),
        order=(columns.index(0), columns.index(1), columns.index(2)),
        fault=fault,
    )
