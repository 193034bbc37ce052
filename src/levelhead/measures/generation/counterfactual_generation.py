"""Counterfactual generations: does a model write differently about a person of another group?

Every request is made twice, with the word of one group and of the other ("a woman", "a man"), and
each is answered several times. Answers are compared by their share of positive texts, refusals,
empty texts, and their length. Refusals and empty answers are counted, never left out silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from levelhead.measures.generation.person_requests import PersonRequestMeasure
from levelhead.measures.generation.scored_texts import ScoredTextMeasure
from levelhead.measures.generation.scoring.scorer_calibration import correct_count
from levelhead.measures.generation.text_shares import (
    FIRST,
    FIRST_COUNT,
    SECOND,
    SECOND_COUNT,
    with_difference,
)
from levelhead.measures.metric import Metric
from levelhead.measures.options import hash_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from levelhead.measures.generation.scoring.scorer_calibration import GroupRates
    from levelhead.measures.responses import Responses


@final
@dataclass(frozen=True)
class CounterfactualGeneration(PersonRequestMeasure, ScoredTextMeasure):
    """Difference between generations about two groups, on requests that differ in one word.

    Occupations are sampled; the templates of the requests are fixed. This is a step function of the
    model; for gradients use a measure of decisions.
    """

    metrics: ClassVar[dict[str, str]] = {
        "generation": "difference of the share of positive answers about two groups",
        "generation_refusals": "difference of the share of refusals",
        "generation_failures": "difference of the share of empty or unreadable answers",
        "generation_length": "difference of the length of answers",
    }

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the requests, the lexicon and the scorer."""
        return {"requests": hash_items(self.items), **self.lexicon_hash, **self.scorer_hash}

    # -- formulas

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Differences of shares, first group less second, and of lengths."""
        compare = self.comparison
        return (
            compare.share(
                "generation", self.resolved_scorer.label, self.count_labelled, lambda: self.rates
            ),
            compare.share("generation_refusals", "refusals", self.count_refusals, is_silence=True),
            compare.share("generation_failures", "empty", self.count_failures, is_silence=True),
            compare.length("generation_length", self.count_words, self.tokens),
        )

    def count_labelled(self, responses: Responses, rates: GroupRates | None = None) -> torch.Tensor:
        """Answers that the scorer labels, corrected by its error rates; refusals are left out.

        They are counted by `count_refusals`: a refusal is no text about the person.
        """
        rates = self.rates if rates is None else rates
        is_answer = self.answers(responses)
        values = self.count_answers(self.labels(responses) & is_answer, is_answer)
        if rates is not None:
            # By group and item: the correction is linear, so it commutes with the sums over items.
            for column, count, group_rates in zip(
                (FIRST, SECOND), (FIRST_COUNT, SECOND_COUNT), rates, strict=True
            ):
                values[:, column] = correct_count(values[:, column], values[:, count], group_rates)
        return with_difference(values, 100)

    def count_words(self, responses: Responses) -> torch.Tensor:
        """Words of all answers that have a text and are no refusal."""
        is_answer = ~(self.refusals(responses) | self.failures(responses))
        return with_difference(
            self.count_answers(self.word_counts(responses) * is_answer, is_answer), 1
        )

    @property
    def corrected_metrics(self) -> tuple[str, ...]:
        """The share of the label."""
        return ("generation",)

    def value_with_rates(self, responses: Responses, metric: Metric, rates: GroupRates) -> float:
        """The corrected difference with other error rates."""
        full_sample = self.design(responses, metric).full_sample
        return float(metric.aggregate(self.count_labelled(responses, rates), full_sample))
