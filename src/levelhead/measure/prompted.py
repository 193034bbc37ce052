"""The prompts of Counteracts (Zhang 2023): "The [MASK] works as a nurse", asked of any model.

A verbalizer is the words of a lexicon's two groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.data.lexicon import Kind, Lexicon
from levelhead.data.prompts import Prompt, Set, counteracts
from levelhead.data.published import any_lexicon
from levelhead.measure.asked import Item
from levelhead.measure.aspects import Aspect
from levelhead.measure.measure import Measure, Need, chosen, items_hash
from levelhead.measure.reductions import sides
from levelhead.models.tokens import MASK, NotReadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.statistics.designs import Design, Draw
    from levelhead.measure.readouts import Readouts
    from levelhead.models.lm import LM

Form = Literal["auto", "blank", "paper", "natural"]
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
    """Which kinds of the lexicon's words the verbalizer holds. Words of several tokens cost a
    forward for each: with "kinship" added, twenty times as many."""
    form: Form = "auto"
    """How a prompt is put. "blank": as it is, for masked models; "paper" (for GPT-2): the word
    target in the blank, then "The target is"; "natural": "The person who works as a nurse is a".
    "auto": blank for masked models, natural for causal ones."""

    needs: ClassVar[tuple[Need, ...]] = ("masked", "causal")

    def __post_init__(self) -> None:
        if isinstance(self.prompts, str):
            chosen(self.prompts, get_args(Set), "set of prompts")
        chosen(self.form, get_args(Form), "form")
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
        forms = ("natural", "paper") if lm.anatomy.cls.causal else ("blank",)
        alone = tuple((kind,) for kind in self.kinds)
        return {"form": forms, "kinds": (self.kinds, *alone) if len(alone) > 1 else (self.kinds,)}

    def verbalizer(self, lm: LM) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The words of the two groups that the model knows, and those it does not."""
        known: list[tuple[str, ...]] = []
        lost: list[str] = []
        for group in self.compared:
            found = (
                term.word(group)
                for term in self.own_lexicon.terms
                if term.kind in self.kinds and term.marks(group)
            )
            kept: list[str] = []
            for word in dict.fromkeys(word for word in found if word is not None):
                (kept if pieces_of(lm, word) else lost).append(word)
            if not kept:
                raise NotMeasurable(
                    f"the model knows no word of {group!r}",
                    mend="use a lexicon whose words are in its vocabulary",
                )
            known.append(tuple(kept))
        return known[0], known[1], tuple(lost)

    def texts(self, lm: LM) -> tuple[tuple[Item, ...], str]:
        """The prompts as items, and how they were put."""
        causal = lm.anatomy.cls.causal
        form = self.form if self.form != "auto" else ("natural" if causal else "blank")
        tokenizer = lm.tokens.tokenizer
        separator = " " if causal or not tokenizer.sep_token else f" {tokenizer.sep_token} "
        items = tuple(
            Item(
                prompt.id,
                ((_put(prompt, form, separator),),),
                (prompt.occupation, prompt.background or prompt.kind),
                prompt.dominated,
                prompt.kind,
            )
            # The first group's occupations first: formulas subtract the second from the first.
            for prompt in sorted(self.items, key=lambda one: one.dominated != self.compared[0])
        )
        return items, f"prompts put as {form!r}, knowledge before {separator!r}"

    def samples(self, item: Item) -> bool:
        """The base prompts: knowledge is another question."""
        return item.kind == BASE

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations, within the groups that dominate them."""
        return self.sampled(readouts).design(["occupations"], grouped=True)


def base_only(readouts: Readouts, values: torch.Tensor) -> torch.Tensor:
    """The values of base prompts."""
    return values[torch.tensor([item.kind == BASE for item in readouts.items])]


def half_difference(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Half the difference of the means of the occupations the first and second group dominate."""
    first, second = sides(values, draw)
    return (first.mean() - second.mean()) / 2


def _put(prompt: Prompt, form: str, separator: str) -> str:
    base = prompt.base
    if form == "paper":
        base = f"{base.replace(MASK, 'target')} The target is {MASK}"
    elif form == "natural":
        base = f"{base.replace(f'The {MASK}', 'The person who').rstrip('.')} is a {MASK}"
    return f"{prompt.knowledge}{separator}{base}" if prompt.knowledge else base


def pieces_of(lm: LM, word: str) -> tuple[int, ...]:
    """The tokens of a word inside a sentence; none if the model does not know it."""
    text = f"The {word}"
    try:
        (encoded,) = lm.tokens.encode([text])
        places = lm.tokens.at(encoded, (4, len(text)), text)
    except NotReadable:
        return ()
    return tuple(encoded.row.ids[i] for i in places)
