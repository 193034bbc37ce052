"""Replace words of a text by a table of words and their possible replacements.

Case, punctuation, possessives and contractions are preserved. `pronouns` resolves ambiguous
pronouns; a word that cannot be resolved is refused with a reason and never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final
from unicodedata import is_normalized

from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.agreement import (
    PLURAL_PRONOUNS,
    SEVERAL_PEOPLE,
    Agreement,
    VerbChange,
    agree_with_plural,
)
from levelhead.data.counterfactuals.pronouns import is_object, is_standalone_possessive
from levelhead.data.tokenize import fold_case, locate_words, match_case, strip_clitic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_JOINING_SIGN = re.compile("['\u2019-]")


class Replacement(NamedTuple):
    """A possible replacement of a word, and the condition for it."""

    word: str
    role: str | None = None
    """Grammatical role of the pronoun for which the replacement is valid."""
    is_title: bool = False
    """Whether it is valid only before a name: Miss Marple, not "I miss you"."""
    kind: str = ""


class ReplacementTable(NamedTuple):
    """Words as sequences of folded tokens, with their possible replacements."""

    entries: Mapping[tuple[str, ...], tuple[Replacement, ...]]
    first_tokens: frozenset[str]
    """The first tokens of all entries."""
    max_tokens: int

    @classmethod
    def from_entries(
        cls, entries: Mapping[tuple[str, ...], tuple[Replacement, ...]]
    ) -> ReplacementTable:
        """Build the table from its entries.

        Args:
            entries: replacements by folded tokens.
        """
        first_tokens = frozenset(key[0] for key in entries)
        return cls(entries, first_tokens, max(map(len, entries), default=0))


class WordSwap(NamedTuple):
    """A replaced word, its position and that of its replacement."""

    old: str
    new: str
    start: int
    end: int
    new_start: int
    new_end: int


class Refusal(NamedTuple):
    """A word that could not be replaced, and the reason."""

    word: str
    start: int
    end: int
    reason: str


@final
@dataclass(frozen=True)
class SwapResult:
    """The counterfactual of a text, or the reasons why there is none."""

    original: str
    counterfactual: str | None
    """None if a word was refused: a partial swap is no counterfactual."""
    changes: tuple[WordSwap, ...]
    refusals: tuple[Refusal, ...]

    @property
    def text(self) -> str:
        """The counterfactual; raises an error if there is none."""
        if self.counterfactual is None:
            first = self.refusals[0]
            raise LevelheadError(
                f"{first.word!r} in {self.original!r:.80} cannot be swapped: {first.reason}",
                hint="leave the text out and count it as dropped, or swap it manually",
            )
        return self.counterfactual


def entry_key(word: str) -> tuple[str, ...]:
    """Return the folded tokens of a word, its key in a `ReplacementTable`."""
    return tuple(map(fold_case, locate_words(word)[0]))


def replace_words(text: str, table: ReplacementTable) -> SwapResult:
    """Replace all words of a text that are in a table; none is replaced if one is refused."""
    # In NFD an accent is a separate character, so words would not match the lexicon.
    if not is_normalized("NFC", text):
        return SwapResult(text, None, (), (Refusal(text, 0, len(text), "the text is not in NFC"),))
    words, starts = locate_words(text)
    spans: list[tuple[int, int, str]] = []
    refusals: list[Refusal] = []
    next_token = 0
    for i in _candidate_positions(text, words, table):
        # The token is already part of a longer match.
        if i < next_token:
            continue
        match = _match_entry(words, starts, i, table)
        if match is None:
            # It marks a group but has no safe replacement, so the text must be refused.
            if compound_part := _find_word_in_compound(words[i], table):
                reason = f"{compound_part!r} is part of a compound"
                end = starts[i] + len(words[i])
                refusals.append(Refusal(words[i], starts[i], end, reason))
            continue
        count, clitic, options = match
        last = i + count - 1
        start, end = starts[i], starts[last] + len(words[last]) - len(clitic)
        old = text[start:end]
        word, reason = _choose_replacement(words, i, options)
        if word is not None:
            verbs, reason = _agree(words, i, word, options)
            spans.append((start, end, match_case(word, old)))
            for verb in verbs:
                begin = end if verb.position == i else starts[verb.position]
                spans.append((begin, starts[verb.position] + len(words[verb.position]), verb.word))
        if reason:
            refusals.append(Refusal(old, start, end, reason))
        next_token = i + count
    if refusals:
        return SwapResult(text, None, tuple(_assemble(text, spans)[1]), tuple(refusals))
    counterfactual, changes = _assemble(text, spans)
    return SwapResult(text, counterfactual, tuple(changes), ())


def _agree(
    words: Sequence[str], i: int, new: str, options: tuple[Replacement, ...]
) -> tuple[tuple[VerbChange, ...], str]:
    """Verbs that change with a pronoun, or why the pronoun cannot be replaced."""
    if options[0].kind != "pronoun":
        return (), ""
    old_is_plural = fold_case(strip_clitic(words[i])[0]) in PLURAL_PRONOUNS
    if old_is_plural == (new in PLURAL_PRONOUNS):
        return (), ""
    if old_is_plural:
        return (), SEVERAL_PEOPLE
    agreement = agree_with_plural(words, i) if options[0].role == "subject" else Agreement()
    return agreement.changes, agreement.reason


def _assemble(text: str, spans: list[tuple[int, int, str]]) -> tuple[str, list[WordSwap]]:
    """Replace parts of a text; verbs before their pronoun are sorted into place."""
    pieces: list[str] = []
    changes: list[WordSwap] = []
    copied_until, length = 0, 0
    # A verb that two pronouns share is replaced once.
    for start, end, new in sorted(set(spans)):
        pieces += [text[copied_until:start], new]
        length += start - copied_until
        changes.append(WordSwap(text[start:end], new, start, end, length, length + len(new)))
        length += len(new)
        copied_until = end
    return "".join([*pieces, text[copied_until:]]), changes


def _candidate_positions(text: str, words: Sequence[str], table: ReplacementTable) -> list[int]:
    """Return positions at which an entry may start or be part of a compound."""
    has_joins = _JOINING_SIGN.search(text)
    return [
        i
        for i, word in enumerate(words)
        if fold_case(word) in table.first_tokens or (has_joins and _JOINING_SIGN.search(word))
    ]


def _match_entry(
    words: Sequence[str], starts: Sequence[int], i: int, table: ReplacementTable
) -> tuple[int, str, tuple[Replacement, ...]] | None:
    """Match the longest entry at i: its number of tokens, a clitic after it and its options."""
    entries = table.entries
    # Longest match first: police woman before woman.
    for count in range(min(table.max_tokens, len(words) - i), 0, -1):
        run = words[i : i + count]
        if any(
            starts[j - 1] + len(words[j - 1]) != starts[j]
            for j in range(i + 1, i + count)
            if not words[j][0].isalnum()
        ):
            # A full stop after a blank is not part of a title: "Mr ." does not match "Mr.".
            continue
        last, clitic = strip_clitic(run[-1])
        # The full word first, because an entry may include an apostrophe.
        for ending, ending_clitic in ((run[-1], ""), (last, clitic)):
            key = (*map(fold_case, run[:-1]), fold_case(ending))
            if key in entries and _fits_context(words, i, count, entries[key]):
                return count, ending_clitic, entries[key]
    return None


def _find_word_in_compound(word: str, table: ReplacementTable) -> str:
    """Return a word of the table that is part of a compound, such as ex-wife."""
    if "-" not in word:
        return ""
    for part in word.split("-"):
        options = table.entries.get((fold_case(strip_clitic(part)[0]),))
        if options and not options[0].is_title:
            return part
    return ""


def _fits_context(
    words: Sequence[str], i: int, count: int, options: tuple[Replacement, ...]
) -> bool:
    if not options[0].is_title:
        return True
    word, after, later = (_word_at(words, j) for j in (i, i + count, i + count + 1))
    # In capitals, the verb cannot be distinguished from the title: I MISS HER.
    if word.isupper() and len(word) > 3:
        return False
    is_before_name = after[:1].isupper() or (after in ("and", "&", "or") and later[:1].isupper())
    return word[0].isupper() and is_before_name


def _word_at(words: Sequence[str], i: int) -> str:
    return words[i] if 0 <= i < len(words) else ""


def _name_reason(words: Sequence[str], i: int, option: Replacement) -> str:
    """Return why a capitalised word is not replaced (Stephen King), or empty text."""
    word, before, after = (_word_at(words, j) for j in (i, i - 1, i + 1))
    if not word[0].isupper() or word.isupper():
        return ""
    if option.kind == "role" and before[:1].isupper() and before[:1].isalpha():
        return "it may be part of a name"
    if option.kind == "title" and not option.is_title and after[:1].isupper():
        return "before a name it is a title that has no counterpart in the list"
    return ""


def _choose_replacement(
    words: Sequence[str], i: int, options: tuple[Replacement, ...]
) -> tuple[str | None, str]:
    if len(options) == 1:
        reason = _name_reason(words, i, options[0])
        return (None, reason) if reason else (options[0].word, "")
    by_role = {option.role: option.word for option in options}
    if {"object", "possessive determiner"} <= by_role.keys():
        is_objective = is_object(words, i)
        if is_objective is None:
            return None, "its context does not show whether it is an object or possessive"
        return by_role["object" if is_objective else "possessive determiner"], ""
    if {"possessive determiner", "possessive pronoun"} <= by_role.keys():
        is_standalone = is_standalone_possessive(words, i)
        if is_standalone is None:
            return None, "its context does not show whether a possessed noun follows"
        return by_role["possessive pronoun" if is_standalone else "possessive determiner"], ""
    return None, f"it may become any of {', '.join(option.word for option in options)}"
