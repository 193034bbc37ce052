"""The linter: what is wrong with an item, before it is measured.

Published sets are dirty, and a dirty twin moves a score by itself. A flag names the item, the rule,
the field and what was seen; nothing is repaired here. Measures report a score on all items and on
the unflagged ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from levelhead.data.counterfactuals.pronouns import CLOSED, is_object, stands_alone
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.records import Association, Item, MinimalPair, TwinTriple
from levelhead.data.tokenize import folded, tokens, without_clitic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OTHERS = ("age-en", "race-en", "religion-en")
"""Families whose presence confounds a question about gender."""


RULES = (
    *("encoding", "empty", "duplicate", "label set", "blank", "attribute missing"),
    *("inconsistent", "unrelated differs", "unswapped", "unswapped word", "ungrammatical"),
    *("not minimal", "several spans"),
    *(f"another family: {name.removesuffix('-en')}" for name in OTHERS),
)


NO_TEXT = ("id", "kind", "bias", "group", "direction", "document", "other_context")
"""Fields that are names, or empty by right."""


class Flag(NamedTuple):
    """Something that is wrong with an item."""

    item: str
    rule: str
    field: str
    seen: str


def has_rules(item: Item) -> bool:
    """Whether more is known of this kind of item than of any text."""
    return isinstance(item, Association | TwinTriple | MinimalPair)


def lint(items: Iterable[Item]) -> list[Flag]:
    """All flags of some items, in their order."""
    found: list[Flag] = []
    texts: Counter[str] = Counter()
    for item in items:
        for name, text in _texts(item):
            found += [Flag(item.id, rule, name, seen) for rule, seen in _of_text(text)]
        if isinstance(item, TwinTriple):
            found += _twins(item)
        elif isinstance(item, MinimalPair):
            found += _pair(item)
        elif isinstance(item, Association):
            found += _association(item)
        whole = "\n".join(text for _, text in _texts(item))
        texts[whole] += 1
        if texts[whole] > 1:
            found.append(Flag(item.id, "duplicate", "", "the same texts stand in another item"))
    return found


def _texts(item: Item) -> Iterator[tuple[str, str]]:
    for name, value in zip(item._fields, item, strict=True):
        if isinstance(value, str) and name not in NO_TEXT:
            yield name, value


def _of_text(text: str) -> Iterator[tuple[str, str]]:
    """Faults of a single text."""
    if "\ufffd" in text or re.search(r"\u00c3[\u0080-\u00bf]|\u00e2\u20ac", text):
        yield "encoding", text[:60]
    if any(unicodedata.category(sign) == "Cc" for sign in text):
        yield "encoding", "a control character"
    if not text.strip():
        yield "empty", ""


def _association(item: Association) -> Iterator[Flag]:
    if item.kind == "intrasentence":
        yield from _blank(item)
    else:
        yield from _other_families(item.id, "context", item.context)
        for name in ("stereotype", "anti_stereotype"):
            yield from _other_families(item.id, name, getattr(item, name))
        if item.bias == "gender":
            yield from _about_nobody(item)
    endings = (item.stereotype, item.anti_stereotype, item.unrelated)
    if len(set(endings)) < 3:
        yield Flag(item.id, "label set", "", "two endings are the same")


def _blank(item: Association) -> Iterator[Flag]:
    count = item.context.count("BLANK")
    if count != 1:
        yield Flag(item.id, "blank", "context", f"BLANK stands {count} times")
    elif re.search(r"\w\.BLANK|BLANK\.\w|\wBLANK|BLANK\w", item.context):
        yield Flag(item.id, "blank", "context", "BLANK is glued to a word or a full stop")
    elif item.context.lstrip().startswith("BLANK"):
        yield Flag(item.id, "blank", "context", "BLANK begins the sentence")


def _about_nobody(item: Association) -> Iterator[Flag]:
    """Neither ending speaks of whom the context speaks of."""
    for name in ("stereotype", "anti_stereotype"):
        words = {folded(token.text) for token in tokens(getattr(item, name))}
        if words & _SPEAKS_OF or any(_groups(word) for word in words):
            return
    yield Flag(item.id, "attribute missing", "stereotype", "no ending speaks of the group")


_SPEAKS_OF = frozenset("i me my we us our you your it its this that".split())


def _twins(item: TwinTriple) -> Iterator[Flag]:
    if item.other_context:
        yield Flag(item.id, "inconsistent", "context", item.other_context)
    if item.stereotype == item.anti_stereotype:
        yield Flag(item.id, "label set", "", "two endings are the same")
    if item.unrelated != item.twin_unrelated:
        yield Flag(
            item.id, "unrelated differs", "unrelated", f"{item.unrelated} | {item.twin_unrelated}"
        )
    for name in ("context", "stereotype", "anti_stereotype"):
        old, new = getattr(item, name), getattr(item, f"twin_{name}")
        yield from (Flag(item.id, rule, name, seen) for rule, seen in _swap(old, new))
        yield from _other_families(item.id, name, old)
    if not any(_groups(token.text) for token in tokens(item.context)):
        yield Flag(item.id, "attribute missing", "context", item.context)


def _swap(old: str, new: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a swap, word by word."""
    before, after = ([token.text for token in tokens(_plain(text))] for text in (old, new))
    marked = [word for word in before if _groups(word)]
    if marked and before == after:
        yield "unswapped", old
        return
    if len(before) == len(after):  # "men and women" becomes "women and men": word by word
        for i, word in enumerate(after):
            if folded(word) == folded(before[i]) and _groups(word):
                yield "unswapped word", f"{word} in {new}"
            yield from _word(before, i, word, new)
        return
    match = SequenceMatcher(
        None, list(map(folded, before)), list(map(folded, after)), autojunk=False
    )
    for kind, a, b, c, d in match.get_opcodes():
        if kind == "equal":
            left = [word for word in before[a:b] if _groups(word)]
            if left:
                yield "unswapped word", f"{' '.join(left)} in {new}"
        elif b - a == d - c:
            for i, j in zip(range(a, b), range(c, d), strict=True):
                yield from _word(before, i, after[j], new)
        else:
            yield "not minimal", f"{' '.join(before[a:b])} -> {' '.join(after[c:d])} in {new}"


def _word(before: list[str], i: int, new: str, text: str) -> Iterator[tuple[str, str]]:
    """One word against its replacement."""
    old, change = before[i], f"{before[i]} -> {new} in {text}"
    forms = {folded(without_clitic(old)[0]), folded(without_clitic(new)[0])}
    if folded(old) == folded(new):
        return
    names = old[0].isupper() and new[0].isupper() and not (forms & CLOSED)
    if names and not (_groups(old) or _groups(new)):
        return  # a name for a name
    if frozenset(forms) not in _swaps():
        yield "not minimal", change
        return
    word = folded(old)
    if word == "her" and folded(new) in ("him", "his"):
        told = is_object(before, i)
        if told is not None and told != (folded(new) == "him"):
            yield "ungrammatical", change
    elif word == "his":
        alone = stands_alone(before, i)
        if alone is not None and alone != (folded(new) == "hers"):
            yield "ungrammatical", change


def _pair(item: MinimalPair) -> Iterator[Flag]:
    more, less = (
        [folded(token.text) for token in tokens(_plain(text))] for text in (item.more, item.less)
    )
    changed = [
        code
        for code in SequenceMatcher(None, more, less, autojunk=False).get_opcodes()
        if code[0] != "equal"
    ]
    if not changed:
        yield Flag(item.id, "unswapped", "less", item.less)
    elif len(changed) > 1:
        yield Flag(item.id, "several spans", "less", f"{len(changed)} places differ")
    elif max(changed[0][2] - changed[0][1], changed[0][4] - changed[0][3]) > 4:
        yield Flag(item.id, "not minimal", "less", "more than four words differ")


def _other_families(item: str, name: str, text: str) -> Iterator[Flag]:
    for token in tokens(text):
        for family, words in _confounders().items():
            word = without_clitic(token.text)[0]
            if word in words or (folded(word) in words and word not in ("black", "white")):
                yield Flag(item, f"another family: {family}", name, token.text)


def _plain(text: str) -> str:
    """Quotes, hyphens and spaces do not count."""
    for sign in ('"', "\u201c", "\u201d", "-"):
        text = text.replace(sign, " ")
    return text.replace("\u2019", "'").replace("\u2018", "'")


@cache
def _marked() -> frozenset[str]:
    """Words that mark one of the two groups; titles as they are written, before a name."""
    gender = lexicon("gender-en")
    words = {word for group in gender.groups[:2] for word in gender.words(group)}
    return frozenset(word if word[0].isupper() else folded(word) for word in words)


def _groups(word: str) -> bool:
    for form in (word, without_clitic(word)[0]):
        if form in _marked() or (folded(form) in _marked()):
            return True
    return False


@cache
def _swaps() -> frozenset[frozenset[str]]:
    gender = lexicon("gender-en")
    first, second = gender.groups[:2]
    rows = ((term.word(first), term.word(second)) for term in gender.terms)
    return frozenset(frozenset((folded(a), folded(b))) for a, b in rows if a and b)


@cache
def _confounders() -> dict[str, frozenset[str]]:
    """Words of other families, as they are written and folded; colours only with a capital."""
    found = {}
    for name in OTHERS:
        lists = lexicon(name)
        words = {word for group in lists.groups for word in lists.words(group)}
        found[name.removesuffix("-en")] = frozenset(
            words | {folded(word) for word in words if word not in ("Black", "White")}
        )
    return found
