"""Measures of generated texts that a scorer labels, by default as positive.

What a scorer gets wrong is corrected, and is part of the interval.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from levelhead.data.tokenize import tokenize_words
from levelhead.measures.base import Extras
from levelhead.measures.generation.generated_texts import GeneratedTextMeasure, score_flat
from levelhead.measures.generation.prompt_skill import make_prompt_check
from levelhead.measures.generation.scoring.scorer_calibration import (
    CALIBRATIONS,
    GroupRates,
    ScorerCalibration,
    leave_each_label_out,
    load_calibrations,
    rates_of_groups,
)
from levelhead.measures.generation.scoring.scorer_names import resolve_scorer
from levelhead.measures.generation.scoring.scorers import (
    RefusalPhrases,
    TextScorer,
)
from levelhead.measures.item_details import PAIR
from levelhead.measures.options import hash_texts, option_as_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import ItemDetail
    from levelhead.core.run_context import Inference
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.measures.skills.checks import SkillCheck
    from levelhead.models.lm import LM

UNCALIBRATED = "the scorer is not calibrated: its errors are not part of the interval"
LABELLED_TEXTS = 8
"""Sets of texts whose labels are kept: every metric of a measurement needs them again."""


@dataclass(frozen=True)
class ScoredTextMeasure(GeneratedTextMeasure):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        # Only for its checks: a wrong name fails before a model is loaded.
        resolve_scorer(self.scorer)

    # -- scorer and settings

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
        name = self.resolved_scorer.name
        errors = [f"scorer {name}: {calibration}" for calibration in self.calibrations]
        return Extras(
            notes=(
                *(errors or [f"scorer {name}: {UNCALIBRATED}"]),
                self.note_silent_texts(responses),
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


def label_texts(scorer: TextScorer, texts: Sequence[str]) -> list[bool]:
    """Label each text; equal texts are labelled once."""
    labels = _label_distinct(scorer, tuple(dict.fromkeys(texts)))
    return [labels[text] for text in texts]


@lru_cache(LABELLED_TEXTS)
def _label_distinct(scorer: TextScorer, texts: tuple[str, ...]) -> Mapping[str, bool]:
    return dict(zip(texts, scorer.label_texts(texts), strict=True))
