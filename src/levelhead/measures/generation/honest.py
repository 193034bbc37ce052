"""HONEST (Nozza et al. 2021): are sentences about a person completed with hurtful words?

A causal model completes sentences such as "the woman should work as a" several times; a masked
model fills in the blank, and its k likeliest words are read, as in the paper. Words are hurtful if
HurtLex lists them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast, final

import numpy as np
import torch

from levelhead.core.frozen import FrozenDict
from levelhead.data.languages.language import ENGLISH, language
from levelhead.data.prompts.group_prompts import GroupPrompt, load_honest
from levelhead.data.tokenize import tokenize_words
from levelhead.measures.base import Measure, RequiredHead
from levelhead.measures.generation.group_prompts import GroupPromptMeasure
from levelhead.measures.generation.scored_texts import label_texts
from levelhead.measures.generation.scoring.scorers import TextScorer
from levelhead.measures.generation.text_shares import COUNT, HITS
from levelhead.measures.reductions import Reduction, take_resample
from levelhead.measures.skills.word_order import make_word_order_check
from levelhead.models.inputs.chat import ChatStyle
from levelhead.models.inputs.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.results import ItemDetail
    from levelhead.measures.items import QuerySet
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.measures.skills.checks import SkillCheck
    from levelhead.models.lm import LM
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Resample

SCORE, HURTLEX = "honest_score", "hurtlex"


@final
@dataclass(frozen=True)
class Honest(GroupPromptMeasure):
    """Difference of the share of hurtful completions of sentences about two groups.

    Words for people are sampled within their group, crossed with templates. This is a step function
    of the model; for gradients use a measure of decisions.
    """

    language: str = ENGLISH
    """Language of the sentences and of HurtLex: en, es, fr or it."""
    first_words: int = 1
    """Number of words of a completion that are read; the paper reads one token."""
    scorer: str | TextScorer = field(default=HURTLEX, kw_only=True)
    k: int = field(default=20, kw_only=True)
    """Number of completions of each sentence; of a masked model, of words for its blank."""
    tokens: int = field(default=5, kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)
    style: ChatStyle = field(default="plain", kw_only=True)
    """"plain": the model continues the bare text, as in the paper; "chat": it is a request."""

    metrics: ClassVar[dict[str, str]] = {
        "honest": "difference of the share of hurtful completions about two groups",
        SCORE: "the published score: the share of hurtful completions about both groups",
        "honest_refusals": "difference of the share of refusals",
        "honest_failures": "difference of the share of empty completions",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("masked", "causal")
    noun: ClassVar[str] = "completions"
    unit_name: ClassVar[str] = "words for people"

    def __post_init__(self) -> None:
        super().__post_init__()
        # English words in texts of another language would be hits by accident, or none at all,
        # which would look like parity.
        if self.scorer == HURTLEX and self.language != ENGLISH:
            object.__setattr__(self, "scorer", f"{HURTLEX}-{self.language}")

    @property
    def default_groups(self) -> tuple[str, str]:
        """The two groups of the data set."""
        return ("female", "male")

    @property
    def dataset_hashes(self) -> Mapping[str, str]:
        """SHA-256 of the templates."""
        source, part = language(self.language).source("honest")
        return source.hashes(part)

    def load_prompts(self) -> tuple[GroupPrompt, ...]:
        """The sentences."""
        return load_honest(*language(self.language).source("honest"))

    @property
    def factors(self) -> tuple[str, ...]:
        """Words for people, crossed with templates where prompts have any."""
        # The user's prompts need no templates.
        has_templates = self.prompts is None or any(row.template for row in self.prompts)
        return (self.unit_name, "templates") if has_templates else (self.unit_name,)

    def scored_text(self, text: str) -> str:
        """The first words."""
        # Signs are tokens, too: a completion may begin with a quotation mark.
        words = [token.text for token in tokenize_words(text) if any(map(str.isalnum, token.text))]
        return " ".join(words[: self.first_words])

    # -- masked models

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Completions of each sentence, or the likeliest tokens for its blank."""
        (query_set,) = super().all_queries(lm)
        if lm.is_causal:
            return (query_set,)
        items = tuple(
            item._replace(queries=((f"{item.queries[0][0]} {MASK}.",),)) if item.queries else item
            for item in query_set.items
        )
        tokenizer = lm.tokens.tokenizer
        texts = [str(tokenizer.decode([i])).strip() for i in range(len(tokenizer))]
        is_labelled = label_texts(self.resolved_scorer, texts)
        tokens = [i for i, is_hit in enumerate(is_labelled) if is_hit]
        note = (
            f"the {self.k} likeliest tokens for each blank are read; {len(tokens)} of the "
            f"vocabulary are {self.resolved_scorer.label}"
        )
        return (
            query_set._replace(
                query_kind="top",
                settings=FrozenDict({"k": self.k}),
                items=items,
                metadata=FrozenDict({"tokens": tokens}),
                notes=(note, *query_set.notes[1:]),
            ),
        )

    def labels(self, responses: Responses) -> torch.Tensor:
        """`[items, k]` whether a completion, or a token for the blank, is hurtful."""
        if responses.query_kind != "top":
            return super().labels(responses)
        ids = responses.values[:, 0, : self.k]
        tokens = cast("tuple[int, ...]", responses.metadata["tokens"])
        return torch.isin(ids, torch.tensor(tokens, dtype=ids.dtype))

    def refusals(self, responses: Responses) -> torch.Tensor:
        """`[items, k]` whether a completion is a refusal; a token for a blank is none."""
        if responses.query_kind != "top":
            return super().refusals(responses)
        return torch.zeros(len(responses), self.k, dtype=torch.bool)

    def failures(self, responses: Responses) -> torch.Tensor:
        """`[items, k]` whether a completion is empty; a token for a blank is not."""
        if responses.query_kind != "top":
            return super().failures(responses)
        return torch.zeros(len(responses), self.k, dtype=torch.bool)

    def describe_items(
        self, lm: LM, responses: Responses, values: Sequence[float], center: float
    ) -> tuple[ItemDetail, ...]:
        """Sentences with their completions, or with the likeliest tokens for the blank."""
        if responses.query_kind == "top":
            return Measure.describe_items(self, lm, responses, values, center)
        return super().describe_items(lm, responses, values, center)

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """The model prefers the sentences to their words in another order."""
        # One word depends too little on its sentence for the check of longer texts.
        items = [
            item._replace(queries=((str(item.queries[0][0]).partition(MASK)[0].strip(), None),))
            for item in responses.items
        ]
        return make_word_order_check(lm, items)

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The differences, the published score, and the share of each group."""
        difference, *others = super().formulas
        score = replace(
            difference,
            name=SCORE,
            equation="Nozza et al. 2021, HONEST score: hurtful completions of all sentences about "
            "both groups, over their number",
            aggregate=share_of_all,
            unit="% of completions",
            direction="larger: more completions are hurtful",
            above="",
            below="",
            comparability_key=f"{SCORE}, same sentences and words",
            parity=None,
            null=None,
            closed_form_interval=None,
        )
        return (difference, score, *others)

    @property
    def corrected_metrics(self) -> tuple[str, ...]:
        """The score as well."""
        return (*super().corrected_metrics, SCORE)


def _share_of_all(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    sums = take_resample(values, resample).sum(0)
    return sums[HITS] / sums[COUNT]


def _share_of_all_many(values: NDArray[np.float64], item_counts: ItemCounts) -> NDArray[np.float64]:
    sums = np.tensordot(item_counts.sum(1).astype(float), values, axes=(1, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[..., HITS] / sums[..., COUNT])


share_of_all = Reduction(_share_of_all, _share_of_all_many)
"""Ratio of sums over the items of both groups."""
