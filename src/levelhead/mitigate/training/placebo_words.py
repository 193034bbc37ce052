"""Words that name no group, as frequent as those that do: what a placebo is trained on instead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.matcher import WORD_RUN
from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon

NEIGHBOURS = 10
"""Number of words of about the same frequency from which a placebo word is drawn."""


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count in how many texts each word stands, folded; numbers are no words."""
    return Counter(
        word
        for text in texts
        for word in {fold_case(match[0]) for match in WORD_RUN.finditer(text)}
        if word.isalpha()
    )


def draw_placebo_words(
    words: Sequence[str],
    counts: Mapping[str, int],
    excluded: Collection[str],
    *,
    seed: int,
    is_usable: Callable[[str], bool] = lambda word: True,
) -> dict[str, str]:
    """Draw a word of about the same frequency for each word, each only once.

    Frequency is matched because vectors and probabilities of words depend on it.

    Args:
        words: Words to replace.
        counts: Numbers of texts by word.
        excluded: Words that are not drawn, folded.
        seed: Seed of the draw.
        is_usable: Whether a word can be drawn.
    """
    rng = np.random.default_rng(seed)
    remaining = sorted(word for word in counts if word not in excluded and is_usable(word))
    replacements: dict[str, str] = {}
    # Frequent words first: they have the fewest neighbours.
    for word in sorted(words, key=lambda word: (-counts.get(fold_case(word), 0), word)):
        if not remaining:
            raise LevelheadError(
                f"a placebo needs {len(words)} words that name no group, and the corpus has fewer",
                hint="give a larger corpus",
            )
        count = np.log1p(counts.get(fold_case(word), 0))
        remaining.sort(key=lambda other: (abs(np.log1p(counts[other]) - count), other))
        replacements[word] = remaining.pop(int(rng.integers(min(NEIGHBOURS, len(remaining)))))
    return replacements


def stereotype_words(lexicon: Lexicon, groups: tuple[str, str]) -> dict[str, str]:
    """Return the words that stereotypes associate with either group; none is in the lists of both.

    Args:
        lexicon: Lexicon with target words.
        groups: The two groups.
    """
    by_word: dict[str, set[str]] = {}
    for family in lexicon.families:
        for side in family.sides:
            if side.stereotyped_group in groups:
                for word in side.words:
                    by_word.setdefault(fold_case(word), set()).add(side.stereotyped_group)
    marked = {fold_case(word) for group in groups for word in lexicon.words(group)}
    result = {
        word: next(iter(sides))
        for word, sides in by_word.items()
        if len(sides) == 1 and word not in marked
    }
    if len(set(result.values())) < 2:
        raise LevelheadError(
            f"the lexicon {lexicon.name} has no stereotyped words for {' and '.join(groups)}",
            hint="give a lexicon with [targets] whose sides lean to both groups, such as gender-en",
        )
    return result
