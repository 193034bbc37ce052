"""Held-out texts, to measure which information remains after an edit.

No edit of levelhead was fitted on them: their frames differ from those of `contrast_pairs`, and
their words are those that the user did not use for the edit.

A word counts as used in every sense: if her/his was used, `her` is used, and so is her/him.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from levelhead.core.errors import NotMeasurableError
from levelhead.data.counterfactuals.contrast_pairs import ContrastPair, PairSet, swapped_pairs
from levelhead.data.counterfactuals.templates import PHRASES
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.data.tokenize import WORD, fold_case

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon, Term

WORD_WAS_USED = "a word of it was used for the edit"
SEVERAL_MEANINGS = "it changes words of several meanings"
HELD_OUT_FRAMES: dict[str, tuple[str, ...]] = {
    # No frame is also in neutral_frames.py. Verbs are modal or in the past tense, so that they are
    # equal for singular and plural.
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
HELD_OUT_NAME_PHRASE = "{word} Morgan"


def held_out_pairs(
    name: str | Lexicon = "gender-en",
    *,
    fitted_on: Iterable[str | ContrastPair],
    groups: Sequence[str] | None = None,
) -> PairSet:
    """Put the unused word pairs of a lexicon into held-out frames, three for each pair.

    Args:
        name: a lexicon, or the name or file of one.
        fitted_on: words or text pairs that the edit was fitted or selected on; may be empty.
        groups: groups of the first and second sentences; by default the first two of the lexicon.

    >>> held_out_pairs("gender-en", fitted_on=["she"]).pairs[0].first
    'The letter was addressed to her.'
    """
    lexicon, used = resolve_lexicon(name), fitted_words(fitted_on)
    first_group, second_group = lexicon.resolve_group_pair(groups)
    pairs_by_id: dict[str, ContrastPair] = {}
    left_out: Counter[str] = Counter()
    for term in lexicon.terms:
        if not (term.is_marker_of(first_group) and term.is_marker_of(second_group)):
            continue
        words = (str(term.word(first_group)), str(term.word(second_group)))
        # One used word is enough: the edit has seen half of the pair.
        if used & {fold_case(word) for word in words}:
            left_out[WORD_WAS_USED] += 1
            continue
        for pair in _fill_frames(term, *words):
            pairs_by_id.setdefault(pair.id, pair)
    if not pairs_by_id:
        raise NotMeasurableError(
            f"{lexicon.name} has no unused pair of words for {first_group} and {second_group}",
            hint="give another lexicon, or fit the edit on fewer words, for example with "
            "mitigate project --pairs 60",
        )
    return PairSet(tuple(pairs_by_id.values()), tuple(sorted(left_out.items())))


def held_out_pairs_from_texts(
    texts: Iterable[str],
    lexicon: str | Lexicon = "gender-en",
    *,
    fitted_on: Iterable[str | ContrastPair],
    groups: Sequence[str] | None = None,
) -> PairSet:
    """Pair running text with its counterfactual if one meaning changes and its words are unused.

    Args:
        texts: sentences that the edit was not fitted on.
        lexicon: lexicon of the swapped words.
        fitted_on: as in `held_out_pairs`; sentences of such pairs are left out too.
        groups: the two groups; by default the first two of the lexicon.
    """
    fitted_items = list(fitted_on)
    used = fitted_words(fitted_items)
    sentences = {
        text
        for pair in fitted_items
        if isinstance(pair, ContrastPair)
        for text in (pair.first, pair.second)
    }
    candidates = swapped_pairs(texts, lexicon, groups=groups)
    left_out = Counter(dict(candidates.left_out))
    usable_pairs = []
    for pair in candidates.pairs:
        if exclusion_reason := _exclusion_reason(pair, used, sentences):
            left_out[exclusion_reason] += 1
        else:
            usable_pairs.append(pair)
    if not usable_pairs:
        reasons = ", ".join(f"{count} ({reason})" for reason, count in sorted(left_out.items()))
        raise NotMeasurableError(
            f"no text is left to measure on; left out: {reasons}",
            hint="give more sentences, or fit the edit on fewer words",
        )
    return PairSet(tuple(usable_pairs), tuple(sorted(left_out.items())))


def fitted_words(fitted_on: Iterable[str | ContrastPair]) -> frozenset[str]:
    """Return the used words: given words, and words in which the texts of given pairs differ.

    Args:
        fitted_on: words or text pairs.
    """
    return frozenset(
        word
        for item in fitted_on
        for word in (
            differing_words(item) if isinstance(item, ContrastPair) else (fold_case(item),)
        )
    )


def differing_words(pair: ContrastPair) -> frozenset[str]:
    """Return the words that occur in only one of the two texts.

    >>> pair = ContrastPair("", "He saw Ann.", "She saw Ann.", ((0, 2), (0, 3)), "")
    >>> sorted(differing_words(pair))
    ['he', 'she']

    Args:
        pair: a text pair.
    """
    # The spans are added because words of a lexicon may include signs: "Mr." differs from "Mr".
    spanned_words = [text[slice(*span)] for text, span in zip(pair[1:3], pair.spans, strict=True)]
    first_words, second_words = (
        {fold_case(match) for match in WORD.findall(text)} for text in pair[1:3]
    )
    return frozenset((first_words ^ second_words) | {fold_case(word) for word in spanned_words})


def assign_word_units(pairs: Sequence[ContrastPair]) -> list[int]:
    """Number the word units of pairs: pairs that share a word have the same number.

    Ms/Mr and Mrs/Mr are one unit: a probe that was trained on one knows a word of the other.

    Args:
        pairs: text pairs.
    """
    words: dict[str, int] = {}
    rows, columns = [], []
    for i, pair in enumerate(pairs):
        for word in sorted(differing_words(pair)):
            rows.append(i)
            columns.append(len(pairs) + words.setdefault(word, len(words)))
    size = len(pairs) + len(words)
    # Units are the connected components of the bipartite graph of pairs and words.
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    return [int(number) for number in connected_components(graph, directed=False)[1][: len(pairs)]]


def _exclusion_reason(
    pair: ContrastPair, used: Collection[str], sentences: Collection[str]
) -> str | None:
    words = differing_words(pair)
    # More than one changed word pair: the unit of the pair would not be unique.
    if len(words) > 2:
        return SEVERAL_MEANINGS
    if {pair.first, pair.second} & set(sentences):
        return "the edit was fitted on it"
    return WORD_WAS_USED if words & set(used) else None


def _fill_frames(term: Term, first: str, second: str) -> Iterator[ContrastPair]:
    unit = f"{first}/{second}"
    frames, phrase = _frames_for(term, first)
    for frame in frames:
        begin = frame.index("{word}") + phrase.index("{word}")
        texts = [frame.format(word=phrase.format(word=word)) for word in (first, second)]
        first_text, second_text = (text[0].upper() + text[1:] for text in texts)
        spans = ((begin, begin + len(first)), (begin, begin + len(second)))
        yield ContrastPair(
            f"{unit}: {frame.format(word='-')}", first_text, second_text, spans, unit
        )


def _frames_for(term: Term, word: str) -> tuple[tuple[str, ...], str]:
    if term.kind == "pronoun":
        return HELD_OUT_FRAMES[term.role or "subject"], "{word}"
    if term.kind == "title":
        return (
            (HELD_OUT_FRAMES["subject"], HELD_OUT_NAME_PHRASE)
            if word[0].isupper()
            else (HELD_OUT_FRAMES["address"], "{word}")
        )
    # A noun can be subject and object: two frames of the first kind, one of the second.
    return (*HELD_OUT_FRAMES["subject"][:2], HELD_OUT_FRAMES["object"][0]), PHRASES[term.kind]
