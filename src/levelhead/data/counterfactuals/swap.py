"""Counterfactual twins: every word that marks a group, replaced by the other group's.

Case, punctuation, possessives and contractions are kept. Ambiguous pronouns are decided by grammar
(`pronouns`); what cannot be decided is refused with a reason, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, final
from unicodedata import is_normalized

from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.pronouns import is_object, stands_alone
from levelhead.data.tokenize import folded, in_case_of, tokens, without_clitic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.data.tokenize import Token


_JOIN = re.compile("['\u2019-]")


class Replacement(NamedTuple):
    """A word that may stand for another, and when it does."""

    word: str
    role: str | None = None
    """The pronoun's role in which it does."""
    title: bool = False
    """Only before a name: Miss Marple, not "I miss you"."""
    kind: str = ""


class Table(NamedTuple):
    """Words as sequences of folded tokens, and what may stand for them."""

    entries: Mapping[tuple[str, ...], tuple[Replacement, ...]]
    begins: frozenset[str]
    """The first tokens of all entries."""
    longest: int

    @classmethod
    def of(cls, entries: Mapping[tuple[str, ...], tuple[Replacement, ...]]) -> Table:
        """All of them."""
        begins = frozenset(key[0] for key in entries)
        return cls(entries, begins, max(map(len, entries), default=0))


class Change(NamedTuple):
    """A word that was replaced, where it was and where its replacement is."""

    old: str
    new: str
    start: int
    end: int
    new_start: int
    new_end: int


class Refusal(NamedTuple):
    """A word that could not be replaced, and why."""

    word: str
    start: int
    end: int
    reason: str


@final
@dataclass(frozen=True)
class Swapped:
    """A text's twin, or why there is none."""

    original: str
    twin: str | None
    """None where a word was refused: half a swap is no counterfactual."""
    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]

    @property
    def text(self) -> str:
        """The twin; an error if there is none."""
        if self.twin is None:
            first = self.refusals[0]
            raise LevelheadError(
                f"{first.word!r} in {self.original!r:.80} cannot be swapped: {first.reason}",
                mend="leave the text out and count it as dropped, or swap it by hand",
            )
        return self.twin


def swap(text: str, lexicon: Lexicon, *, groups: tuple[str, str] | None = None) -> Swapped:
    """A text with the words of two groups exchanged.

    Args:
        text: any text.
        lexicon: whose words.
        groups: which two; by default its first two. Both directions are swapped at once.

    >>> from levelhead.data.lexicons.lexicon import lexicon
    >>> swap("Her brother's wife saw her.", lexicon("gender-en")).twin
    "His sister's husband saw him."
    """
    first, second = lexicon.two(groups)
    return _replaced(text, _exchange(lexicon, first, second))


def placebo(text: str, lexicon: Lexicon) -> Swapped:
    """A text with words of a group replaced by others of the same group: a control.

    >>> from levelhead.data.lexicons.lexicon import lexicon
    >>> placebo("The women met their mother.", lexicon("gender-en")).twin
    'The ladies met their aunt.'
    """
    return _replaced(text, _within_groups(lexicon))


@cache
def _exchange(lexicon: Lexicon, first: str, second: str) -> Table:
    """Words of either group, and what may stand for them."""
    found: dict[tuple[str, ...], list[Replacement]] = {}
    for term in lexicon.terms:
        for here, there in ((first, second), (second, first)):
            old, new = term.word(here), term.word(there)
            if old is None or new is None or not term.marks(here):
                continue
            entries = found.setdefault(_key(old), [])
            # The first row that names a word decides, but a pronoun has several roles.
            if not entries or (term.role and new not in [entry.word for entry in entries]):
                title = term.kind == "title" and old[0].isupper()
                entries.append(Replacement(new, term.role, title, term.kind))
    return Table.of({key: tuple(entries) for key, entries in found.items()})


@cache
def _within_groups(lexicon: Lexicon) -> Table:
    return Table.of(
        {
            _key(old): (Replacement(new, title=old[0].isupper()),)
            for _, pairs in lexicon.placebos
            for old, new in pairs
        }
    )


def _key(word: str) -> tuple[str, ...]:
    return tuple(folded(token.text) for token in tokens(word))


def _replaced(text: str, table: Table) -> Swapped:
    if not is_normalized("NFC", text):
        return Swapped(text, None, (), (Refusal(text, 0, len(text), "the text is not in NFC"),))
    found = tokens(text)
    pieces: list[str] = []
    changes: list[Change] = []
    refusals: list[Refusal] = []
    done, length, behind = 0, 0, 0
    for i in _likely(text, found, table):
        if i < behind:
            continue
        match = _match(found, i, table)
        if match is None:
            if inside := _inside(found[i], table):
                token = found[i]
                reason = f"{inside!r} stands inside a compound"
                refusals.append(Refusal(token.text, token.start, token.end, reason))
            continue
        count, clitic, options = match
        start, end = found[i].start, found[i + count - 1].end - len(clitic)
        old = text[start:end]
        word, reason = _chosen(found, i, options)
        if word is None:
            refusals.append(Refusal(old, start, end, reason))
        else:
            new = in_case_of(word, old)
            pieces += [text[done:start], new]
            length += start - done
            changes.append(Change(old, new, start, end, length, length + len(new)))
            length += len(new)
            done = end
        behind = i + count
    twin = None if refusals else "".join([*pieces, text[done:]])
    return Swapped(text, twin, tuple(changes), tuple(refusals))


def _likely(text: str, found: Sequence[Token], table: Table) -> list[int]:
    """Tokens that an entry can begin with, or stand inside: most are looked at no more."""
    joins = _JOIN.search(text)
    return [
        i
        for i, token in enumerate(found)
        if folded(token.text) in table.begins or (joins and _JOIN.search(token.text))
    ]


def _match(
    found: Sequence[Token], i: int, table: Table
) -> tuple[int, str, tuple[Replacement, ...]] | None:
    """How many tokens from i are an entry, the clitic that hangs on the last, and its options."""
    entries = table.entries
    for count in range(min(table.longest, len(found) - i), 0, -1):
        run = found[i : i + count]
        if any(a.end != b.start for a, b in pairwise(run) if not b.text[0].isalnum()):
            continue  # "Mr ." is no title with its full stop
        last, clitic = without_clitic(run[-1].text)
        for ending, hangs in ((run[-1].text, ""), (last, clitic)):
            key = (*(folded(token.text) for token in run[:-1]), folded(ending))
            if key in entries and _fits(found, i, count, entries[key]):
                return count, hangs, entries[key]
    return None


def _inside(token: Token, table: Table) -> str:
    """A word of the table that is part of a compound: ex-wife, mother-of-two."""
    if "-" not in token.text:
        return ""
    for part in token.text.split("-"):
        options = table.entries.get((folded(without_clitic(part)[0]),))
        if options and not options[0].title:
            return part
    return ""


def _fits(found: Sequence[Token], i: int, count: int, options: tuple[Replacement, ...]) -> bool:
    if not options[0].title:
        return True
    word, after, later = (_text(found, j) for j in (i, i + count, i + count + 1))
    if word.isupper() and len(word) > 3:  # I MISS HER
        return False
    named = after[:1].isupper() or (after in ("and", "&", "or") and later[:1].isupper())
    return word[0].isupper() and named


def _text(found: Sequence[Token], i: int) -> str:
    return found[i].text if 0 <= i < len(found) else ""


def _may_be_a_name(found: Sequence[Token], i: int, option: Replacement) -> str:
    """Why a capitalised word is left alone: Stephen King, Sir Isaac Newton; else nothing."""
    word, before, after = (_text(found, j) for j in (i, i - 1, i + 1))
    if not word[0].isupper() or word.isupper():
        return ""
    if option.kind == "role" and before[:1].isupper() and before[:1].isalpha():
        return "it may be part of a name"
    if option.kind == "title" and not option.title and after[:1].isupper():
        return "before a name it is a title that has no counterpart in the list"
    return ""


def _chosen(
    found: Sequence[Token], i: int, options: tuple[Replacement, ...]
) -> tuple[str | None, str]:
    if len(options) == 1:
        reason = _may_be_a_name(found, i, options[0])
        return (None, reason) if reason else (options[0].word, "")
    words = [token.text for token in found]
    by_role = {option.role: option.word for option in options}
    if {"object", "possessive determiner"} <= by_role.keys():
        told = is_object(words, i)
        if told is None:
            return None, "the words around it do not say whether it is an object or possessive"
        return by_role["object" if told else "possessive determiner"], ""
    if {"possessive determiner", "possessive pronoun"} <= by_role.keys():
        alone = stands_alone(words, i)
        if alone is None:
            return None, "the words around it do not say whether something of his follows"
        return by_role["possessive pronoun" if alone else "possessive determiner"], ""
    return None, f"it may become any of {', '.join(option.word for option in options)}"
