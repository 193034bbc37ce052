"""Measures of generated texts: how texts are sampled, and which are refusals or empty.

Refusals and empty texts are data, too. They are no texts about a person, so they are left out of
what is compared, and counted by metrics of their own, for each group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.data.tokenize import tokenize_words
from levelhead.measures.base import Measure, RequiredHead
from levelhead.measures.generation.scoring.scorers import REFUSAL_PHRASES, RefusalPhrases
from levelhead.measures.options import check_positive
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat, ChatStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.measures.responses import Responses

NO_ANSWER = "every answer is a refusal or empty"


@dataclass(frozen=True)
class GeneratedTextMeasure(Measure):
    """Abstract base class of measures of generated texts."""

    refusal_phrases: tuple[str, ...] = field(default=REFUSAL_PHRASES, kw_only=True)
    """Beginnings of refusals, in lower case."""
    k: int = field(default=5, kw_only=True)
    """Number of texts for each prompt."""
    tokens: int = field(default=60, kw_only=True)
    temperature: float = field(default=0.7, kw_only=True)
    top_p: float = field(default=1.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    """Seed of text generation, not of the resampling."""
    style: ChatStyle = field(default="auto", kw_only=True)
    """"chat" writes the prompt into the model's chat template, "plain" as bare text; "auto": chat
    for a model with a template."""
    system: str = field(default="", kw_only=True)
    """System prompt."""

    needs: ClassVar[tuple[RequiredHead, ...]] = ("causal",)
    always_show_extras: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.k, "k")
        # Constructed only for their checks: a wrong option fails before a model is loaded.
        _ = self.generation_config
        ChatFormat(self.style, self.system)

    @property
    def generation_config(self) -> GenerationConfig:
        """How texts are sampled."""
        return GenerationConfig(self.tokens, self.temperature, self.top_p, self.seed)

    @property
    def generation_settings(self) -> FrozenDict:
        """Settings of the queries."""
        return FrozenDict(
            {
                "chat": ChatFormat(self.style, self.system).settings,
                "answer_start": "",
                **self.generation_config.settings,
            }
        )

    def refusals(self, responses: Responses) -> torch.Tensor:
        """`[items, texts]` whether a text is a refusal."""
        return score_flat(responses.texts, RefusalPhrases(self.refusal_phrases).label_texts).bool()

    def failures(self, responses: Responses) -> torch.Tensor:
        """`[items, texts]` whether a text is empty or unreadable."""
        # A text without any letter or digit says nothing, such as "..." or an end token.
        return score_flat(
            responses.texts, lambda texts: [not any(map(str.isalnum, text)) for text in texts]
        ).bool()

    def answers(self, responses: Responses) -> torch.Tensor:
        """`[items, texts]` whether a text is neither a refusal nor empty.

        Raises:
            NotMeasurableError: none is, or all of them are equal: the model does not read prompts.
        """
        is_answer = ~(self.refusals(responses) | self.failures(responses))
        if not bool(is_answer.any()):
            raise NotMeasurableError(
                NO_ANSWER,
                hint="look at the answers; another system prompt or more tokens may help",
            )
        self.require_different_texts(responses, is_answer)
        # A copy of the request mentions both groups as often as the request does: its scores would
        # be equal, whatever the model has learned.
        if responses.texts and bool((self._repeats_request(responses) | ~is_answer).all()):
            raise NotMeasurableError(
                "all answers repeat their request", hint="look at the answers, and at the server"
            )
        return is_answer

    @staticmethod
    def require_different_texts(responses: Responses, counts: torch.Tensor) -> None:
        """Raise an error if the counted texts are all equal: the model does not read prompts.

        Args:
            responses: The texts.
            counts: `[items, texts]` whether a text counts.
        """
        # Without texts, tokens were read.
        texts = [text for texts in responses.texts for text in texts]
        pairs = zip(texts, counts.flatten().tolist(), strict=False)
        if len(texts) > 1 and len({text for text, does_count in pairs if does_count}) == 1:
            raise NotMeasurableError(
                "all answers are equal: the model writes the same text after every prompt",
                hint="look at the answers; give more tokens or a higher temperature",
            )

    @staticmethod
    def _repeats_request(responses: Responses) -> torch.Tensor:
        """`[items, texts]` whether a text is its own request, or a part of it."""
        return torch.tensor(
            [
                [
                    _fold_spaces(text) in _fold_spaces(str(query[0]))
                    for query, text in zip(item.queries, texts, strict=True)
                ]
                for item, texts in zip(responses.items, responses.texts, strict=True)
            ]
        )

    def word_counts(self, responses: Responses) -> torch.Tensor:
        """`[items, texts]` number of words."""
        texts = self.scored_texts(responses)
        return score_flat(texts, lambda flat: [len(tokenize_words(text)) for text in flat])

    def scored_text(self, text: str) -> str:
        """The part of a generated text that is scored."""
        return text

    def scored_texts(self, responses: Responses) -> list[list[str]]:
        """What is scored of every text."""
        return [[self.scored_text(text) for text in texts] for texts in responses.texts]

    def note_silent_texts(self, responses: Responses) -> str:
        """How many answers are refusals or empty."""
        refused, failed = self.refusals(responses), self.failures(responses)
        return (
            f"of {refused.numel()} answers, {int(refused.sum())} are refusals and "
            f"{int(failed.sum())} are empty"
        )


def score_flat(
    rows: Sequence[Sequence[str]], function: Callable[[Sequence[str]], Sequence[float]]
) -> torch.Tensor:
    """`[items, texts]` values of the texts."""
    values = function([text for texts in rows for text in texts])
    return torch.tensor([float(v) for v in values], dtype=torch.float64).reshape(len(rows), -1)


def _fold_spaces(text: str) -> str:
    return " ".join(text.casefold().split())
