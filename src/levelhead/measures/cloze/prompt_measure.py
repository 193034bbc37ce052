"""The prompts of Counteracts (Zhang 2023), such as "The [MASK] works as a nurse", for any model.

A verbalizer is the words of a lexicon's two groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.data.lexicons.lexicon import Lexicon, TermKind
from levelhead.data.prompts.counteracts import (
    CounteractsPrompt,
    OccupationSet,
    make_counteracts_prompts,
)
from levelhead.measures.base import RequiredHead
from levelhead.measures.cloze.formatting import Form, Separator, choose_prompt_format
from levelhead.measures.items import MeasureItem
from levelhead.measures.lexicon_measure import LexiconMeasure
from levelhead.measures.metric import Metric
from levelhead.measures.options import forbid_unused_options, hash_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

BASE = "base"
FACTORS = ("occupations", "backgrounds")
PAPER = "Zhang 2023"
# Kinship words are mostly of several tokens, which multiply the cost for masked models.
KINDS = ("pronoun", "person")
"""Kinds of a lexicon's words that are in the verbalizer by default."""


@dataclass(frozen=True)
class PromptMeasure(LexiconMeasure):
    """Abstract base class of measures on the prompts of Counteracts."""

    prompts: OccupationSet | tuple[CounteractsPrompt, ...] = "winobias40"
    """winobias40 (2,680 prompts of 40 occupations), table1 (5,452 of 58), or the user's prompts."""
    backgrounds: int | None = None
    """Number of background occupations sampled for each prompt; all by default."""
    lexicon: str | Lexicon = "gender-en"
    groups: tuple[str, str] | None = None
    kinds: tuple[str, ...] = KINDS
    """Kinds of the lexicon's words in the verbalizer. For a masked model, words of several tokens
    need additional rows: with "kinship" added, twenty times as many."""
    words: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Words of the two groups for the verbalizer, instead of the lexicon's."""
    form: Form = "auto"
    """Prompt format. "blank": unchanged, for masked models; "paper" (for GPT-2): the word
    target in the blank, then "The target is"; "natural": "The person who works as a nurse is a";
    "chat": the same as a request in the model's chat template, and the beginning of the answer.
    "auto": blank for masked models, natural for causal ones."""
    separator: Separator = "native"
    """Separator between knowledge and base: the model's, or "as_paper" ([SEP], <s>)."""

    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked", "causal")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prompts, str):
            require_option("set of prompts", self.prompts, get_args(OccupationSet))
        require_option("form", self.form, get_args(Form))
        require_option("separator", self.separator, get_args(Separator))
        if self.words is not None:
            forbid_unused_options(self, ("kinds",), "words of your own")
        if not self.kinds:
            raise LevelheadError("no kind of words", hint="give at least one")
        for kind in self.kinds:
            require_option("kind of words", kind, get_args(TermKind))
        if self.backgrounds is not None and not isinstance(self.prompts, str):
            raise LevelheadError(
                "backgrounds are sampled for the published prompts only",
                hint="leave out backgrounds, and select among your prompts beforehand",
            )

    @cached_property
    def items(self) -> tuple[CounteractsPrompt, ...]:
        """The prompts."""
        prompts = (
            tuple(make_counteracts_prompts(self.prompts, backgrounds=self.backgrounds))
            if isinstance(self.prompts, str)
            else self.prompts
        )
        # Prompts of a third group would belong to neither side of the difference.
        unknown_groups = {prompt.majority_group for prompt in prompts} - set(self.compared_groups)
        if unknown_groups:
            raise LevelheadError(
                f"the prompts speak of {sorted(unknown_groups)[0]!r}, which is not compared here",
                hint=f"give groups that hold it; now: {', '.join(self.compared_groups)}",
            )
        return prompts

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the prompts and of the lexicon."""
        name = self.prompts if isinstance(self.prompts, str) else "own"
        return {
            f"prompts {name}": hash_items(self.items),
            **self.lexicon_hash,
        }

    def specification_options(self, lm: LM) -> Mapping[str, Sequence[object]]:
        """Alternative prompt formats and verbalizers."""
        forms: tuple[str, ...] = ("natural", "paper") if lm.is_causal else ("blank",)
        if self.form == "chat":
            forms = ("chat", *forms)
        # The user's words have no kinds to vary.
        if self.words is not None:
            return {"form": forms}
        single_kinds = tuple((kind,) for kind in self.kinds)
        return {
            "form": forms,
            "kinds": (self.kinds, *single_kinds) if len(single_kinds) > 1 else (self.kinds,),
        }

    def verbalizer(self, lm: LM) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The words of the two groups that the model knows, and the unknown words."""
        words_by_group: list[tuple[str, ...]] = []
        unknown: list[str] = []
        for number, group in enumerate(self.compared_groups):
            candidates = self.words[number] if self.words else self._lexicon_words(group)
            known_words: list[str] = []
            # Each word once: a repeated word would count its probability twice.
            for word in dict.fromkeys(word for word in candidates if word is not None):
                (known_words if lm.token_ids_of_word(word) else unknown).append(word)
            if not known_words:
                raise NotMeasurableError(
                    f"the model knows no word of {group!r}",
                    hint="use a lexicon whose words are in its vocabulary",
                )
            words_by_group.append(tuple(known_words))
        return words_by_group[0], words_by_group[1], tuple(unknown)

    def blank_words(self, lm: LM) -> Sequence[str]:
        """The words of the verbalizer."""
        first, second, _ = self.verbalizer(lm)
        return first + second

    def _lexicon_words(self, group: str) -> list[str | None]:
        return [
            term.word(group)
            for term in self.resolved_lexicon.terms
            if term.kind in self.kinds and term.is_marker_of(group)
        ]

    def build_items(self, lm: LM) -> tuple[tuple[MeasureItem, ...], str]:
        """The prompts as items, and a note on their format."""
        prompt_format = choose_prompt_format(lm, self.form, self.separator)
        items = tuple(
            MeasureItem(
                prompt.id,
                ((prompt_format.format_prompt(prompt),),),
                # A prompt without a background has none to resample: its kind is fixed.
                (prompt.occupation, prompt.background or f"{prompt.kind}, {prompt.occupation}"),
                prompt.majority_group,
                prompt.kind,
            )
            # The first group's occupations first: formulas subtract the second from the first.
            for prompt in sorted(
                self.items, key=lambda item: item.majority_group != self.compared_groups[0]
            )
        )
        return items, str(prompt_format)

    def is_sampled(self, item: MeasureItem) -> bool:
        """Base prompts are sampled; prompts with knowledge are other queries."""
        return item.kind == BASE

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Occupations are sampled, within the groups that dominate them."""
        return self.select_sampled(responses).design(["occupations"], grouped=True)


def crossed_factors(responses: Responses) -> list[str] | None:
    """Factors of one kind of knowledge: all if they are crossed, else occupations only.

    With one background for each occupation they are not crossed, and resampling both factors would
    give empty resamples.
    """
    return (
        None
        if len(responses) > len({item.units[0] for item in responses.items})
        else ["occupations"]
    )


def select_base(responses: Responses, values: torch.Tensor) -> torch.Tensor:
    """The values of base prompts."""
    return values[torch.tensor([item.kind == BASE for item in responses.items])]
