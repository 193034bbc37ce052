"""Measures of decisions: a request, some answers, and the exact log-probability of each answer.

Nothing is generated and nothing is parsed: every item has an answer, whatever the model would have
written. A model that reports no log-probabilities writes its answer instead, and what it writes is
searched for the answers. The chat format is a set of options, because it changes what a model
decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast, get_args

from levelhead.core.canonical_json import Json
from levelhead.core.errors import LevelheadError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.base import Extras, Measure
from levelhead.measures.decisions.answer_checks import ANSWER_CHECKS, note_unanswered
from levelhead.measures.decisions.generated_answers import (
    ANSWER_CONFIG,
    make_generated_query,
    score_named_options,
    unnamed_shares,
)
from levelhead.measures.items import QuerySet
from levelhead.measures.metric import Metric
from levelhead.measures.options import forbid_unused_options
from levelhead.measures.reductions import mean, scale_aggregate
from levelhead.measures.skills.checks import check_skill
from levelhead.measures.utility.label_accuracy import constant_share_percent_interval
from levelhead.models.inputs.chat import ChatFormat, ChatStyle
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import Measurement, Skill
    from levelhead.measures.items import MeasureItem, QueryKind
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

SHARE_UNIT = "shares of answers"
PROBABILITY_METRICS = ("_likelihood", "_impact_ratio")
"""Endings of the names of metrics that need probabilities."""
UNNAMED = Metric(
    name="answers that name no option",
    equation="share of generated texts that name none of the answers, or several",
    per_item_values=unnamed_shares,
    aggregate=scale_aggregate(100, mean),
    unit="% of answers",
    low=0.0,
    high=100.0,
    direction="larger: more answers cannot be read",
    comparability_key="answers that name no option",
    role="utility",
    worse="higher",
    parity=None,
    closed_form_interval=constant_share_percent_interval,
)
# Float32 sums of log-probabilities differ by about this between batch shapes.
TIE = 1e-4
"""Scores of answers that differ by less are a tie."""


@dataclass(frozen=True)
class ChoiceMeasure(Measure):
    """Abstract base class of measures of decisions."""

    style: ChatStyle = field(default="auto", kw_only=True)
    """"chat" writes the request into the model's chat template, "plain" as bare text; "auto": chat
    for a model with a template."""
    system: str = field(default="", kw_only=True)
    """System prompt; empty: that of the template, if it has one."""
    thinking: bool | None = field(default=None, kw_only=True)
    """Whether a template with such a switch lets the model think first; None: its default."""
    answer_start: str = field(default="Answer:", kw_only=True)
    """Beginning of the answer, which the scored answers follow."""
    per_token: bool = field(default=False, kw_only=True)
    """Whether an answer's log-probability is divided by its number of tokens, so that long answers
    are not less likely. Without it, the scores are the exact probabilities of the answers."""
    generated_answers: bool = field(default=False, kw_only=True)
    """Whether the model writes its answer. The answer that the text names scores 1 and the others
    0, instead of their log-probabilities; `answer_start` and `per_token` have no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("style", self.style, get_args(ChatStyle))
        if self.generated_answers:
            forbid_unused_options(self, ("per_token",), "generated_answers")

    @property
    def settings(self) -> dict[str, object]:
        """All options as plain JSON."""
        settings = super().settings
        # Its default stays out: it would change the hash of results that older versions stored.
        if not self.generated_answers:
            del settings["generated_answers"]
        return settings

    @property
    def chat_format(self) -> ChatFormat:
        """The format of the text around a request."""
        return ChatFormat(self.style, self.system, self.thinking)

    def make_query_set(
        self,
        lm: LM,
        factors: tuple[str, ...],
        items: Sequence[MeasureItem],
        notes: Sequence[str] = (),
    ) -> QuerySet:
        """A query set of requests with their answers.

        Args:
            lm: The model, whose tokenizer decides between the styles.
            factors: Names of the sampling factors.
            items: Items with queries (request, answers).
            notes: Notes on the construction of the items.
        """
        settings: dict[str, Json] = {
            "chat": self.chat_format.settings,
            "answer_start": self.answer_start,
        }
        query_kind: QueryKind = "choose"
        if self.generated_answers:
            query_kind = "generate"
            settings |= {"answer_start": "", **ANSWER_CONFIG.settings}
            items = [
                item._replace(queries=tuple(map(make_generated_query, item.queries)))
                for item in items
            ]
        # The template of a served model is the server's: whether there is one is not known here.
        is_served = isinstance(cast("object", lm), ServedModel)
        style = self.style if is_served else self.chat_format.style_for(lm.tokens)
        return QuerySet(
            query_kind,
            FrozenDict(settings),
            factors,
            tuple(items),
            notes=(f"requests are written in the style {style!r}", *notes),
        )

    def answer_scores(self, responses: Responses) -> torch.Tensor:
        """`[items, queries, answers]` log-probabilities of the answers, per token if wanted.

        Of generated answers: 1 for the answer that the text names, and 0 for the others.
        """
        if self.generated_answers:
            return score_named_options(responses)
        values = responses.values
        n_answers = values.shape[-1] // 2
        scores, counts = values[..., :n_answers], values[..., n_answers:]
        return scores / counts if self.per_token else scores

    @property
    def odds_unit(self) -> str:
        """Unit of log-odds."""
        return "nats per token" if self.per_token else "nats"

    def adapt_metrics(self, *metrics: Metric) -> tuple[Metric, ...]:
        """Metrics of log-probabilities, or what is left of them with generated answers.

        Args:
            metrics: Metrics of log-probabilities.
        """
        if not self.generated_answers:
            return metrics
        return tuple(
            replace(
                metric,
                unit=SHARE_UNIT if metric.unit == self.odds_unit else metric.unit,
                equation=f"{metric.equation}; log p is 1 for the answer that the generated text "
                "names, else 0",
                low=max(metric.low, -2.0) if metric.unit == self.odds_unit else metric.low,
                high=min(metric.high, 2.0) if metric.unit == self.odds_unit else metric.high,
                comparability_key=f"{metric.comparability_key}, generated answers",
                # A text has no gradient; log-odds have.
                smooth_surrogate=metric.smooth_surrogate or metric.name,
            )
            for metric in metrics
            # Probabilities of single answers are not known.
            if not metric.name.endswith(PROBABILITY_METRICS)
        )

    def compute_measurement(
        self,
        lm: LM,
        response_sets: Sequence[Responses],
        *,
        inference: Inference,
        context: RunContext = RunContext(),
    ) -> Measurement:
        """Compute the measurement, with the share of generated answers that name no option."""
        measurement = super().compute_measurement(
            lm, response_sets, inference=inference, context=context
        )
        if not self.generated_answers:
            return measurement
        responses = self.select_sampled(response_sets[0])
        unnamed = self.estimate_metric(responses, UNNAMED, inference)
        note = (
            "answers were generated: the answer that a text names scores 1, the others 0; a text "
            "that names none of them, or several, scores 0 for all"
        )
        return measurement.model_copy(
            update={
                "extras": (*measurement.extras, unnamed),
                "notes": (note, *measurement.notes),
            }
        )

    def assess_skill(
        self, lm: LM, responses: Responses | None = None, *, context: RunContext = RunContext()
    ) -> Skill | None:
        """Test whether a model answers at all, not only by position, and has the measure's skill.

        Log-odds of answers that a model never gives may well depend on facts. They are no evidence
        of what it decides, so that the other check alone would take a refusal for parity.
        """
        if self.is_utility:
            return None
        if responses is None:
            responses = self.read(lm, context=context)[0]
        checks = ANSWER_CHECKS if responses.query_kind == "choose" else ()
        for check in checks:
            skill = check_skill(lm, check, responses, context=context)
            if skill is not None and skill.value < skill.threshold:
                return skill
        return super().assess_skill(lm, responses, context=context)

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """A note on requests that are not answered."""
        return Extras(notes=note_unanswered(response_sets[0]))


def choose_answers(scores: torch.Tensor) -> torch.Tensor:
    """`[items, answers]` 1 for the likeliest answer; answers of a tie share it.

    >>> import torch
    >>> choose_answers(torch.tensor([[-1.0, -3.0, -2.0], [-2.0, -1.0, -1.0]])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]
    """
    is_best = (scores >= scores.amax(-1, keepdim=True) - TIE).double()
    return is_best / is_best.sum(-1, keepdim=True)


def check_parts(request: str, names: Sequence[str]) -> None:
    """Raise an error unless the text of a request names all of its parts in braces."""
    if missing := [f"{{{name}}}" for name in names if f"{{{name}}}" not in request]:
        raise LevelheadError(
            f"the request lacks {' and '.join(missing)}", hint="name the parts in braces"
        )


def fill_parts(request: str, parts: Mapping[str, str]) -> str:
    """Fill in the parts of a request.

    >>> fill_parts("{context} {question}", {"context": "Who? {question}", "question": "Where?"})
    'Who? {question} Where?'
    """
    # In one pass, not by str.format: texts of the data and of the user may contain braces.
    pattern = "|".join(re.escape(f"{{{name}}}") for name in parts)
    return re.sub(pattern, lambda match: parts[match[0][1:-1]], request).strip()
