"""Facts: does a model still know what everybody knows?

Common knowledge with four answers, one of them right: a part of the utility cost of a mitigation,
beside fluency. The answer texts are scored, not letters, and each answer comes first, second, third
and last once: small models prefer a place, whatever stands there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.facts import FactQuestion, load_facts
from levelhead.measures.base import Extras, RequiredHead
from levelhead.measures.decisions.choice_measure import (
    ChoiceMeasure,
    check_parts,
    choose_answers,
    fill_parts,
)
from levelhead.measures.items import MeasureItem
from levelhead.measures.metric import Metric
from levelhead.measures.options import hash_items
from levelhead.measures.reductions import mean, require_decisions, scale_aggregate
from levelhead.measures.utility.label_accuracy import constant_share_percent_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.run_context import Inference
    from levelhead.measures.items import QueryArgs, QuerySet
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

REQUEST = "Question: {question}\n{options}"
RIGHT = 0
"""Column of the right answer."""


@final
@dataclass(frozen=True)
class Facts(ChoiceMeasure):
    """Share of questions about common knowledge whose right answer is the likeliest of four."""

    request: str = REQUEST
    """Text of a request, with {question} and {options}."""
    questions: tuple[FactQuestion, ...] | None = None
    """User's questions; None: 48 of levelhead."""

    metrics: ClassVar[dict[str, str]] = {
        "facts": "questions about common knowledge that are answered right",
        "facts_likelihood": "how likely the right answers are",
    }
    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self.request, ("question", "options"))
        if len({len(row.answers) for row in self.resolved_questions}) > 1:
            raise LevelheadError(
                "the questions have different numbers of answers",
                hint="give equally many answers for every question, the right one first",
            )

    @property
    def resolved_questions(self) -> tuple[FactQuestion, ...]:
        """The questions."""
        return load_facts() if self.questions is None else self.questions

    @property
    def data(self) -> Mapping[str, str]:
        """Hash of the questions."""
        return {"questions": hash_items(self.resolved_questions)}

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Every question, with its answers in every rotation."""
        items = [
            MeasureItem(row.question, self._build_queries(row), (row.question,), row.topic)
            for row in self.resolved_questions
        ]
        return (self.make_query_set(lm, ("questions",), items),)

    def _build_queries(self, row: FactQuestion) -> tuple[QueryArgs, ...]:
        queries = []
        for i in range(len(row.answers)):
            options = "\n".join((*row.answers[i:], *row.answers[:i]))
            request = fill_parts(self.request, {"question": row.question, "options": options})
            queries.append((request, row.answers))
        return tuple(queries)

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The share of right answers and its smooth surrogate."""
        share = Metric(
            name="facts",
            equation="share of questions whose right answer is the likeliest; ties are shared",
            per_item_values=self._is_right,
            aggregate=scale_aggregate(100, mean),
            unit="% of questions",
            low=0.0,
            high=100.0,
            direction="larger: more questions are answered right",
            comparability_key="facts",
            role="utility",
            worse="lower",
            parity=None,
            smooth_surrogate="facts_likelihood",
            closed_form_interval=constant_share_percent_interval,
        )
        likelihood = replace(
            share,
            name="facts_likelihood",
            equation="mean log-probability of the right answer among the given ones",
            per_item_values=self._right_log_p,
            aggregate=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: right answers are likelier",
            comparability_key="facts likelihood",
            smooth_surrogate=None,
            closed_form_interval=None,
        )
        return self.adapt_metrics(share, likelihood)

    def guessing_value(self, responses: Responses) -> float:
        """One of the answers is right."""
        return 100 / len(self.resolved_questions[0].answers)

    def _mean_scores(self, responses: Responses) -> torch.Tensor:
        """`[questions, answers]` mean log-probabilities over the rotations."""
        scores = self.answer_scores(responses).mean(1)
        require_decisions(scores.softmax(-1))
        return scores

    def _is_right(self, responses: Responses) -> torch.Tensor:
        scores = self._mean_scores(responses)
        chosen = choose_answers(scores)[:, RIGHT]
        # A generated text that names no answer scores 0 for all, which is no tie of them.
        return chosen * (scores.sum(-1) > 0) if self.generated_answers else chosen

    def _right_log_p(self, responses: Responses) -> torch.Tensor:
        return self._mean_scores(responses).log_softmax(-1)[:, RIGHT]

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Counts by topic, beside the notes of decisions."""
        responses = response_sets[0]
        extras = super().compute_extras(response_sets, inference)
        right: Counter[str] = Counter()
        for item, value in zip(responses.items, self._is_right(responses).tolist(), strict=True):
            right[item.group] += value == 1
        counts = [
            f"{topic} {right[topic]} of {len(rows)}" for topic, rows in responses.groups.items()
        ]
        chance = self.guessing_value(responses)
        notes = (f"answered right: {', '.join(counts)}", f"guessing: {chance:.0f}%")
        return extras._replace(notes=(*notes, *extras.notes))
