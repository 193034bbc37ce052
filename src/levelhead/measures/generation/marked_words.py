"""Words that mark texts about a group (Monroe et al. 2008, as in Marked Personas).

Monroe, Colaresi and Quinn 2008 ("Fightin' Words") compare how often two sets of texts have a word
by its log-odds, with a Dirichlet prior that shrinks rare words. As in Cheng et al. 2023, the prior
of a word is its count in all texts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections import Counter

MARKED_Z = 1.96
"""z from which on Cheng et al. 2023 call a word marked."""


class WordOdds(NamedTuple):
    """How much more often texts about the first group have a word than those about the second."""

    log_odds: float
    """Difference of the log-odds, in nats (Monroe et al. 2008, eq. 16)."""
    z: float
    """The same over its standard error (eqs. 20 and 22). Words of a text are not independent, so it
    ranks words, and is no test."""


def compare_word_counts(first: Counter[str], second: Counter[str]) -> dict[str, WordOdds]:
    """Compare the counts of every word in texts about two groups.

    Args:
        first: counts of the words in texts about the first group.
        second: counts of the words in texts about the second group.
    """
    prior = first + second
    n_first, n_second = first.total(), second.total()
    n_prior = prior.total()
    odds = {}
    for word, a in prior.items():
        # A text of a single word type has no odds.
        if a == n_prior:
            continue
        y, x = first[word] + a, second[word] + a
        delta = math.log(y / (n_first + n_prior - y)) - math.log(x / (n_second + n_prior - x))
        odds[word] = WordOdds(delta, delta / math.sqrt(1 / y + 1 / x))
    return odds


def list_marked_words(
    odds: dict[str, WordOdds], *, n: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that mark texts about the first and about the second group, strongest first.

    Args:
        odds: every word's odds.
        n: maximum number of words for a group.
    """
    ranked = sorted(odds, key=lambda word: (-odds[word].z, word))
    first = [word for word in ranked if odds[word].z >= MARKED_Z]
    second = [word for word in reversed(ranked) if odds[word].z <= -MARKED_Z]
    return tuple(first[:n]), tuple(second[:n])
