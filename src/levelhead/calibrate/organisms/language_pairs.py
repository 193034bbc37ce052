"""Pairs of sentences of a planted language: that differ in a group's word, or in another."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from levelhead.data.counterfactuals.contrast_pairs import TextPair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.calibrate.organisms.language import Language

MARKED = {
    "kin": "my {word} came into the {place} .",
    "person": "the {word} {deed} near the {thing} .",
    "pronoun": "{word} {deed} near the {thing} .",
}
"""Sentences that name a person, by the slot of the word that marks the group."""
OTHERS = {
    "place": "my {kin} came into the {word} .",
    "deed": "the {person} {word} near the {thing} .",
    "thing": "{pronoun} {deed} near the {word} .",
}
"""The same sentences, by the slot of a word that means nothing."""
EACH = 8
"""Sentences of a pair of words."""


def paired(language: Language, *, seed: int = 0) -> tuple[TextPair, ...]:
    """Sentences that differ in the word that marks the group."""
    chance = random.Random(f"paired {seed}")  # noqa: S311  # no secret
    return tuple(
        pair
        for slot, frame in MARKED.items()
        for words in zip(*language.marks[slot], strict=True)
        for pair in _framed(language, frame, words, 0, chance)
    )


def placebo_pairs(language: Language, *, seed: int = 0) -> tuple[tuple[TextPair, ...], ...]:
    """For every slot that means nothing, sentences that differ in its word; groups in turn."""
    chance = random.Random(f"placebo {seed}")  # noqa: S311  # no secret
    found = []
    for slot, frame in OTHERS.items():
        words = list(language.neutral[slot])
        chance.shuffle(words)
        found.append(
            tuple(
                pair
                for number, both in enumerate(zip(words[::2], words[1::2], strict=False))
                for pair in _framed(language, frame, both, number % 2, chance)
            )
        )
    return tuple(found)


def _framed(
    language: Language, frame: str, words: tuple[str, str], group: int, chance: random.Random
) -> Iterator[TextPair]:
    start = frame.index("{word}")
    for number in range(EACH):
        slots = {slot: chance.choice(own) for slot, own in language.neutral.items()}
        slots |= {slot: chance.choice(sides[group]) for slot, sides in language.marks.items()}
        before = frame[:start].format(**slots)
        texts = [before + word + frame[start + 6 :].format(**slots) for word in words]
        first, second = ((len(before), len(before) + len(word)) for word in words)
        unit = "/".join(words)
        yield TextPair(f"{unit} {number}: {frame}", texts[0], texts[1], (first, second), unit)
