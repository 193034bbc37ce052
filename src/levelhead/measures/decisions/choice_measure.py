"""Measures of decisions: a request, some answers, and the exact log-probability of each answer.

Nothing is generated and nothing is parsed: every item has an answer, whatever the model would have
written. The chat format is a set of options, because it changes what a model decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast, get_args

from levelhead.core.errors import LevelheadError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference, RunContext
from levelhead.measures.base import Extras, Measure
from levelhead.measures.decisions.answer_checks import ANSWER_CHECKS, note_unanswered
from levelhead.measures.items import QuerySet
from levelhead.measures.skills.checks import check_skill
from levelhead.models.inputs.chat import ChatFormat, ChatStyle
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import Skill
    from levelhead.measures.items import MeasureItem
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

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

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("style", self.style, get_args(ChatStyle))

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
        settings = {"chat": self.chat_format.settings, "answer_start": self.answer_start}
        # The template of a served model is the server's: whether there is one is not known here.
        is_served = isinstance(cast("object", lm), ServedModel)
        style = self.style if is_served else self.chat_format.style_for(lm.tokens)
        return QuerySet(
            "choose",
            FrozenDict(settings),
            factors,
            tuple(items),
            notes=(f"requests are written in the style {style!r}", *notes),
        )

    def answer_scores(self, responses: Responses) -> torch.Tensor:
        """`[items, queries, answers]` log-probabilities of the answers, per token if wanted."""
        values = responses.values
        n_answers = values.shape[-1] // 2
        scores, counts = values[..., :n_answers], values[..., n_answers:]
        return scores / counts if self.per_token else scores

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
