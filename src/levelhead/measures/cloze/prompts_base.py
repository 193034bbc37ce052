"""The prompts of Counteracts (Zhang 2023): "The [MASK] works as a nurse", asked of any model.

A verbalizer is the words of a lexicon's two groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.data.lexicons.lexicon import Kind, Lexicon
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.prompts.counteracts import Prompt, Set, counteracts
from levelhead.measures.base import Measure, Need, chosen, items_hash, refuse_idle
from levelhead.measures.cloze.formatting import Form, Separator, wording
from levelhead.measures.items import Item
from levelhead.measures.metric import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

BASE = "base"
FACTORS = ("occupations", "backgrounds")
PAPER = "Zhang 2023"
KINDS = ("pronoun", "person")
"""Kinds of words of a lexicon that the verbalizer holds by default."""


@dataclass(frozen=True)
class Prompted(Measure):
    """What measures on the prompts of Counteracts share. Abstract."""

    prompts: Set | tuple[Prompt, ...] = "winobias40"
    """winobias40 (2,680 prompts of 40 occupations), table1 (5,452 of 58), or your own."""
    backgrounds: int | None = None
    """How many background occupations are drawn a prompt; all by default."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    kinds: tuple[str, ...] = KINDS
    """Which kinds of the lexicon's words the verbalizer holds. To a masked model, words of several
    tokens cost rows of their own: with "kinship" added, twenty times as many."""
    words: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """The verbalizer's words of the two groups, instead of the lexicon's."""
    form: Form = "auto"
    """How a prompt is put. "blank": as it is, for masked models; "paper" (for GPT-2): the word
    target in the blank, then "The target is"; "natural": "The person who works as a nurse is a";
    "chat": the same as a request in the model's chat template, and the beginning of the answer.
    "auto": blank for masked models, natural for causal ones."""
    separator: Separator = "native"
    """Between knowledge and base: the model's own, or "as_paper" ([SEP], <s>)."""

    needs: ClassVar[tuple[Need, ...]] = ("masked", "causal")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prompts, str):
            chosen(self.prompts, get_args(Set), "set of prompts")
        chosen(self.form, get_args(Form), "form")
        chosen(self.separator, get_args(Separator), "separator")
        if self.words is not None:
            refuse_idle(self, ("kinds",), "words of your own")
        if not self.kinds:
            raise LevelheadError("no kind of words", mend="give at least one")
        for kind in self.kinds:
            chosen(kind, get_args(Kind), "kind of words")
        if self.backgrounds is not None and not isinstance(self.prompts, str):
            raise LevelheadError(
                "backgrounds are drawn for the published prompts only",
                mend="choose among your own prompts before",
            )

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @cached_property
    def items(self) -> tuple[Prompt, ...]:
        """The prompts."""
        found = (
            tuple(counteracts(self.prompts, backgrounds=self.backgrounds))
            if isinstance(self.prompts, str)
            else self.prompts
        )
        strange = {prompt.dominated for prompt in found} - set(self.compared)
        if strange:
            raise LevelheadError(
                f"the prompts speak of {sorted(strange)[0]!r}, which is not compared here",
                mend=f"give groups that hold it; now: {', '.join(self.compared)}",
            )
        return found

    @property
    def compared(self) -> tuple[str, str]:
        """The two groups that are compared."""
        return self.own_lexicon.two(self.groups)

    @property
    def data(self) -> Mapping[str, str]:
        """The prompts and the lexicon."""
        name = self.prompts if isinstance(self.prompts, str) else "own"
        return {
            f"prompts {name}": items_hash(self.items),
            f"lexicon {self.own_lexicon.name}": self.own_lexicon.sha256,
        }

    def varied(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """The sentence, and the words that stand for the groups."""
        forms: tuple[str, ...] = ("natural", "paper") if lm.is_causal else ("blank",)
        if self.form == "chat":
            forms = ("chat", *forms)
        if self.words is not None:  # no kind is asked of them
            return {"form": forms}
        alone = tuple((kind,) for kind in self.kinds)
        return {"form": forms, "kinds": (self.kinds, *alone) if len(alone) > 1 else (self.kinds,)}

    def verbalizer(self, lm: LM) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The words of the two groups that the model knows, and those it does not."""
        known: list[tuple[str, ...]] = []
        lost: list[str] = []
        for number, group in enumerate(self.compared):
            found = self.words[number] if self.words else self._of_lexicon(group)
            kept: list[str] = []
            for word in dict.fromkeys(word for word in found if word is not None):
                (kept if lm.pieces(word) else lost).append(word)
            if not kept:
                raise NotMeasurable(
                    f"the model knows no word of {group!r}",
                    mend="use a lexicon whose words are in its vocabulary",
                )
            known.append(tuple(kept))
        return known[0], known[1], tuple(lost)

    def blank_words(self, lm: LM) -> Sequence[str]:
        """The verbalizer."""
        first, second, _ = self.verbalizer(lm)
        return first + second

    def _of_lexicon(self, group: str) -> list[str | None]:
        return [
            term.word(group)
            for term in self.own_lexicon.terms
            if term.kind in self.kinds and term.marks(group)
        ]

    def texts(self, lm: LM) -> tuple[tuple[Item, ...], str]:
        """The prompts as items, and how they were put."""
        way = wording(lm, self.form, self.separator)
        items = tuple(
            Item(
                prompt.id,
                ((way.put(prompt),),),
                # Without a background there is none to redraw: a kind is not one of a sample.
                (prompt.occupation, prompt.background or f"{prompt.kind}, {prompt.occupation}"),
                prompt.dominated,
                prompt.kind,
            )
            # The first group's occupations first: formulas subtract the second from the first.
            for prompt in sorted(self.items, key=lambda one: one.dominated != self.compared[0])
        )
        return items, str(way)

    def samples(self, item: Item) -> bool:
        """The base prompts: knowledge is another question."""
        return item.kind == BASE

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations, within the groups that dominate them."""
        return self.sampled(readouts).design(["occupations"], grouped=True)


def crossed_factors(part: Readouts) -> list[str] | None:
    """What was sampled for one kind of knowledge: occupations; all factors where these cross.

    With one background an occupation they do not, and redrawing both would leave nothing at times.
    """
    return None if len(part) > len({item.units[0] for item in part.items}) else ["occupations"]


def base_only(readouts: Readouts, values: torch.Tensor) -> torch.Tensor:
    """The values of base prompts."""
    return values[torch.tensor([item.kind == BASE for item in readouts.items])]
