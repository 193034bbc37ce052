"""Pairs of sentences of a planted language that differ in a group's word, or in another."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from levelhead.data.counterfactuals.contrast_pairs import ContrastPair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.calibrate.organisms.language import Language

GROUP_FRAMES = {
    "kin": "my {word} came into the {place} .",
    "person": "the {word} {deed} near the {thing} .",
    "pronoun": "{word} {deed} near the {thing} .",
}
"""Sentences that name a person, by the slot of the word that marks the group."""
NEUTRAL_FRAMES = {
    "place": "my {kin} came into the {word} .",
    "deed": "the {person} {word} near the {thing} .",
    "thing": "{pronoun} {deed} near the {word} .",
}
"""The same sentences, by the slot of a word that is related to no group."""
SENTENCES_PER_PAIR = 8
"""Number of sentences for a pair of words."""


def make_planted_pairs(language: Language, *, seed: int = 0) -> tuple[ContrastPair, ...]:
    """Make sentences that differ in the word that marks the group.

    Args:
        language: the language.
        seed: random seed of the other words.
    """
    rng = random.Random(f"paired {seed}")  # noqa: S311  # no secret
    return tuple(
        pair
        for slot, frame in GROUP_FRAMES.items()
        for words in zip(*language.marks[slot], strict=True)
        for pair in _fill_frame(language, frame, words, 0, rng)
    )


def make_planted_placebo_pairs(
    language: Language, *, seed: int = 0
) -> tuple[tuple[ContrastPair, ...], ...]:
    """Make sentences that differ in a neutral word, for every neutral slot; groups alternate.

    Args:
        language: the language.
        seed: random seed of the pairs and of the other words.
    """
    rng = random.Random(f"placebo {seed}")  # noqa: S311  # no secret
    pair_sets = []
    for slot, frame in NEUTRAL_FRAMES.items():
        words = list(language.neutral[slot])
        rng.shuffle(words)
        pair_sets.append(
            tuple(
                pair
                for number, word_pair in enumerate(zip(words[::2], words[1::2], strict=False))
                for pair in _fill_frame(language, frame, word_pair, number % 2, rng)
            )
        )
    return tuple(pair_sets)


def _fill_frame(
    language: Language, frame: str, words: tuple[str, str], group: int, rng: random.Random
) -> Iterator[ContrastPair]:
    start = frame.index("{word}")
    for number in range(SENTENCES_PER_PAIR):
        slots = {slot: rng.choice(choices) for slot, choices in language.neutral.items()}
        slots |= {slot: rng.choice(sides[group]) for slot, sides in language.marks.items()}
        before = frame[:start].format(**slots)
        # 6 is the length of "{word}".
        texts = [before + word + frame[start + 6 :].format(**slots) for word in words]
        first, second = ((len(before), len(before) + len(word)) for word in words)
        unit = "/".join(words)
        yield ContrastPair(f"{unit} {number}: {frame}", texts[0], texts[1], (first, second), unit)
