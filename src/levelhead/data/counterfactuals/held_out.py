"""Held-out texts: what can still be read after an edit is asked of these.

No edit of levelhead was fitted on them: they have other frames than those of `paired`, and words
that the user says were not used.

A word counts as used in whatever sense it was: `her` is used if her/his was, and her/him with it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from levelhead.core.errors import NotMeasurable
from levelhead.data.counterfactuals.contrast_pairs import SwappedPairs, TextPair, swapped_pairs
from levelhead.data.counterfactuals.templates import PHRASES
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.tokenize import WORD, folded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon, Term

SEEN = "a word of it was used for the edit"
SEVERAL = "it changes words of several meanings"
FRAMES: dict[str, tuple[str, ...]] = {
    # None of these stands in neutral_frames.py. Modal or past, the same for one and for many.
    "subject": (
        "{word} had waited for an hour.",
        "In the end {word} did not answer.",
        "On Monday {word} should arrive early.",
    ),
    "object": (
        "The letter was addressed to {word}.",
        "Nobody had asked {word} yet.",
        "The bus left without {word}.",
    ),
    "possessive determiner": (
        "The bag on the chair was {word} bag.",
        "Nobody had read {word} letter yet.",
        "On Monday {word} answer should arrive.",
    ),
    "possessive pronoun": (
        "The bag on the chair was {word}.",
        "Nobody knew that the letter had been {word}.",
        "The answer that arrived on Monday was {word}.",
    ),
    "reflexive": (
        "Nobody there had introduced {word} yet.",
        "The visitor had carried the bag {word}.",
        "The visitor waited for an hour by {word}.",
    ),
    "address": (
        "Good evening, {word}.",
        "The bus has left, {word}.",
        "Excuse me, {word}.",
    ),
}
NAMED = "{word} Morgan"


def held_out(
    name: str | Lexicon = "gender-en",
    *,
    seen: Iterable[str | TextPair],
    groups: Sequence[str] | None = None,
) -> SwappedPairs:
    """A lexicon's pairs of words that were not used, in frames of their own, three for each.

    Args:
        name: a lexicon, or the name or file of one.
        seen: the words, or the pairs of texts, that the edit was fitted or chosen on; empty if it
            was on none.
        groups: the group of the first sentences and that of the second; by default its first two.

    >>> held_out("gender-en", seen=["she"]).pairs[0].first
    'The letter was addressed to her.'
    """
    lexicon, used = any_lexicon(name), seen_words(seen)
    one, other = lexicon.two(groups)
    found: dict[str, TextPair] = {}
    left_out: Counter[str] = Counter()
    for term in lexicon.terms:
        if not (term.marks(one) and term.marks(other)):
            continue
        words = (str(term.word(one)), str(term.word(other)))
        if used & {folded(word) for word in words}:
            left_out[SEEN] += 1
            continue
        for pair in _framed(term, *words):
            found.setdefault(pair.id, pair)
    if not found:
        raise NotMeasurable(
            f"{lexicon.name} holds no pair of words for {one} and {other} that was not used",
            mend="give another lexicon, or fit the edit on fewer words: mitigate project --n 60",
        )
    return SwappedPairs(tuple(found.values()), tuple(sorted(left_out.items())))


def held_out_texts(
    texts: Iterable[str],
    lexicon: str | Lexicon = "gender-en",
    *,
    seen: Iterable[str | TextPair],
    groups: Sequence[str] | None = None,
) -> SwappedPairs:
    """Running text and its swap, where one meaning changes and its words were not used.

    Args:
        texts: sentences that the edit was not fitted on.
        lexicon: whose words are swapped.
        seen: as in `held_out`; sentences of such pairs are left out, too.
        groups: which two; by default its first two.
    """
    given = list(seen)
    used = seen_words(given)
    sentences = {
        text for pair in given if isinstance(pair, TextPair) for text in (pair.first, pair.second)
    }
    found = swapped_pairs(texts, lexicon, groups=groups)
    left_out = Counter(dict(found.left_out))
    kept = []
    for pair in found.pairs:
        if why := _unfit(pair, used, sentences):
            left_out[why] += 1
        else:
            kept.append(pair)
    if not kept:
        told = ", ".join(f"{count} ({reason})" for reason, count in sorted(left_out.items()))
        raise NotMeasurable(
            f"no text is left to ask of; left out: {told}",
            mend="give more sentences, or fit the edit on fewer words",
        )
    return SwappedPairs(tuple(kept), tuple(sorted(left_out.items())))


def seen_words(seen: Iterable[str | TextPair]) -> frozenset[str]:
    """The words themselves, or those in which the texts of pairs differ."""
    return frozenset(
        word
        for one in seen
        for word in (differing(one) if isinstance(one, TextPair) else (folded(one),))
    )


def differing(pair: TextPair) -> frozenset[str]:
    """The words that stand in one of the two texts only.

    >>> sorted(differing(TextPair("", "He saw Ann.", "She saw Ann.", ((0, 2), (0, 3)), "")))
    ['he', 'she']
    """
    # Signs of their own belong to a word of a lexicon: Mr. is not Mr.
    own = [text[slice(*span)] for text, span in zip(pair[1:3], pair.spans, strict=True)]
    one, other = ({folded(match) for match in WORD.findall(text)} for text in pair[1:3])
    return frozenset((one ^ other) | {folded(word) for word in own})


def word_units(pairs: Sequence[TextPair]) -> list[int]:
    """For every pair the number of its words: pairs that share a word have one number.

    Ms/Mr and Mrs/Mr are one: a probe that was trained on either has met the other.
    """
    words: dict[str, int] = {}
    rows, columns = [], []
    for i, pair in enumerate(pairs):
        for word in sorted(differing(pair)):
            rows.append(i)
            columns.append(len(pairs) + words.setdefault(word, len(words)))
    size = len(pairs) + len(words)
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    return [int(number) for number in connected_components(graph, directed=False)[1][: len(pairs)]]


def _unfit(pair: TextPair, used: Collection[str], sentences: Collection[str]) -> str | None:
    words = differing(pair)
    if len(words) > 2:
        return SEVERAL
    if {pair.first, pair.second} & set(sentences):
        return "the edit was fitted on it"
    return SEEN if words & set(used) else None


def _framed(term: Term, first: str, second: str) -> Iterator[TextPair]:
    unit = f"{first}/{second}"
    frames, phrase = _frames(term, first)
    for frame in frames:
        begin = frame.index("{word}") + phrase.index("{word}")
        texts = [frame.format(word=phrase.format(word=word)) for word in (first, second)]
        one, other = (text[0].upper() + text[1:] for text in texts)
        spans = ((begin, begin + len(first)), (begin, begin + len(second)))
        yield TextPair(f"{unit}: {frame.format(word='-')}", one, other, spans, unit)


def _frames(term: Term, word: str) -> tuple[tuple[str, ...], str]:
    if term.kind == "pronoun":
        return FRAMES[term.role or "subject"], "{word}"
    if term.kind == "title":
        return (FRAMES["subject"], NAMED) if word[0].isupper() else (FRAMES["address"], "{word}")
    # Two as a subject, one as an object.
    return (*FRAMES["subject"][:2], FRAMES["object"][0]), PHRASES[term.kind]
