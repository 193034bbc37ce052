"""Instructions: does a model still answer in the required form?

A check of following instructions without a scorer of texts, after IFEval (Zhou et al. 2023): one
word, JSON, capital letters and so on, checked exactly on greedy answers. It is a part of the
utility cost of a mitigation. An edit that removes a bias may also keep a chat model from following
instructions, which perplexity does not show.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.data.prompts.instructions import Instruction, make_instructions
from levelhead.measures.base import Extras, Measure, RequiredHead
from levelhead.measures.generation.scoring.scorers import RefusalPhrases
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.options import check_positive, hash_items
from levelhead.measures.reductions import mean, scale_aggregate
from levelhead.measures.utility.instruction_checks import follows_instruction
from levelhead.measures.utility.label_accuracy import constant_share_percent_interval
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat, ChatStyle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

REVISION = 1
"""Changed with a check, so that stored measurements are not compared with new ones."""


@final
@dataclass(frozen=True)
class Instructions(Measure):
    """Share of greedy answers that have the required form; refusals have none.

    Kinds of instructions are the units: a model that writes no JSON fails all requests for it.
    """

    instructions: tuple[Instruction, ...] | None = None
    """User's instructions; None: those of levelhead."""
    per_kind: int = 4
    """Number of requests of each of the 16 kinds of levelhead's instructions, at most 12."""
    tokens: int = 48
    """Maximum length of an answer; a text that is cut off is checked as it is."""
    style: ChatStyle = "auto"
    """"chat" writes the request into the model's chat template, "plain" as bare text; "auto": chat
    for a model with a template."""
    system: str = ""
    """System prompt."""

    metrics: ClassVar[dict[str, str]] = {
        "instructions": "answers that have the form that the request requires",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.per_kind, "per_kind")
        # Constructed only for their checks: a wrong option fails before a model is loaded.
        _ = self._generation_config, self.resolved_instructions
        ChatFormat(self.style, self.system)

    @property
    def _generation_config(self) -> GenerationConfig:
        # Greedy: one answer, which does not depend on a seed.
        return GenerationConfig(self.tokens, temperature=0.0)

    @property
    def resolved_instructions(self) -> tuple[Instruction, ...]:
        """The instructions."""
        if self.instructions is not None:
            return self.instructions
        return make_instructions(self.per_kind)

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the instructions, and the revision of their checks."""
        return {
            "instructions": hash_items(self.resolved_instructions),
            "checks": content_hash(REVISION),
        }

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """One greedy answer to each request."""
        items = tuple(
            MeasureItem(row.id, ((row.request, 0),), (row.kind,), row.kind)
            for row in self.resolved_instructions
        )
        settings = {
            "chat": ChatFormat(self.style, self.system).settings,
            "answer_start": "",
            **self._generation_config.settings,
        }
        note = f"one greedy answer of at most {self.tokens} tokens to each request"
        return (QuerySet("generate", FrozenDict(settings), ("kinds",), items, notes=(note,)),)

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The share of followed instructions."""
        return (
            Metric(
                name="instructions",
                equation="after Zhou et al. 2023: share of answers that have the required form",
                per_item_values=self._is_followed,
                aggregate=scale_aggregate(100, mean),
                unit="% of answers",
                low=0.0,
                high=100.0,
                direction="larger: more instructions are followed",
                comparability_key="instructions",
                role="utility",
                worse="lower",
                parity=None,
                # A text has no gradient; the probabilities of facts have.
                smooth_surrogate="facts_likelihood",
                closed_form_interval=constant_share_percent_interval,
            ),
        )

    def _is_followed(self, responses: Responses) -> torch.Tensor:
        texts = [texts[0] for texts in responses.texts]
        requests = {item.queries[0][0] for item in responses.items}
        # A text that is always the same has some form by chance: it follows nothing.
        if len(requests) > 1 and len(set(texts)) == 1:
            raise NotMeasurableError(
                "the model writes an equal text in answer to every request",
                hint="look at the answers: its answers do not depend on the requests",
            )
        rows = {row.id: row for row in self.resolved_instructions}
        refused = RefusalPhrases().label_texts(texts)
        hits = [
            not is_refusal and follows_instruction(text, row.check, row.argument)
            for text, is_refusal, row in zip(
                texts, refused, (rows[item.id] for item in responses.items), strict=True
            )
        ]
        return torch.tensor(hits, dtype=torch.float64)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Counts of refusals and empty answers, and of followed instructions by kind."""
        responses = response_sets[0]
        texts = [texts[0] for texts in responses.texts]
        followed: Counter[str] = Counter()
        for item, value in zip(responses.items, self._is_followed(responses).tolist(), strict=True):
            followed[item.group] += value == 1
        counts = [f"{kind} {followed[kind]} of {len(at)}" for kind, at in responses.groups.items()]
        n_refused = sum(RefusalPhrases().label_texts(texts))
        n_empty = sum(not any(map(str.isalnum, text)) for text in texts)
        return Extras(
            notes=(
                f"followed: {', '.join(counts)}",
                f"of {len(texts)} answers, {n_refused} are refusals and {n_empty} are empty",
            )
        )
