"""The linter: finds faults of data set items before they are measured.

Published data sets contain errors, and an error in a counterfactual changes a score. A flag names
the item, the rule, the field and the evidence; the linter repairs nothing. Measures report a score
on all items and on the unflagged ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from levelhead.data.counterfactuals.pronouns import (
    CLOSED_CLASS_WORDS,
    is_object,
    is_standalone_possessive,
)
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.records import DatasetItem, MinimalPair, StereoSetItem, TwinTriple
from levelhead.data.tokenize import fold_case, strip_clitic, tokenize_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CONFOUNDER_LEXICONS = ("age-en", "race-en", "religion-en")
"""Lexicons of other attributes, whose words confound a measurement of gender."""


LINT_RULES = (
    *("encoding", "empty", "duplicate", "label set", "blank", "attribute missing"),
    *("inconsistent", "unrelated differs", "unswapped", "unswapped word", "ungrammatical"),
    *("not minimal", "several spans"),
    *(f"another family: {name.removesuffix('-en')}" for name in CONFOUNDER_LEXICONS),
)


NON_TEXT_FIELDS = ("id", "kind", "bias", "group", "direction", "document", "other_context")
"""Fields that are names or may be empty, so that text rules do not apply."""


class LintFlag(NamedTuple):
    """A fault of an item."""

    item: str
    rule: str
    field: str
    evidence: str


def has_lint_rules(item: DatasetItem) -> bool:
    """Return whether there are rules for this kind of item, beyond those for every text."""
    return isinstance(item, StereoSetItem | TwinTriple | MinimalPair)


def lint(items: Iterable[DatasetItem]) -> list[LintFlag]:
    """Return all flags of items, in the order of the items.

    Args:
        items: items of a data set.
    """
    flags: list[LintFlag] = []
    texts: Counter[str] = Counter()
    for item in items:
        for name, text in _text_fields(item):
            flags += [
                LintFlag(item.id, rule, name, evidence) for rule, evidence in _check_text(text)
            ]
        if isinstance(item, TwinTriple):
            flags += _check_twins(item)
        elif isinstance(item, MinimalPair):
            flags += _check_minimal_pair(item)
        elif isinstance(item, StereoSetItem):
            flags += _check_stereoset_item(item)
        full_text = "\n".join(text for _, text in _text_fields(item))
        # Compared over all text fields, because items may share a context.
        texts[full_text] += 1
        if texts[full_text] > 1:
            flags.append(LintFlag(item.id, "duplicate", "", "another item has the same texts"))
    return flags


def _text_fields(item: DatasetItem) -> Iterator[tuple[str, str]]:
    for name, value in zip(item._fields, item, strict=True):
        if isinstance(value, str) and name not in NON_TEXT_FIELDS:
            yield name, value


def _check_text(text: str) -> Iterator[tuple[str, str]]:
    """Yield the faults of a single text: rule and evidence."""
    # The second pattern is UTF-8 that was decoded as Latin-1 or CP1252, such as \u00c3\u00a9.
    if "\ufffd" in text or re.search(r"\u00c3[\u0080-\u00bf]|\u00e2\u20ac", text):
        yield "encoding", text[:60]
    if any(unicodedata.category(sign) == "Cc" for sign in text):
        yield "encoding", "a control character"
    if not text.strip():
        yield "empty", ""


def _check_stereoset_item(item: StereoSetItem) -> Iterator[LintFlag]:
    if item.kind == "intrasentence":
        yield from _check_blank(item)
    else:
        yield from _check_other_families(item.id, "context", item.context)
        for name in ("stereotype", "anti_stereotype"):
            yield from _check_other_families(item.id, name, getattr(item, name))
        if item.bias == "gender":
            yield from _check_mentions_group(item)
    endings = (item.stereotype, item.anti_stereotype, item.unrelated)
    # Two equal endings cannot have two labels.
    if len(set(endings)) < 3:
        yield LintFlag(item.id, "label set", "", "two endings are the same")


def _check_blank(item: StereoSetItem) -> Iterator[LintFlag]:
    # Measures replace BLANK once and need blanks around it to find the tokens.
    count = item.context.count("BLANK")
    if count != 1:
        yield LintFlag(item.id, "blank", "context", f"BLANK occurs {count} times")
    elif re.search(r"\w\.BLANK|BLANK\.\w|\wBLANK|BLANK\w", item.context):
        yield LintFlag(item.id, "blank", "context", "BLANK is joined to a word or a full stop")
    elif item.context.lstrip().startswith("BLANK"):
        yield LintFlag(item.id, "blank", "context", "BLANK begins the sentence")


def _check_mentions_group(item: StereoSetItem) -> Iterator[LintFlag]:
    """Flag an item whose stereotype and anti-stereotype do not mention the group."""
    for name in ("stereotype", "anti_stereotype"):
        words = {fold_case(token.text) for token in tokenize_words(getattr(item, name))}
        if words & _DEICTIC_WORDS or any(_is_group_word(word) for word in words):
            return
    yield LintFlag(item.id, "attribute missing", "stereotype", "no ending mentions the group")


# An ending with such a word may refer to the group without naming it.
_DEICTIC_WORDS = frozenset("i me my we us our you your it its this that".split())


def _check_twins(item: TwinTriple) -> Iterator[LintFlag]:
    if item.other_context:
        yield LintFlag(item.id, "inconsistent", "context", item.other_context)
    if item.stereotype == item.anti_stereotype:
        yield LintFlag(item.id, "label set", "", "two endings are the same")
    if item.unrelated != item.twin_unrelated:
        yield LintFlag(
            item.id, "unrelated differs", "unrelated", f"{item.unrelated} | {item.twin_unrelated}"
        )
    for name in ("context", "stereotype", "anti_stereotype"):
        old, new = getattr(item, name), getattr(item, f"twin_{name}")
        yield from (
            LintFlag(item.id, rule, name, evidence) for rule, evidence in _check_swap(old, new)
        )
        yield from _check_other_families(item.id, name, old)
    # Without a group word in the context, its counterfactual tests nothing.
    if not any(_is_group_word(token.text) for token in tokenize_words(item.context)):
        yield LintFlag(item.id, "attribute missing", "context", item.context)


def _check_swap(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the faults of a swapped text, by comparing words."""
    before, after = (
        [token.text for token in tokenize_words(_strip_signs(text))] for text in (old, new)
    )
    group_words = [word for word in before if _is_group_word(word)]
    if group_words and before == after:
        yield "unswapped", old
        return
    # Texts of equal length are compared word by word, because a diff would align "men and women"
    # with "women and men" as a move.
    if len(before) == len(after):
        for i, word in enumerate(after):
            if fold_case(word) == fold_case(before[i]) and _is_group_word(word):
                yield "unswapped word", f"{word} in {new}"
            yield from _check_replacement(before, i, word, new)
        return
    # autojunk would ignore frequent words in long texts.
    match = SequenceMatcher(
        None, list(map(fold_case, before)), list(map(fold_case, after)), autojunk=False
    )
    for kind, a, b, c, d in match.get_opcodes():
        if kind == "equal":
            unswapped = [word for word in before[a:b] if _is_group_word(word)]
            if unswapped:
                yield "unswapped word", f"{' '.join(unswapped)} in {new}"
        # Replaced runs of equal length are compared word by word, like texts of equal length.
        elif b - a == d - c:
            for i, j in zip(range(a, b), range(c, d), strict=True):
                yield from _check_replacement(before, i, after[j], new)
        else:
            yield "not minimal", f"{' '.join(before[a:b])} -> {' '.join(after[c:d])} in {new}"


def _check_replacement(before: list[str], i: int, new: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the faults of a word and its replacement."""
    old, change = before[i], f"{before[i]} -> {new} in {text}"
    forms = {fold_case(strip_clitic(old)[0]), fold_case(strip_clitic(new)[0])}
    if fold_case(old) == fold_case(new):
        return
    names = old[0].isupper() and new[0].isupper() and not (forms & CLOSED_CLASS_WORDS)
    if names and not (_is_group_word(old) or _is_group_word(new)):
        # A name that replaces a name is no fault.
        return
    if frozenset(forms) not in _swap_pairs():
        yield "not minimal", change
        return
    word = fold_case(old)
    # her and his each have two counterparts; only grammar decides which is right.
    if word == "her" and fold_case(new) in ("him", "his"):
        is_objective = is_object(before, i)
        if is_objective is not None and is_objective != (fold_case(new) == "him"):
            yield "ungrammatical", change
    elif word == "his":
        is_standalone = is_standalone_possessive(before, i)
        if is_standalone is not None and is_standalone != (fold_case(new) == "hers"):
            yield "ungrammatical", change


def _check_minimal_pair(item: MinimalPair) -> Iterator[LintFlag]:
    more, less = (
        [fold_case(token.text) for token in tokenize_words(_strip_signs(text))]
        for text in (item.more, item.less)
    )
    changed = [
        code
        for code in SequenceMatcher(None, more, less, autojunk=False).get_opcodes()
        if code[0] != "equal"
    ]
    if not changed:
        yield LintFlag(item.id, "unswapped", "less", item.less)
    elif len(changed) > 1:
        yield LintFlag(item.id, "several spans", "less", f"{len(changed)} places differ")
    # More than four different words are hardly a group phrase alone.
    elif max(changed[0][2] - changed[0][1], changed[0][4] - changed[0][3]) > 4:
        yield LintFlag(item.id, "not minimal", "less", "more than four words differ")


def _check_other_families(item: str, name: str, text: str) -> Iterator[LintFlag]:
    for token in tokenize_words(text):
        for family, words in _confounders().items():
            word = strip_clitic(token.text)[0]
            # black and white in lower case are mostly colours, not groups.
            if word in words or (fold_case(word) in words and word not in ("black", "white")):
                yield LintFlag(item, f"another family: {family}", name, token.text)


def _strip_signs(text: str) -> str:
    """Remove quotes and hyphens, which are not compared."""
    for sign in ('"', "\u201c", "\u201d", "-"):
        text = text.replace(sign, " ")
    return text.replace("\u2019", "'").replace("\u2018", "'")


@cache
def _group_words() -> frozenset[str]:
    """Words that mark one of the two groups; capitalised words such as titles are not folded."""
    gender = lexicon("gender-en")
    words = {word for group in gender.groups[:2] for word in gender.words(group)}
    return frozenset(word if word[0].isupper() else fold_case(word) for word in words)


def _is_group_word(word: str) -> bool:
    # The full word first: o'clock and ma'am are no clitics.
    for form in (word, strip_clitic(word)[0]):
        if form in _group_words() or (fold_case(form) in _group_words()):
            return True
    return False


@cache
def _swap_pairs() -> frozenset[frozenset[str]]:
    gender = lexicon("gender-en")
    first, second = gender.groups[:2]
    rows = ((term.word(first), term.word(second)) for term in gender.terms)
    return frozenset(frozenset((fold_case(a), fold_case(b))) for a, b in rows if a and b)


@cache
def _confounders() -> dict[str, frozenset[str]]:
    """Words of other lexicons, as written and folded; colours only with a capital letter."""
    words_by_family = {}
    for name in CONFOUNDER_LEXICONS:
        family_lexicon = lexicon(name)
        words = {word for group in family_lexicon.groups for word in family_lexicon.words(group)}
        words_by_family[name.removesuffix("-en")] = frozenset(
            words | {fold_case(word) for word in words if word not in ("Black", "White")}
        )
    return words_by_family
