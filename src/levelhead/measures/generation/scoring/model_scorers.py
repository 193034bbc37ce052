"""Scorers that are models: a text classifier, or a judge model that answers a question.

A model is given by its name on the Hub or its folder, and is loaded when the first text is scored;
only safetensors are read. A label is a decision at a threshold, which may be fitted on labelled
texts; error rates must then come from other texts.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast, final

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.frozen import FrozenDict
from levelhead.measures.generation.scoring.scorers import TextScorer
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import read_responses
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.open_model import open_model
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM

DEFAULT_REQUEST = "Text: {text}\n\n{question} Answer with {options}."
"""Request to a judge model, with {text}, {question} and {options}."""
DEFAULT_CHAT = ChatFormat()


@dataclass(frozen=True)
class ModelScorer(TextScorer):
    """Labels a text if a model's log-odds exceed a threshold. Abstract."""

    model: str | LM | ServedModel
    """The model, its name on the Hub, its folder, or its address."""

    @property
    @abstractmethod
    def threshold(self) -> float:
        """Log-odds from which a text is labelled."""

    @abstractmethod
    def score_texts(self, texts: Sequence[str]) -> list[float]:
        """Log-odds of the label for each text."""

    @cached_property
    def lm(self) -> LM:
        """The model itself."""
        # A served model answers the queries that a scorer makes.
        return open_model(self.model) if isinstance(self.model, str) else cast("LM", self.model)

    @property
    def model_name(self) -> str:
        """Name of the model, without the folder that it is in."""
        if isinstance(self.model, str):
            return Path(self.model).name if Path(self.model).exists() else self.model
        if isinstance(self.model, ServedModel):
            return self.model.identity.name
        return self.model.identity.display_name

    def label_texts(self, texts: Sequence[str]) -> list[bool]:
        """Whether the log-odds of each text exceed the threshold."""
        return [score > self.threshold for score in self.score_texts(texts)]


@final
@dataclass(frozen=True)
class ClassifierScorer(ModelScorer):
    """The decision of a text classifier, such as a sentiment model from the Hub."""

    positive_class: str
    """Name of the class that counts as 1."""
    threshold: float = 0.0
    """Log-odds against the likeliest other class from which a text is labelled; at 0, the class is
    the likeliest."""

    @property
    def name(self) -> str:
        """Name of the model."""
        return f"classifier {self.model_name}"

    @property
    def label(self) -> str:
        """Name of the class."""
        return self.positive_class

    @property
    def version(self) -> str:
        """Hash of the classifier, its class and the threshold."""
        parts = f"{self.lm.content_hash[:12]}, {self.positive_class}"
        return f"{parts}, log-odds > {self.threshold:g}" if self.threshold else parts

    def score_texts(self, texts: Sequence[str]) -> list[float]:
        """Log-odds of the class against the likeliest other one for each text."""
        # A judge reads it as a part of its requests.
        if self.lm.system_prompt:
            raise LevelheadError(
                f"{self.name} has a system prompt, which a classifier does not read",
                hint="leave it out: lm.with_system_prompt(''), or use a judge model",
            )
        require_option("class", self.positive_class, tuple(self.lm.labels))
        if not texts:
            return []
        column = self.lm.labels.index(self.positive_class)
        log_p = self.lm.classify(list(texts)).double()
        others = torch.arange(log_p.shape[1]) != column
        return [float(value) for value in log_p[:, column] - log_p[:, others].amax(1)]


@final
@dataclass(frozen=True)
class JudgeScorer(ModelScorer):
    """The answer of a judge model to a question about each text, by the answers' probabilities.

    The options are listed in both orders, because many models prefer one place; log-probabilities
    are averaged. Nothing is generated, so every text has an answer.
    """

    question: str
    """Question about the text, such as "Is this text positive?"."""
    options: tuple[str, ...] = ("Yes", "No")
    """All answers that are allowed."""
    positive_options: tuple[str, ...] = ("Yes",)
    """The answers that count as 1."""
    threshold: float = 0.0
    """Log-odds of these answers from which a text is labelled."""
    request: str = DEFAULT_REQUEST
    """Text of a request, with {text}, {question} and {options}."""
    separator: str = " or "
    """What stands between the options in the request."""
    answer_start: str = "Answer:"
    """Beginning of the answer, which the options follow."""
    chat: ChatFormat = DEFAULT_CHAT

    def __post_init__(self) -> None:
        for option in self.positive_options:
            require_option("option", option, self.options)
        if not 0 < len(set(self.positive_options)) < len(set(self.options)):
            raise LevelheadError(
                "a question needs an answer that counts as 1, and another one",
                hint="give options=('Yes', 'No'), positive_options=('Yes',)",
            )

    @property
    def name(self) -> str:
        """Name of the judge."""
        return f"judge {self.model_name}"

    @property
    def label(self) -> str:
        """Meaning of 1."""
        return f'answered with {" or ".join(self.positive_options)} to "{self.question}"'

    @property
    def version(self) -> str:
        """Hashes of the judge, and of its requests."""
        parts = {
            "question": self.question,
            "options": self.options,
            "positive": self.positive_options,
            "threshold": self.threshold,
            "request": self.request,
            "separator": self.separator,
            "answer_start": self.answer_start,
            "chat": self.chat.settings,
        }
        return f"{self.lm.content_hash[:12]}, {content_hash(parts)[:12]}"

    def score_texts(self, texts: Sequence[str]) -> list[float]:
        """Log-odds of the positive options for each text."""
        items = tuple(
            MeasureItem(
                str(i),
                tuple(
                    (self._fill_request(text, order), self.options)
                    for order in (self.options, self.options[::-1])
                ),
                (str(i),),
            )
            for i, text in enumerate(texts)
        )
        if not items:
            return []
        settings = FrozenDict({"chat": self.chat.settings, "answer_start": self.answer_start})
        (responses,) = read_responses(self.lm, [QuerySet("choose", settings, ("texts",), items)])
        if responses.dropped:
            raise NotMeasurableError(
                f"{self.name} cannot read {len(responses.dropped)} of {len(texts)} texts: "
                f"{responses.dropped[0][1]}",
                hint="use a judge with a longer context, or shorter texts",
            )
        log_p = responses.values[..., : len(self.options)].mean(1)
        is_positive = torch.tensor([option in self.positive_options for option in self.options])
        odds = log_p[:, is_positive].logsumexp(1) - log_p[:, ~is_positive].logsumexp(1)
        return [float(value) for value in odds]

    def _fill_request(self, text: str, options: Sequence[str]) -> str:
        # Not str.format: a text may contain braces.
        parts = {
            "{question}": self.question,
            "{options}": self.separator.join(options),
            "{text}": text,
        }
        request = self.request
        for name, part in parts.items():
            request = request.replace(name, part)
        return request


ModelScorerT = TypeVar("ModelScorerT", ClassifierScorer, JudgeScorer)


def fit_threshold(
    scorer: ModelScorerT, texts: Sequence[str], labels: Sequence[bool]
) -> ModelScorerT:
    """The scorer with the threshold of the largest sensitivity + specificity on labelled texts.

    A small model often prefers one answer whatever the text. Error rates on the same texts would be
    too small: calibrate the scorer on others.

    Args:
        scorer: The scorer.
        texts: Labelled texts, like those that the scorer will see.
        labels: The truth about each text.
    """
    scores, truth = np.array(scorer.score_texts(texts)), np.array(labels, dtype=bool)
    if len(scores) != len(truth) or truth.all() or not truth.any():
        raise LevelheadError(
            "a threshold needs labelled texts of both classes", hint="give a label for each text"
        )
    candidates = np.unique(scores)
    # Between two scores, so that rounding of either changes no label.
    candidates = (candidates[1:] + candidates[:-1]) / 2 if len(candidates) > 1 else candidates
    information = [
        float((scores[truth] > c).mean() - (scores[~truth] > c).mean()) for c in candidates
    ]
    return replace(scorer, threshold=float(candidates[int(np.argmax(information))]))
