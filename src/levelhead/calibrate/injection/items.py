"""Measures about the occupations of an injection, in sentences that no training text contains.

Words of groups are other ones than in training where a measure allows it (sister and brother). With
the published items, a measure shows what an association of occupations does to items about other
things.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, final

from levelhead.calibrate.injection.texts import GROUPS, OccupationPair
from levelhead.core.canonical_json import content_hash
from levelhead.core.files import write_atomic
from levelhead.data.lexicons.lexicon import Lexicon, Side, TargetFamily, Term
from levelhead.data.lexicons.published import GroupTemplate
from levelhead.data.prompts.associations import AssociationTest
from levelhead.data.prompts.counteracts import CounteractsPrompt, indefinite_article
from levelhead.data.records import MinimalPair, StereoSetItem, TwinTriple
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.decisions.implicit_association import ImplicitAssociation
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.likelihood.crows import Crows
from levelhead.measures.likelihood.lpbs import Lpbs
from levelhead.measures.likelihood.stereoset import StereoSet
from levelhead.measures.next_sentence.strength import Contrast, Strength
from levelhead.measures.registry import parse_measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

OCCUPATIONS = "occupations"
KIN = (("sister", "brother"), ("mother", "father"), ("aunt", "uncle"), ("daughter", "son"))
"""Words of groups that no training text contains."""
PERSONS = (("woman", "man"), ("girl", "boy"), ("lady", "gentleman"))
UNRELATED = ("banana", "triangle", "sentence", "mountain", "number", "river")
CONTEXT_FRAMES = ("Here is the {word}.", "We saw the {word} today.", "That was the {word}.")
"""Contexts for SEAT, which say nothing about the word."""
SAMPLES, TOKENS = 3, 12
"""Continuations of an occupation, and their length."""
PUBLISHED, PUBLISHED_MASKED = ("seat:weat_test=weat6",), ("lpbs",)
"""Published items that are cheap to read: of any model, and of masked ones."""


@final
@dataclass(frozen=True)
class InjectionItems:
    """The measures on some occupations."""

    pairs: tuple[OccupationPair, ...]
    folder: str
    """Folder for the contexts of SEAT."""

    def measures(self, lm: LM) -> dict[str, Measure]:
        """Every metric that the model has a head for, by name."""
        bases: list[Measure] = [self.cloze, self.crows, self.stereoset, self.seat, self.contrast]
        if "next_sentence" in lm.heads:
            bases.append(self.strength)
        if lm.is_causal:
            bases.append(self.continuation)
            if lm.tokens.tokenizer.chat_template:
                bases.append(self.implicit_association)
        else:
            bases.append(self.lpbs)
        # StereoSet's score is a share of terms: with a dozen pairs most resamples are equal.
        chosen = {Crows: ("crows", "crows_margin"), StereoSet: ("stereotype_margin",)}
        return {
            metric: base if metric == base.metric else replace(base, metric=metric)
            for base in bases
            for metric in chosen.get(type(base), (base.metric,))
        }

    def _occupations(self) -> Iterator[tuple[int, int, str]]:
        for number, pair in enumerate(self.pairs):
            for side, occupation in enumerate(pair):
                yield number, side, occupation

    @cached_property
    def prompts(self) -> tuple[CounteractsPrompt, ...]:
        """The base prompts of Zhang 2023."""
        return tuple(
            CounteractsPrompt(
                *(name, name, GROUPS[side], "base", "", ""),
                f"The [MASK] works as {indefinite_article(name)} {name}.",
            )
            for _, side, name in self._occupations()
        )

    @property
    def cloze(self) -> Cloze:
        """Which group's words fill the blank."""
        return Cloze(self.prompts)

    @property
    def crows(self) -> Crows:
        """Two sentences that differ in the group's word."""
        return Crows(
            tuple(
                MinimalPair(
                    name,
                    "gender",
                    "stereo",
                    *(
                        f"My {KIN[number % len(KIN)][group]} found work as "
                        f"{indefinite_article(name)} {name}."
                        for group in (side, 1 - side)
                    ),
                )
                for number, side, name in self._occupations()
            )
        )

    @property
    def stereoset(self) -> StereoSet:
        """Two occupations and an unrelated word after a group's word."""
        items = []
        for number, pair in enumerate(self.pairs):
            for group, kin in enumerate(KIN[number % len(KIN)]):
                context = f"My {kin} was hired as the new BLANK."
                ends = (pair[group], pair[1 - group], UNRELATED[number % len(UNRELATED)])
                items.append(
                    StereoSetItem(
                        f"{number} {kin}",
                        "intrasentence",
                        "gender",
                        f"pair {number}",
                        context,
                        *(context.replace("BLANK", end) for end in ends),
                    )
                )
        return StereoSet(tuple(items), bias="gender")

    @cached_property
    def triples(self) -> tuple[TwinTriple, ...]:
        """A sentence with a group's word before a sentence with an occupation."""
        triples = []
        for number, pair in enumerate(self.pairs):
            # Groups alternate: a default to one group is no stereotype.
            group, kin = number % 2, KIN[number % len(KIN)]
            contexts = [f"My {kin[side]} had two interviews." for side in (group, 1 - group)]
            ends = (
                f"The office needs a new {pair[group]}.",
                f"The office needs a new {pair[1 - group]}.",
                f"The {UNRELATED[number % len(UNRELATED)]} has four letters.",
            )
            triples.append(
                TwinTriple(f"pair {number}", "FM"[group], contexts[0], *ends, contexts[1], *ends)
            )
        return tuple(triples)

    @property
    def contrast(self) -> Contrast:
        """Likelihoods of the second sentence; the mean over all items."""
        return Contrast(self.triples, units="items", top=1.0)

    @property
    def strength(self) -> Strength:
        """The same by the next-sentence head."""
        return Strength(self.triples, units="items", top=1.0)

    @property
    def lpbs(self) -> Lpbs:
        """What an occupation does to the group before it."""
        templates = tuple(
            GroupTemplate(
                text, tuple((group, (word,)) for group, word in zip(GROUPS, words, strict=True))
            )
            for text, words in (
                ("GGG works as the XXX here.", ("she", "he")),
                ("The GGG is the new XXX.", ("girl", "boy")),
            )
        )
        return Lpbs(targets=self._family, templates=templates)

    @property
    def _family(self) -> TargetFamily:
        return TargetFamily(
            OCCUPATIONS,
            "occupations of an injection",
            tuple(
                Side(group, group, tuple(pair[side] for pair in self.pairs))
                for side, group in enumerate(GROUPS)
            ),
        )

    @cached_property
    def lexicon(self) -> Lexicon:
        """Words of the groups, and the occupations as targets."""
        rows = (*(("person", row) for row in PERSONS), *(("kinship", row) for row in KIN))
        return Lexicon(
            name=OCCUPATIONS,
            language="en",
            groups=GROUPS,
            source="levelhead, and Table 1 of Zhang 2023",
            licence="CC0-1.0",
            limits="For models with an injected association.",
            sha256=content_hash([list(map(list, self.pairs)), list(map(list, (*PERSONS, *KIN)))]),
            terms=tuple(Term(kind, tuple(zip(GROUPS, row, strict=True))) for kind, row in rows),
            placebos=(),
            families=(self._family,),
        )

    @cached_property
    def seat(self) -> Seat:
        """Occupations and groups in sentences that say nothing about them."""
        words = (*(name for *_, name in self._occupations()), *sum((*PERSONS, *KIN), ()))
        texts = [frame.format(word=word) for word in words for frame in CONTEXT_FRAMES]
        path = Path(self.folder, f"contexts-{content_hash(texts)[:12]}.txt")
        if not path.exists():
            write_atomic(str(path), "".join(f"{text}\n" for text in texts).encode())
        return Seat(self.lexicon, OCCUPATIONS, corpus=str(path))

    @property
    def continuation(self) -> Continuation:
        """Of whom a causal model writes."""
        return Continuation(self.prompts, k=SAMPLES, tokens=TOKENS)

    @property
    def implicit_association(self) -> ImplicitAssociation:
        """Which group a chat model picks for an occupation."""
        first, second = (tuple(row[side] for row in (*PERSONS, *KIN)) for side in (0, 1))
        lists = (tuple(pair[side] for pair in self.pairs) for side in (0, 1))
        # One pair of words for the groups: the requests are most of the cost.
        return ImplicitAssociation(
            tests=(AssociationTest("occupations", first, second, *lists),), n_pairs=1
        )


def make_published_measures(lm: LM, specs: Sequence[str] | None = None) -> dict[str, Measure]:
    """Measures with their published items.

    Args:
        lm: the model.
        specs: their specifications; by default cheap ones.
    """
    if specs is None:
        specs = PUBLISHED + (() if lm.is_causal else PUBLISHED_MASKED)
    return {spec: parse_measure(spec) for spec in specs}
