"""Pairs of sentences that differ in one contrast only, on which a subspace is fitted.

Dawkins et al. 2024 use "a small set of paired sentences (differing only in binary gender)" and do
not print them. Here the word pairs of a lexicon are put into neutral frames, the same for both
sides; alternatively, running text is paired with its counterfactual. Pairs that differ in tense, in
number or in a word of the same group are controls.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import (
    LevelheadError,
    NotMeasurableError,
    require_option,
)
from levelhead.data.counterfactuals.neutral_frames import (
    FRAMES,
    NAME_PHRASE,
    NUMBER_PAIRS,
    TENSE_PAIRS,
)
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.counterfactuals.templates import PHRASES
from levelhead.data.lexicons.published import resolve_lexicon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from levelhead.data.counterfactuals.replacement import SwapResult
    from levelhead.data.lexicons.lexicon import Lexicon

Placebo = Literal["tense", "number", "names"]
Span = tuple[int, int]


class ContrastPair(NamedTuple):
    """Two sentences that differ in one contrast, and the positions of the word that differs."""

    id: str
    first: str
    second: str
    spans: tuple[Span, Span]
    """Character ranges of the word in the first and second sentence."""
    unit: str
    """The sampling unit: a pair of words, or a text of a corpus."""


class PairSet(NamedTuple):
    """Texts of a corpus with their counterfactuals, and the number left out, by reason."""

    pairs: tuple[ContrastPair, ...]
    left_out: tuple[tuple[str, int], ...]


def contrast_pairs(
    name: str | Lexicon = "gender-en",
    *,
    groups: Sequence[str] | None = None,
    n: int | None = None,
    seed: int = 0,
) -> tuple[ContrastPair, ...]:
    """Put the word pairs of a lexicon into neutral frames, six for each pair.

    Args:
        name: a lexicon, or the name or file of one.
        groups: groups of the first and second sentences; by default the first two of the lexicon.
        n: number of pairs, spread evenly over the word pairs; by default all. A selection of ten
            pairs is the first half of a selection of twenty.
        seed: seed of the selection.

    >>> contrast_pairs("gender-en")[0]._replace(id="")[1:4]
    ('She could be here.', 'He could be here.', ((0, 3), (0, 2)))
    """
    lexicon = resolve_lexicon(name)
    first_group, second_group = lexicon.resolve_group_pair(groups)
    pairs_by_id: dict[str, ContrastPair] = {}
    for term in lexicon.terms:
        first, second = term.word(first_group), term.word(second_group)
        if first and second and term.is_marker_of(first_group) and term.is_marker_of(second_group):
            for pair in _fill_frames(first, second, *_frames_for(term.kind, term.role, first)):
                pairs_by_id.setdefault(pair.id, pair)
    if not pairs_by_id:
        raise NotMeasurableError(
            f"{lexicon.name} has no pair of words of one meaning for {first_group} and "
            f"{second_group}",
            hint="choose other groups, or add such pairs to the lexicon",
        )
    return _select_pairs(tuple(pairs_by_id.values()), n, seed)


def placebo_pairs(
    contrast: Placebo,
    *,
    lexicon: str | Lexicon = "gender-en",
    n: int | None = None,
    seed: int = 0,
) -> tuple[ContrastPair, ...]:
    """Make pairs that differ in something other than the group, as controls of a direction.

    Args:
        contrast: `tense` (They walk here, They walked here), `number` (the river, the rivers), or
            `names`: two words of one group that the lexicon lists as placebo.
        lexicon: lexicon for `names`.
        n: number of pairs, as in `contrast_pairs`.
        seed: seed of the selection.

    >>> placebo_pairs("number")[0].second
    'The rivers could be here.'
    """
    require_option("placebo contrast", contrast, get_args(Placebo))
    if contrast == "names":
        return _select_pairs(tuple(_pairs_within_groups(resolve_lexicon(lexicon))), n, seed)
    rows, (frames, phrase) = (
        (TENSE_PAIRS, (FRAMES["verb"], "{word}"))
        if contrast == "tense"
        else (NUMBER_PAIRS, _frames_for("person", None, ""))
    )
    pairs = (pair for row in rows for pair in _fill_frames(*row, frames, phrase))
    return _select_pairs(tuple(pairs), n, seed)


def swapped_pairs(
    texts: Iterable[str],
    lexicon: str | Lexicon = "gender-en",
    *,
    groups: Sequence[str] | None = None,
    n: int | None = None,
    seed: int = 0,
) -> PairSet:
    """Pair running text with its counterfactual; the sentence of the first group comes first.

    A text is used if it contains words of one of the groups and all of them can be swapped. The
    span is that of the first such word; the unit is the text.

    Args:
        texts: sentences of a corpus.
        lexicon: lexicon of the swapped words.
        groups: the two groups; by default the first two of the lexicon.
        n: number of the usable texts; by default all.
        seed: seed of the selection.
    """
    words = resolve_lexicon(lexicon)
    group_pair = words.resolve_group_pair(groups)
    pairs_by_id: dict[str, ContrastPair] = {}
    left_out: Counter[str] = Counter()
    for text in texts:
        pair = _orient_pair(swap(text, words, groups=group_pair), words, group_pair)
        if isinstance(pair, str):
            left_out[pair] += 1
        elif pair.id in pairs_by_id:
            left_out["the same pair stands there already"] += 1
        else:
            pairs_by_id[pair.id] = pair
    if not pairs_by_id:
        reasons = ", ".join(f"{count} ({reason})" for reason, count in left_out.items())
        raise NotMeasurableError(
            f"no text can be paired with its swap; left out: {reasons or 'no text given'}",
            hint=f"give sentences that name {group_pair[0]} or {group_pair[1]}",
        )
    return PairSet(
        _select_pairs(tuple(pairs_by_id.values()), n, seed), tuple(sorted(left_out.items()))
    )


def contrast_pairs_digest(pairs: Sequence[ContrastPair]) -> str:
    """Return the SHA-256 of the pairs, in their order.

    Args:
        pairs: text pairs.
    """
    return content_hash([[*pair] for pair in pairs])


def _frames_for(kind: str, role: str | None, word: str) -> tuple[tuple[str, ...], str]:
    """Return the frames for a word of a kind, and its phrase in them."""
    if kind == "pronoun":
        return FRAMES[role or "subject"], "{word}"
    if kind == "title":
        return (
            # Mr needs a name after it; sir is only used as an address.
            (FRAMES["subject"], NAME_PHRASE) if word[0].isupper() else (FRAMES["address"], "{word}")
        )
    # Half of the frames of each role, so that nouns also have six frames.
    return (*FRAMES["subject"][:3], *FRAMES["object"][:3]), PHRASES[kind]


def _fill_frames(
    first: str, second: str, frames: Sequence[str], phrase: str
) -> Iterator[ContrastPair]:
    unit = f"{first}/{second}"
    for frame in frames:
        begin = frame.index("{word}") + phrase.index("{word}")
        first_text, second_text = (
            _capitalize_first(frame.format(word=phrase.format(word=word)))
            for word in (first, second)
        )
        spans = ((begin, begin + len(first)), (begin, begin + len(second)))
        yield ContrastPair(
            f"{unit}: {frame.format(word='-')}", first_text, second_text, spans, unit
        )


def _capitalize_first(text: str) -> str:
    return text[0].upper() + text[1:]


def _pairs_within_groups(lexicon: Lexicon) -> Iterator[ContrastPair]:
    if not lexicon.placebos:
        raise NotMeasurableError(
            f"{lexicon.name} lists no words of one group that can replace each other",
            hint="add a [[placebo]] block to it, or use the contrast tense or number",
        )
    for group, rows in lexicon.placebos:
        # Reversed, so that the first row of the lexicon decides for a word that is in several rows.
        kinds = {term.word(group): (term.kind, term.role) for term in reversed(lexicon.terms)}
        for first, second in rows:
            yield from _fill_frames(
                first, second, *_frames_for(*kinds.get(first, ("person", None)), first)
            )


def _orient_pair(
    swapped: SwapResult, lexicon: Lexicon, group_pair: tuple[str, str]
) -> ContrastPair | str:
    """Return the pair with the text of the first group first, or the reason why there is none."""
    if swapped.refusals:
        return swapped.refusals[0].reason
    sides = {group for change in swapped.changes for group in lexicon.groups_of(change.old)}
    named_groups = [group for group in group_pair if group in sides]
    # A text that names both groups has no side and would cancel out in a difference.
    if len(named_groups) != 1:
        return "it names both groups" if named_groups else "it names neither group"
    change = swapped.changes[0]
    texts = (swapped.original, swapped.text)
    spans = ((change.start, change.end), (change.new_start, change.new_end))
    unit = f"{change.old}/{change.new}"
    if named_groups[0] == group_pair[1]:
        texts, spans, unit = texts[::-1], spans[::-1], f"{change.new}/{change.old}"
    # The id is a hash of both texts, so that it does not depend on the order of the corpus.
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
    return ContrastPair(f"{unit}: {digest}", *texts, spans, digest)


def _select_pairs(
    pairs: tuple[ContrastPair, ...], n: int | None, seed: int
) -> tuple[ContrastPair, ...]:
    """Select n pairs such that every unit occurs once before any unit occurs twice."""
    if n is None:
        return pairs
    if not 1 <= n <= len(pairs):
        raise LevelheadError(
            f"{n} pairs are requested and there are {len(pairs)}",
            hint=f"give 1 to {len(pairs)}, or leave n out for all",
        )
    # All pairs are permuted for every n, so that a smaller selection is part of a larger one.
    rng = np.random.default_rng(seed)
    unit_counts: Counter[str] = Counter()
    rounds: list[tuple[int, int, ContrastPair]] = []
    # A round-robin over units: with few pairs, no word pair dominates the fitted direction.
    for i in rng.permutation(len(pairs)):
        rounds.append((unit_counts[pairs[i].unit], len(rounds), pairs[i]))
        unit_counts[pairs[i].unit] += 1
    return tuple(pair for _, _, pair in sorted(rounds, key=lambda row: row[:2])[:n])
