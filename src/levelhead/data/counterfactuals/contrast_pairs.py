"""Pairs of sentences that differ in one contrast only: what a subspace is fitted on.

Dawkins et al. 2024 feed "a small set of paired sentences (differing only in binary gender)" and
print none of them. Here a lexicon's pairs of words are put into frames that say next to nothing,
the same for both sides; running text can be paired with its swap instead. Pairs that differ in
tense, in number or in a word of the same group are for controls.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.data.counterfactuals.neutral_frames import FRAMES, NAMED, NOUNS, VERBS
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.counterfactuals.templates import PHRASES
from levelhead.data.lexicons.published import any_lexicon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from levelhead.data.counterfactuals.swap import Swapped
    from levelhead.data.lexicons.lexicon import Lexicon

Placebo = Literal["tense", "number", "names"]
Span = tuple[int, int]


class TextPair(NamedTuple):
    """Two sentences that differ in one contrast, and where the word stands that differs."""

    id: str
    first: str
    second: str
    spans: tuple[Span, Span]
    """Characters of the word in the first and in the second."""
    unit: str
    """What was sampled and is resampled: a pair of words, or a text of a corpus."""


class SwappedPairs(NamedTuple):
    """Texts of a corpus with their swaps, and how many were left out, by reason."""

    pairs: tuple[TextPair, ...]
    left_out: tuple[tuple[str, int], ...]


def paired(
    name: str | Lexicon = "gender-en",
    *,
    groups: Sequence[str] | None = None,
    n: int | None = None,
    seed: int = 0,
) -> tuple[TextPair, ...]:
    """A lexicon's pairs of words in neutral frames, six for each pair.

    Args:
        name: a lexicon, or the name or file of one.
        groups: the group of the first sentences and that of the second; by default its first two.
        n: how many, spread over the pairs of words as evenly as can be; by default all. The first
            ten of twenty are the ten one would get.
        seed: of that choice.

    >>> paired("gender-en")[0]._replace(id="")[1:4]
    ('She could be here.', 'He could be here.', ((0, 3), (0, 2)))
    """
    lexicon = any_lexicon(name)
    one, other = lexicon.two(groups)
    found: dict[str, TextPair] = {}
    for term in lexicon.terms:
        first, second = term.word(one), term.word(other)
        if first and second and term.marks(one) and term.marks(other):
            for pair in _framed(first, second, *_frames(term.kind, term.role, first)):
                found.setdefault(pair.id, pair)
    if not found:
        raise NotMeasurable(
            f"{lexicon.name} holds no two words of one meaning that mark {one} and {other}",
            mend="choose other groups, or add such pairs to the lexicon",
        )
    return _chosen(tuple(found.values()), n, seed)


def placebo_pairs(
    contrast: Placebo,
    *,
    lexicon: str | Lexicon = "gender-en",
    n: int | None = None,
    seed: int = 0,
) -> tuple[TextPair, ...]:
    """Pairs that differ in something else than the group: controls for a fitted direction.

    Args:
        contrast: `tense` (They walk here, They walked here), `number` (the river, the rivers), or
            `names`: two words of one group, those that the lexicon lists as placebo.
        lexicon: for `names`.
        n: how many, as in `paired`.
        seed: of that choice.

    >>> placebo_pairs("number")[0].second
    'The rivers could be here.'
    """
    if contrast not in get_args(Placebo):
        raise UnknownName("placebo contrast", str(contrast), get_args(Placebo))
    if contrast == "names":
        return _chosen(tuple(_within_groups(any_lexicon(lexicon))), n, seed)
    rows, (frames, phrase) = (
        (VERBS, (FRAMES["verb"], "{word}"))
        if contrast == "tense"
        else (NOUNS, _frames("person", None, ""))
    )
    found = (pair for row in rows for pair in _framed(*row, frames, phrase))
    return _chosen(tuple(found), n, seed)


def swapped_pairs(
    texts: Iterable[str],
    lexicon: str | Lexicon = "gender-en",
    *,
    groups: Sequence[str] | None = None,
    n: int | None = None,
    seed: int = 0,
) -> SwappedPairs:
    """Running text and its swap, the first group's sentence always first.

    A text counts if it holds words of one of the groups and every one of them can be swapped. The
    span is that of the first such word; the unit is the text.

    Args:
        texts: sentences of a corpus.
        lexicon: whose words are swapped.
        groups: which two; by default its first two.
        n: how many of the texts that can be used; by default all.
        seed: of that choice.
    """
    words = any_lexicon(lexicon)
    two = words.two(groups)
    found: dict[str, TextPair] = {}
    left_out: Counter[str] = Counter()
    for text in texts:
        pair = _oriented(swap(text, words, groups=two), words, two)
        if isinstance(pair, str):
            left_out[pair] += 1
        elif pair.id in found:
            left_out["the same pair stands there already"] += 1
        else:
            found[pair.id] = pair
    if not found:
        told = ", ".join(f"{count} ({reason})" for reason, count in left_out.items())
        raise NotMeasurable(
            f"no text can be paired with its swap; left out: {told or 'there was none'}",
            mend=f"give sentences that name {two[0]} or {two[1]}",
        )
    return SwappedPairs(_chosen(tuple(found.values()), n, seed), tuple(sorted(left_out.items())))


def pairs_hash(pairs: Sequence[TextPair]) -> str:
    """SHA-256 of the pairs, in their order."""
    return content_hash([[*pair] for pair in pairs])


def _frames(kind: str, role: str | None, word: str) -> tuple[tuple[str, ...], str]:
    """The frames that a word of a kind fits, and how it is written in them."""
    if kind == "pronoun":
        return FRAMES[role or "subject"], "{word}"
    if kind == "title":
        return (FRAMES["subject"], NAMED) if word[0].isupper() else (FRAMES["address"], "{word}")
    return (*FRAMES["subject"][:3], *FRAMES["object"][:3]), PHRASES[kind]


def _framed(first: str, second: str, frames: Sequence[str], phrase: str) -> Iterator[TextPair]:
    unit = f"{first}/{second}"
    for frame in frames:
        begin = frame.index("{word}") + phrase.index("{word}")
        one, other = (_sentence(frame.format(word=phrase.format(word=w))) for w in (first, second))
        spans = ((begin, begin + len(first)), (begin, begin + len(second)))
        yield TextPair(f"{unit}: {frame.format(word='-')}", one, other, spans, unit)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _within_groups(lexicon: Lexicon) -> Iterator[TextPair]:
    if not lexicon.placebos:
        raise NotMeasurable(
            f"{lexicon.name} lists no words of one group that may stand for each other",
            mend="add a [[placebo]] block to it, or take the contrast tense or number",
        )
    for group, rows in lexicon.placebos:
        kinds = {term.word(group): (term.kind, term.role) for term in reversed(lexicon.terms)}
        for first, second in rows:
            yield from _framed(first, second, *_frames(*kinds.get(first, ("person", None)), first))


def _oriented(swapped: Swapped, lexicon: Lexicon, two: tuple[str, str]) -> TextPair | str:
    """The pair, the first group's text first; or why there is none."""
    if swapped.refusals:
        return swapped.refusals[0].reason
    sides = {group for change in swapped.changes for group in lexicon.groups_of(change.old)}
    named = [group for group in two if group in sides]
    if len(named) != 1:
        return "it names both groups" if named else "it names neither group"
    change = swapped.changes[0]
    texts = (swapped.original, swapped.text)
    spans = ((change.start, change.end), (change.new_start, change.new_end))
    unit = f"{change.old}/{change.new}"
    if named[0] == two[1]:
        texts, spans, unit = texts[::-1], spans[::-1], f"{change.new}/{change.old}"
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
    return TextPair(f"{unit}: {digest}", *texts, spans, digest)


def _chosen(pairs: tuple[TextPair, ...], n: int | None, seed: int) -> tuple[TextPair, ...]:
    """The first n of an order in which every unit comes once before any comes twice."""
    if n is None:
        return pairs
    if not 1 <= n <= len(pairs):
        raise LevelheadError(
            f"{n} pairs are wanted and there are {len(pairs)}",
            mend=f"take 1 to {len(pairs)}, or leave n out for all",
        )
    rng = np.random.default_rng(seed)
    seen: Counter[str] = Counter()
    rounds: list[tuple[int, int, TextPair]] = []
    for i in rng.permutation(len(pairs)):
        rounds.append((seen[pairs[i].unit], len(rounds), pairs[i]))
        seen[pairs[i].unit] += 1
    return tuple(pair for _, _, pair in sorted(rounds, key=lambda row: row[:2])[:n])
