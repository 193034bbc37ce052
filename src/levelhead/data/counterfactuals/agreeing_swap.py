"""Exchange the words of two groups, and the words that agree with them, by a table of agreement.

A person's word changes together with the words before it that agree (articles, possessives) and
with adjectives and participles after a copula of which it is the subject. Where a word has several
counterparts and nothing decides, or a word may agree with the person and this cannot be seen, the
text is refused and not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.data.counterfactuals.replacement import Refusal, SwapResult, WordSwap
from levelhead.data.tokenize import match_case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.data.counterfactuals.grammar import Grammar

NO_ARTICLE = "a word before it does not fit it"
UNKNOWN_FORM = "it may agree with the person, and its other form is not known"
ELIDES = re.compile("[aeiouyhàâéèêíìîóòôœ]", re.IGNORECASE)
LONGEST_ARTICLE = 4
"""Letters: a longer word after a copula that could be an adjective is one."""
MAX_SKIPPED = 4
"""Adverbs between a person and the verb, or the verb and an adjective."""


class PersonWord(NamedTuple):
    """A counterpart of a word."""

    group: str
    """Group of the word."""
    new: str
    case: str = ""


@final
@dataclass(eq=False)
class _Text:
    """A text, its words, and what was decided about them."""

    text: str
    words: list[re.Match[str]]
    spans: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    """(start, end, replacement) by start."""
    refusals: list[Refusal] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    def word(self, i: int) -> str:
        word = self.words[i][0].lower() if 0 <= i < len(self.words) else ""
        return word.replace("\u2019", "'")

    def replace(self, first: int, last: int, new: str) -> None:
        start, end = self.words[first].start(), self.words[last].end()
        self.spans[start] = (start, end, match_case(new, self.words[first][0]))
        self.done.update(range(first, last + 1))

    def refuse(self, i: int, reason: str) -> None:
        word = self.words[i]
        self.refusals.append(Refusal(word[0], word.start(), word.end(), reason))


def swap_with_agreement(
    text: str, persons: Mapping[str, Sequence[PersonWord]], grammar: Grammar
) -> SwapResult:
    """Exchange the words of two groups in a text.

    Args:
        text: any text.
        persons: counterparts of the words of both groups.
        grammar: what agrees with them.
    """
    state = _Text(text, list(grammar.words.finditer(text)))
    for i in range(len(state.words)):
        if i not in state.done and state.word(i) in persons:
            _swap_person(state, i, persons, grammar)
    if state.done:
        _swap_roles(state, persons, grammar)
        _refuse_unclear(state, grammar)
    if state.refusals:
        return SwapResult(text, None, (), tuple(state.refusals))
    return _assemble(text, sorted(state.spans.values()))


def _swap_person(
    state: _Text, i: int, persons: Mapping[str, Sequence[PersonWord]], grammar: Grammar
) -> None:
    word = state.word(i)
    options = list(persons[word])
    contexts = [row for row in grammar.rows.context if row.word == word]
    if contexts:
        before = state.text[: state.words[i].start()]
        after = state.text[state.words[i].end() :]
        for row in contexts:
            if re.match(row.after, after, re.IGNORECASE) and re.search(
                rf"(?:{row.before})$", before, re.IGNORECASE
            ):
                if row.new is None:
                    return
                options = [PersonWord(options[0].group, row.new)]
                break
        else:
            state.refuse(i, "its context does not show what it stands for")
            return
    group = options[0].group
    first, readings = _read_phrase(state, i, group, options, grammar)
    # Forms that depend on the next letter are one: le homme and l'homme.
    phrases = {_write_phrase(words, grammar) for words in readings} - {""}
    if len(phrases) != 1:
        state.refuse(i, "its counterpart or case is not known" if phrases else NO_ARTICLE)
        return
    state.replace(first, i, phrases.pop())
    _agree_after(state, i, group, persons, grammar)


def _write_phrase(reading: Sequence[str], grammar: Grammar) -> str:
    words = list(reading)
    for j in range(len(words) - 2, -1, -1):
        words[j] = grammar.fit_next(words[j], words[j + 1])
        # An elided form before a consonant is no reading: l' + fille.
        if words[j].endswith("'") and not ELIDES.match(words[j + 1]):
            return ""
    return "".join(
        word if word.endswith("'") or j == len(words) - 1 else f"{word} "
        for j, word in enumerate(words)
    )


def _read_phrase(
    state: _Text, i: int, group: str, options: Sequence[PersonWord], grammar: Grammar
) -> tuple[int, list[tuple[str, ...]]]:
    """First word of the phrase that ends at i, and its possible forms for the other group."""
    readings: set[tuple[str, tuple[str, ...]]] = {
        (option.case, (option.new,)) for option in options
    }
    first, has_case = i, any(option.case for option in options)
    while first:
        # Two words may be one form of the other group: "de la" is "du".
        for width in (2, 1):
            start = first - width
            old = " ".join(state.word(j) for j in range(start, first)) if start >= 0 else ""
            forms = grammar.phrase_forms(old, group)
            if forms:
                break
        else:
            break
        readings = {
            (case or known, (new, *words))
            for new, case in forms
            for known, words in readings
            if not case or not known or case == known
        }
        has_case = has_case or any(case for _, case in forms)
        first = start
    if len({words for _, words in readings}) > 1 and has_case:
        case = _case_before(state, first, grammar)
        readings = {row for row in readings if row[0] in (case, "")} if case else readings
    return first, sorted({words for _, words in readings})


def _case_before(state: _Text, first: int, grammar: Grammar) -> str:
    """The case that the word before a phrase demands; empty if it does not show it."""
    before = state.word(first - 1)
    for case, prepositions in grammar.rows.cases.items():
        if before in prepositions:
            return case
    is_start = first == 0 or before in (*grammar.rows.clause_starts, ".", "!", "?", ":")
    return "nominative" if is_start else ""


def _skip(state: _Text, k: int, grammar: Grammar) -> int:
    for _ in range(MAX_SKIPPED):
        is_auxiliary = (
            state.word(k) in grammar.rows.auxiliaries and state.word(k + 1) in grammar.copulas
        )
        if state.word(k) not in grammar.skipped and not is_auxiliary:
            break
        k += 1
    return k


def _agree_after(
    state: _Text,
    i: int,
    group: str,
    persons: Mapping[str, Sequence[PersonWord]],
    grammar: Grammar,
) -> None:
    """Change adjectives and participles after a copula whose subject ends at i."""
    k = _skip(state, i + 1, grammar)
    is_adjective = re.search(grammar.rows.adjective, state.word(k)) is not None
    if is_adjective and state.word(k) not in grammar.copulas and k not in state.done:
        state.refuse(k, UNKNOWN_FORM)
        return
    while state.word(k) in grammar.copulas:
        # A participle may be a copula, too: she was been = è stata.
        if grammar.other_ending(state.word(k), group) in grammar.copulas:
            _change_ending(state, k, group, grammar)
        k = _skip(state, k + 1, grammar)
        k = _change_article(state, k, group, persons, grammar)
        if state.word(k) not in grammar.copulas and state.word(k) not in persons:
            _change_predicate(state, k, group, grammar)
            return


def _change_article(
    state: _Text,
    k: int,
    group: str,
    persons: Mapping[str, Sequence[PersonWord]],
    grammar: Grammar,
) -> int:
    """Change the article of a predicate (she is a ...); the position of the word after it."""
    forms = grammar.phrase_forms(state.word(k), group)
    following = state.word(k + 1)
    # The article of another person changes with that person.
    if not forms or len(state.word(k)) > LONGEST_ARTICLE or following in persons:
        return k
    ending = grammar.other_ending(following, group)
    state.replace(k, k, grammar.fit_next(forms[0][0], ending or following))
    return _skip(state, k + 1, grammar)


def _change_predicate(state: _Text, k: int, group: str, grammar: Grammar) -> None:
    """Change an adjective or participle and one joined to it; refuse what has no known form."""
    if _change_ending(state, k, group, grammar):
        following = _skip(state, k + 1, grammar)
        if following > k + 1:
            _change_ending(state, following, group, grammar)
        return
    word = state.word(k)
    if word.isalpha() and k not in state.done and not grammar.is_invariable(word):
        state.refuse(k, UNKNOWN_FORM)


def _change_ending(state: _Text, k: int, group: str, grammar: Grammar) -> bool:
    new = grammar.other_ending(state.word(k), group) if k < len(state.words) else None
    if new is None or k in state.done:
        return False
    state.replace(k, k, new)
    return True


def _swap_roles(
    state: _Text, persons: Mapping[str, Sequence[PersonWord]], grammar: Grammar
) -> None:
    """Change names of jobs without an article, which say the gender of a person of the text."""
    groups = {row.group for word in persons for row in persons[word]}
    changed = {persons[state.word(i)][0].group for i in state.done if state.word(i) in persons}
    for i, word in enumerate(state.words):
        if i in state.done or not word[0][0].isupper() or i == 0 or not grammar.rows.role_suffixes:
            continue
        is_predicate = state.word(i - 1) in grammar.rows.role_before
        for group in sorted(groups):
            new = grammar.other_ending(word[0], group, role=True)
            if new is None:
                continue
            has_article = any(grammar.phrase_forms(state.word(i - 1), name) for name in groups)
            if has_article or not is_predicate or changed != {group}:
                state.refuse(i, "it may name the job of another person")
            else:
                state.replace(i, i, new)
            break
        else:
            if is_predicate:
                state.refuse(i, UNKNOWN_FORM)


def _refuse_unclear(state: _Text, grammar: Grammar) -> None:
    """Refuse a text with a word that may agree with a person, where its subject is not known."""
    for i in range(len(state.words)):
        k = _skip(state, i + 1, grammar)
        if i not in state.done and state.word(i) in grammar.rows.unclear:
            state.refuse(i, "it may stand for the person")
        # Those whose subject is the person are changed by now.
        is_open = i not in state.done and k not in state.done
        if is_open and state.word(i) in grammar.copulas and grammar.has_ending(state.word(k)):
            state.refuse(k, "it may agree with the person")


def _assemble(text: str, spans: Sequence[tuple[int, int, str]]) -> SwapResult:
    pieces, changes, copied, length = [], [], 0, 0
    for start, end, new in spans:
        pieces += [text[copied:start], new]
        length += start - copied
        changes.append(WordSwap(text[start:end], new, start, end, length, length + len(new)))
        length += len(new)
        copied = end
    return SwapResult(text, "".join([*pieces, text[copied:]]), tuple(changes), ())
