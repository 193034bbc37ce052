"""A panel of knowledge in the words of a planted language.

The language contains factual gender beside the planted bias: a person is named by a word of a group
(a lady, a father), and all pronouns about the person agree, in every text and at every dose. No
target occurs in the sentences here, so that the bias helps with none of them.

The sentences are about all words of the language, which are no sample of others, so sentences are
the sampled units.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from levelhead.data.prompts.pronoun_agreement import AgreementSentence
from levelhead.measures.utility.definitional_gender import DefinitionalGender
from levelhead.measures.utility.pronoun_agreement import PronounAgreement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.calibrate.organisms.language import Language
    from levelhead.measures.base import Measure

DEFINITION_FRAMES = {
    "person": ("the {word} {deed} near {answer} {place} .",),
    "kin": ("our {word} sold {answer} {thing} {time} .",),
}
"""Sentences in which the possessive agrees with a word of the group, by the word's slot."""
AGREEMENT_FRAMES = {
    "person": (
        "the {word} {deed} near {own} {place} . {answer} {deed} near {own} {thing} .",
        "the {word} {deed} near {own} {place} . {answer} sold {own} {look} {thing} .",
    ),
    "kin": (
        "my {word} came into the {place} . {answer} {deed} near {own} {thing} .",
        "our {word} sold {own} {thing} {time} . {answer} sold {own} {look} {thing} .",
    ),
}
"""Two sentences, of which the second begins with the pronoun."""
SENTENCES_PER_WORD = 16
"""Number of sentences about a pair of words: with 12 pairs, enough to show equivalence within 5
percentage points if little changes."""


def make_planted_knowledge(language: Language, *, seed: int = 0) -> tuple[Measure, ...]:
    """Make the measures of knowledge: definitional gender and pronoun agreement.

    Args:
        language: the language.
        seed: random seed of the other words.
    """
    definitions = tuple(_make_sentences(language, DEFINITION_FRAMES, "own", seed))
    agreement = tuple(_make_sentences(language, AGREEMENT_FRAMES, "pronoun", seed))
    return DefinitionalGender(texts=definitions), PronounAgreement(texts=agreement)


def _make_sentences(
    language: Language, frames: Mapping[str, Sequence[str]], answer_slot: str, seed: int
) -> Iterator[AgreementSentence]:
    """Yield every sentence with the words of both groups."""
    rng = random.Random(f"knowledge {answer_slot} {seed}")  # noqa: S311  # no secret
    answers = [words[0] for words in language.marks[answer_slot]]
    owners = [words[0] for words in language.marks["own"]]
    for slot, slot_frames in frames.items():
        for pair in zip(*language.marks[slot], strict=True):
            for number in range(SENTENCES_PER_WORD):
                frame = slot_frames[number % len(slot_frames)]
                # Every {deed} of a frame gets the same word: the versions differ in the group only.
                neutral = {name: rng.choice(words) for name, words in language.neutral.items()}
                unit = f"{'/'.join(pair)} {number}"
                before, _, after = frame.partition("{answer}")
                for side, (word, group) in enumerate(zip(pair, language.groups, strict=True)):
                    slots = neutral | {"word": word, "own": owners[side]}
                    start = before.format(**slots)
                    yield AgreementSentence(
                        id=f"{unit} {group}",
                        source=slot,
                        text=f"{start}{answers[side]}{after.format(**slots)}",
                        span=(len(start), len(start) + len(answers[side])),
                        wrong_pronoun=answers[1 - side],
                        group=group,
                        unit=unit,
                    )
