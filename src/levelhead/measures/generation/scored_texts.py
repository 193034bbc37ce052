"""Measures of generated texts that a scorer labels. Refusals and empty texts are data, too.

A text is labelled (by default as positive), is a refusal, or is empty. Refusals and empty texts are
no texts about a person, so they do not count for the label; they are counted by metrics of their
own, for each group. What a scorer gets wrong is corrected, and is part of the interval.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.data.tokenize import tokenize_words
from levelhead.measures.base import Extras, Measure, RequiredHead
from levelhead.measures.generation.prompt_skill import make_prompt_check
from levelhead.measures.generation.scorer_calibration import (
    CALIBRATIONS,
    GroupRates,
    ScorerCalibration,
    leave_each_label_out,
    load_calibrations,
    rates_of_groups,
)
from levelhead.measures.generation.scorer_names import resolve_scorer
from levelhead.measures.generation.scorers import REFUSAL_PHRASES, RefusalPhrases, TextScorer
from levelhead.measures.item_details import PAIR
from levelhead.measures.options import check_positive, hash_texts, option_as_json
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat, ChatStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.results import ItemDetail
    from levelhead.core.run_context import Inference
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.measures.skills.checks import SkillCheck
    from levelhead.models.lm import LM

UNCALIBRATED = "the scorer is not calibrated: its errors are not part of the interval"
NO_ANSWER = "every answer is a refusal or empty"
LABELLED_TEXTS = 8
"""Sets of texts whose labels are kept: every metric of a measurement needs them again."""


@dataclass(frozen=True)
class ScoredTextMeasure(Measure):
    """Abstract base class of measures of the labels of generated texts."""

    scorer: str | TextScorer = field(default="vader", kw_only=True)
    """Labels the texts whose share is compared: vader (positive sentiment), a classifier
    (classifier:MODEL:CLASS), a model that answers a question (judge:MODEL:QUESTION), or an
    object."""
    calibration: ScorerCalibration | tuple[ScorerCalibration, ...] | str | None = field(
        default="auto", kw_only=True
    )
    """Error rates of the scorer on labelled texts, which correct the shares: "auto", those that
    levelhead knows; a file with columns text, label (1 or 0) and perhaps group; or objects, one for
    all texts or one for each group."""
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
        resolve_scorer(self.scorer)

    # -- scorer and settings

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

    @property
    def resolved_scorer(self) -> TextScorer:
        """The scorer itself."""
        return resolve_scorer(self.scorer)

    @cached_property
    def calibrations(self) -> tuple[ScorerCalibration, ...]:
        """What corrects the shares: nothing, one calibration for all texts, or one for a group."""
        if self.calibration is None:
            return ()
        if self.calibration == "auto":
            known = CALIBRATIONS.get(self.resolved_scorer.name)
            return (known,) if known is not None else ()
        if isinstance(self.calibration, str):
            return load_calibrations(self.resolved_scorer, self.calibration)
        if isinstance(self.calibration, ScorerCalibration):
            return (self.calibration,)
        return self.calibration

    @property
    def rates(self) -> GroupRates | None:
        """Error rates for texts about each of the two groups; None for an uncalibrated scorer."""
        return rates_of_groups(self.calibrations, self.compared_groups)

    @property
    def settings(self) -> dict[str, object]:
        """All options as plain JSON."""
        settings = super().settings
        if self.scorer != "vader":
            # A path of a model differs between machines; its hash does not.
            settings["scorer"] = option_as_json(self.resolved_scorer)
        if isinstance(self.calibration, str) and self.calibration != "auto":
            settings["calibration"] = hash_texts(self.calibration)
        return settings

    @property
    def scorer_hash(self) -> dict[str, str]:
        """SHA-256 of the scorer and of the texts that calibrate it, by name."""
        scorer = self.resolved_scorer
        hashes = {f"scorer {scorer.name} ({scorer.version})": scorer.sha256}
        if isinstance(self.calibration, str) and self.calibration != "auto":
            hashes |= hash_texts(self.calibration)
        return hashes

    # -- labels

    def labels(self, responses: Responses) -> torch.Tensor:
        """`[items, texts]` whether the scorer labels a text."""
        texts = self.scored_texts(responses)
        return score_flat(texts, lambda flat: label_texts(self.resolved_scorer, flat)).bool()

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
        texts = [text for texts in responses.texts for text in texts]
        # Without texts, tokens were read.
        pairs = zip(texts, is_answer.flatten().tolist(), strict=False)
        distinct = {text for text, counts in pairs if counts}
        if len(distinct) == 1 and len(texts) > 1:
            raise NotMeasurableError(
                "all answers are equal: the model writes the same text after every prompt",
                hint="look at the answers; give more tokens or a higher temperature",
            )
        return is_answer

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

    # -- errors of the scorer

    @property
    @abstractmethod
    def corrected_metrics(self) -> tuple[str, ...]:
        """Metrics of shares that are corrected by the scorer's error rates."""

    @abstractmethod
    def value_with_rates(self, responses: Responses, metric: Metric, rates: GroupRates) -> float:
        """One of `corrected_metrics` with other error rates."""

    def leave_block_out_values(self, responses: Responses, metric: Metric) -> list[float]:
        """The corrected value with each labelled text left out, for the scorer's errors."""
        if metric.name not in self.corrected_metrics:
            return []
        values: list[float] = []
        for rates, n_alike in leave_each_label_out(self.calibrations, self.compared_groups):
            value = self.value_with_rates(responses, metric, rates)
            # Labelled texts with the same outcome give the same rates: one computation stands for
            # all.
            values += [value] * n_alike
        return values

    # -- reports

    def compute_extras(self, response_sets: Sequence[Responses], inference: Inference) -> Extras:
        """Notes on the scorer's errors and on the share of answers."""
        responses = response_sets[0]
        refused, failed = self.refusals(responses), self.failures(responses)
        name = self.resolved_scorer.name
        errors = [f"scorer {name}: {calibration}" for calibration in self.calibrations]
        return Extras(
            notes=(
                *(errors or [f"scorer {name}: {UNCALIBRATED}"]),
                f"of {refused.numel()} answers, {int(refused.sum())} are refusals and "
                f"{int(failed.sum())} are empty",
            )
        )

    def describe_items(
        self, lm: LM, responses: Responses, values: Sequence[float], center: float
    ) -> tuple[ItemDetail, ...]:
        """Prompts and texts, with what the scorers say of each text."""
        details = super().describe_items(lm, responses, values, center)
        label = self.resolved_scorer.label
        texts = [query.text.partition(PAIR)[2] for row in details for query in row.queries]
        scores = zip(
            label_texts(self.resolved_scorer, [self.scored_text(text) for text in texts]),
            RefusalPhrases(self.refusal_phrases).label_texts(texts),
            (len(tokenize_words(text)) for text in texts),
            strict=True,
        )
        return tuple(
            row._replace(
                queries=tuple(
                    query._replace(
                        responses=(
                            (label, float(is_labelled)),
                            ("refusal", float(is_refusal)),
                            ("words", float(n_words)),
                        )
                    )
                    for query, (is_labelled, is_refusal, n_words) in zip(
                        row.queries, scores, strict=False
                    )
                )
            )
            for row in details
        )

    def make_skill_check(self, lm: LM, responses: Responses) -> SkillCheck | None:
        """Texts are likelier after their own prompt than after another one.

        A model that refuses everything, or writes the same text for everyone, treats groups alike
        without any evidence of parity.
        """
        is_answer = ~(self.refusals(responses) | self.failures(responses))
        return make_prompt_check(responses, is_answer)


def score_flat(
    rows: Sequence[Sequence[str]], function: Callable[[Sequence[str]], Sequence[float]]
) -> torch.Tensor:
    """`[items, texts]` values of the texts."""
    values = function([text for texts in rows for text in texts])
    return torch.tensor([float(v) for v in values], dtype=torch.float64).reshape(len(rows), -1)


def label_texts(scorer: TextScorer, texts: Sequence[str]) -> list[bool]:
    """Label each text; equal texts are labelled once."""
    labels = _label_distinct(scorer, tuple(dict.fromkeys(texts)))
    return [labels[text] for text in texts]


@lru_cache(LABELLED_TEXTS)
def _label_distinct(scorer: TextScorer, texts: tuple[str, ...]) -> Mapping[str, bool]:
    return dict(zip(texts, scorer.label_texts(texts), strict=True))
