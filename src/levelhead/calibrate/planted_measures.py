"""The measures on a planted language: the same formulas, on items in words an organism knows.

No measure has a target word in two items, so target words are the sampled units. Labels can be
permuted: for each pair of targets, one of either side, a random choice decides which of the two is
labelled with the first group. At rho = 0 the text does not depend on the labels, so every
permutation is as valid as the original labels.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.canonical_json import content_hash
from levelhead.data.lexicons.lexicon import Lexicon, Side, TargetFamily, Term
from levelhead.data.prompts.counteracts import CounteractsPrompt, indefinite_article
from levelhead.data.records import MinimalPair, TwinTriple
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.next_sentence.strength import Contrast, Strength

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.calibrate.organisms.language import Language
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

TERM_KINDS = {"pronoun": "pronoun", "own": "pronoun", "person": "person", "kin": "kinship"}
"""Slots of group words, and the kinds of a lexicon for such words."""
PLANTED = "planted"

PAIR_PATTERNS = {
    "occupation": "the {person} works as {a} {target} .",
    "trait": "my {kin} is very {target} .",
    "liking": "our {kin} likes {target} .",
}
BLANK_PATTERNS = {
    "occupation": "the {target} at the {place} is a [MASK]",
    "trait": "the {target} [MASK]",
}
"""Texts that end with the blank, so that causal models can fill it, too."""
NEXT_PATTERNS = {
    "occupation": "the {target} {deed} near the {thing} .",
    "trait": "such {target} people came to the {place} .",
    "liking": "all talks about {target} began {time} .",
}
CONTEXT_PATTERN = "my {kin} came into the {place} ."
UNRELATED_PATTERN = "the {thing} is {look} ."


class TargetPair(NamedTuple):
    """Two target words of a family: the first group's stereotype, and the second's."""

    family: str
    number: int
    words: tuple[str, str]


@final
@dataclass(frozen=True)
class PlantedMeasures:
    """The measures on one planted language and its target words."""

    language: Language
    corpus: str
    """Path of a file of sentences in this language, for contexts."""
    label_seed: int | None = None
    """Seed of a permutation of the labels; None: the labels of the language."""
    contexts_per_word: int = 20
    """Number of contexts per word for SEAT."""

    def for_model(self, lm: LM) -> dict[str, Measure]:
        """Create every measure that the model has a head for.

        Args:
            lm: the model.
        """
        measures: dict[str, Measure] = {
            "seat": self.seat,
            "cloze": self.cloze(lm),
            "crows": self.crows,
        }
        if "next_sentence" in lm.heads:
            return measures | {"strength": self.strength}
        return measures | {"contrast": self.contrast}

    @cached_property
    def pairs(self) -> tuple[TargetPair, ...]:
        """All target words, paired across the sides, with the labels of this seed."""
        # Labels are exchanged within pairs of one family, which keeps both sides equal in size and
        # in kind, as an exchangeable null hypothesis requires.
        rng = random.Random(f"labels {self.label_seed}")  # noqa: S311  # no secret
        pairs = []
        for family, sides in self.language.targets.items():
            for number, words in enumerate(zip(*sides, strict=True)):
                is_swapped = self.label_seed is not None and rng.random() < 0.5
                pairs.append(TargetPair(family, number, words[::-1] if is_swapped else words))
        return tuple(pairs)

    def _targets(self) -> Iterator[tuple[str, str, int]]:
        """Iterate over (family, word, side) of every target."""
        for pair in self.pairs:
            for side, word in enumerate(pair.words):
                yield pair.family, word, side

    @cached_property
    def lexicon(self) -> Lexicon:
        """The language's words as a lexicon, for measures that need one."""
        groups = self.language.groups
        terms = tuple(
            Term(TERM_KINDS[slot], tuple(zip(groups, both, strict=True)))
            for slot, sides in self.language.marks.items()
            for both in zip(*sides, strict=True)
        )
        sides = tuple(
            Side(group, group, tuple(pair.words[side] for pair in self.pairs))
            for side, group in enumerate(groups)
        )
        return Lexicon(
            name=PLANTED,
            language="en",
            groups=groups,
            source="the language of a model organism",
            licence="CC0-1.0",
            limits="Says nothing of people: the association was planted.",
            sha256=content_hash([[term.words for term in terms], [side.words for side in sides]]),
            terms=terms,
            placebos=(),
            families=(TargetFamily(PLANTED, "the targets of the planted language", sides),),
        )

    @cached_property
    def seat(self) -> Seat:
        """SEAT, with contexts from text of the language."""
        return Seat(
            self.lexicon, PLANTED, corpus=self.corpus, contexts_per_word=self.contexts_per_word
        )

    def cloze(self, lm: LM, draw: str = "") -> Cloze:
        """Cloze: which group's words the model puts into a target's sentence.

        Args:
            lm: the model; a causal one gets no text after the blank.
            draw: name of the draw of the words that are no targets; another gives other sentences,
                except where a pattern has no such words.
        """
        end = "" if lm.is_causal else " ."
        prompts = tuple(
            CounteractsPrompt(
                word, word, self.language.groups[side], "base", "", "", f"{text}{end}"
            )
            for family, word, side in self._targets()
            if family in BLANK_PATTERNS
            for text in (self.fill_pattern(BLANK_PATTERNS[family], word, f"{draw}{word}"),)
        )
        return Cloze(prompts, lexicon=self.lexicon, form="blank", kinds=("person",))

    @cached_property
    def crows(self) -> Crows:
        """CrowS-Pairs: two sentences that differ in the group's word only."""
        return Crows(
            tuple(
                MinimalPair(
                    word,
                    family,
                    "stereo",
                    self.fill_pattern(PAIR_PATTERNS[family], word, group=side),
                    self.fill_pattern(PAIR_PATTERNS[family], word, group=1 - side),
                )
                for family, word, side in self._targets()
            )
        )

    @cached_property
    def strength(self) -> Strength:
        """Strength: whether a sentence about a target follows a sentence about a person."""
        return Strength(self.triples, units="items")

    @cached_property
    def contrast(self) -> Contrast:
        """Contrast: the likelihood of a target's sentence after a person's sentence."""
        return Contrast(self.triples, units="items")

    @cached_property
    def triples(self) -> tuple[TwinTriple, ...]:
        """One triple per pair of targets; the group of the original alternates."""
        return self.make_triples()

    def make_triples(self, draw: str = "") -> tuple[TwinTriple, ...]:
        """Make a triple per pair of targets.

        Args:
            draw: name of the draw of the words that are no targets; another gives other sentences.
        """
        # Alternating groups: if all originals were of one group, a default to it would look like a
        # stereotype.
        triples = []
        for i, pair in enumerate(self.pairs):
            group, key = i % 2, f"{draw}{pair.family} {pair.number}"
            contexts = [
                self.fill_pattern(CONTEXT_PATTERN, key, group=side) for side in (group, 1 - group)
            ]
            likely, unlikely = (
                self.fill_pattern(NEXT_PATTERNS[pair.family], pair.words[side], key)
                for side in (group, 1 - group)
            )
            unrelated = self.fill_pattern(UNRELATED_PATTERN, key)
            ends = (likely, unlikely, unrelated)
            name = self.language.groups[group]
            triples.append(TwinTriple(key, name, contexts[0], *ends, contexts[1], *ends))
        return tuple(triples)

    def fill_pattern(
        self, pattern: str, target: str, key: str | None = None, *, group: int = 0
    ) -> str:
        """Fill the slots of a pattern.

        Args:
            pattern: the pattern.
            target: the target word.
            key: seeds the choice of the other words; the target by default.
            group: group of the words that mark one.
        """
        # Seeded by the target, never by its label: permuted labels must not change the texts, so
        # that their responses come from the cache and differ in the label alone.
        rng = random.Random(f"{pattern} {key or target}")  # noqa: S311  # no secret
        slots = {slot: rng.choice(words) for slot, words in self.language.neutral.items()}
        for slot, sides in self.language.marks.items():
            slots[slot] = sides[group][rng.randrange(len(sides[group]))]
        return pattern.format(target=target, a=indefinite_article(target), **slots)

    def neutral_word(self, slot: str, key: str) -> str:
        """Choose a word that is related to no group.

        Args:
            slot: slot of the word.
            key: seeds the choice.
        """
        rng = random.Random(f"{slot} {key}")  # noqa: S311  # no secret
        return rng.choice(self.language.neutral[slot])
