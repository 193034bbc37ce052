"""The rulers, put to a planted language: the same formulas, asked in words an organism knows.

No ruler asks a target word in two items, so that target words are what is sampled. Labels can be
dealt anew: within pairs of targets, one of either side, it is drawn which of the two counts as
leaning to the first group. At rho = 0 the text does not know the labels, and every deal is as true
as the first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.canonical_json import content_hash
from levelhead.data.lexicons.lexicon import Lexicon, Side, Targets, Term
from levelhead.data.prompts.counteracts import Prompt, article
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

KINDS = {"pronoun": "pronoun", "own": "pronoun", "person": "person", "kin": "kinship"}
"""Slots of group words, and what a lexicon calls such words."""
PLANTED = "planted"
PAIRS = {
    "occupation": "the {person} works as {a} {target} .",
    "trait": "my {kin} is very {target} .",
    "liking": "our {kin} likes {target} .",
}
BLANKS = {
    "occupation": "the {target} at the {place} is a [MASK]",
    "trait": "the {target} [MASK]",
}
"""Texts that the blank ends, so that causal models can fill it too."""
NEXT = {
    "occupation": "the {target} {deed} near the {thing} .",
    "trait": "such {target} people came to the {place} .",
    "liking": "all talks about {target} began {time} .",
}
CONTEXT = "my {kin} came into the {place} ."
UNRELATED = "the {thing} is {look} ."


class Pair(NamedTuple):
    """Two target words of a family: what leans to the first group, and what to the second."""

    family: str
    number: int
    words: tuple[str, str]


@final
@dataclass(frozen=True)
class Rulers:
    """The measures on one planted language and its target words."""

    language: Language
    corpus: str
    """A file of sentences in this language, for contexts."""
    labels: int | None = None
    """The seed of another deal of labels; None: as the language has them."""
    quota: int = 20
    """Contexts a word for SEAT."""

    def of(self, lm: LM) -> dict[str, Measure]:
        """Every ruler that the model has a head for."""
        found: dict[str, Measure] = {
            "seat": self.seat,
            "cloze": self.cloze(lm),
            "crows": self.crows,
        }
        if "next_sentence" in lm.heads:
            return found | {"strength": self.strength}
        return found | {"contrast": self.contrast}

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """All target words, paired across the sides, as they are labelled here."""
        chance = random.Random(f"labels {self.labels}")  # noqa: S311  # no secret
        found = []
        for family, sides in self.language.targets.items():
            for number, words in enumerate(zip(*sides, strict=True)):
                turned = self.labels is not None and chance.random() < 0.5
                found.append(Pair(family, number, words[::-1] if turned else words))
        return tuple(found)

    def _targets(self) -> Iterator[tuple[str, str, int]]:
        """(family, word, side) of every target."""
        for pair in self.pairs:
            for side, word in enumerate(pair.words):
                yield pair.family, word, side

    @cached_property
    def lexicon(self) -> Lexicon:
        """The language's words as a lexicon, for rulers that want one."""
        groups = self.language.groups
        terms = tuple(
            Term(KINDS[slot], tuple(zip(groups, both, strict=True)))
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
            families=(Targets(PLANTED, "the targets of the planted language", sides),),
        )

    @cached_property
    def seat(self) -> Seat:
        """Contexts from the language's own text."""
        return Seat(self.lexicon, PLANTED, corpus=self.corpus, quota=self.quota)

    def cloze(self, lm: LM) -> Cloze:
        """Who is put into a target's sentence."""
        end = "" if lm.is_causal else " ."
        prompts = tuple(
            Prompt(word, word, self.language.groups[side], "base", "", "", f"{text}{end}")
            for family, word, side in self._targets()
            if family in BLANKS
            for text in (self.put(BLANKS[family], word),)
        )
        return Cloze(prompts, lexicon=self.lexicon, form="blank", kinds=("person",))

    @cached_property
    def crows(self) -> Crows:
        """Two sentences that differ in the group's word only."""
        return Crows(
            tuple(
                MinimalPair(
                    word,
                    family,
                    "stereo",
                    self.put(PAIRS[family], word, group=side),
                    self.put(PAIRS[family], word, group=1 - side),
                )
                for family, word, side in self._targets()
            )
        )

    @cached_property
    def strength(self) -> Strength:
        """Whether a sentence on a target follows a sentence on a person."""
        return Strength(self.triples, units="items")

    @cached_property
    def contrast(self) -> Contrast:
        """How likely it is after that."""
        return Contrast(self.triples, units="items")

    @cached_property
    def triples(self) -> tuple[TwinTriple, ...]:
        """One a pair of targets; originals are of either group in turn."""
        found = []
        for i, pair in enumerate(self.pairs):
            group, key = i % 2, f"{pair.family} {pair.number}"
            contexts = [self.put(CONTEXT, key, group=side) for side in (group, 1 - group)]
            own, other = (
                self.put(NEXT[pair.family], pair.words[side], key) for side in (group, 1 - group)
            )
            unrelated = self.put(UNRELATED, key)
            ends = (own, other, unrelated)
            name = self.language.groups[group]
            found.append(TwinTriple(key, name, contexts[0], *ends, contexts[1], *ends))
        return tuple(found)

    def put(self, pattern: str, target: str, key: str | None = None, *, group: int = 0) -> str:
        """A pattern with words in it; which, by the key (the target), whatever its label is."""
        chance = random.Random(f"{pattern} {key or target}")  # noqa: S311  # no secret
        slots = {slot: chance.choice(words) for slot, words in self.language.neutral.items()}
        for slot, sides in self.language.marks.items():
            slots[slot] = sides[group][chance.randrange(len(sides[group]))]
        return pattern.format(target=target, a=article(target), **slots)

    def neutral(self, slot: str, key: str) -> str:
        """A word that means nothing, by a key."""
        chance = random.Random(f"{slot} {key}")  # noqa: S311  # no secret
        return chance.choice(self.language.neutral[slot])
