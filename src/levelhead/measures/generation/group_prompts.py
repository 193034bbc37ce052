"""Measures of texts after prompts that are about one of two groups each."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.group_prompts import GroupPrompt, find_faults
from levelhead.measures.generation.scored_texts import ScoredTextMeasure
from levelhead.measures.generation.scoring.scorer_calibration import correct_count
from levelhead.measures.generation.text_metrics import TextComparison, compare_separate
from levelhead.measures.generation.text_shares import COUNT, HITS, SHARE, count_texts
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.options import hash_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.measures.generation.scoring.scorer_calibration import GroupRates
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

LABELS, REFUSALS, FAILURES, LENGTH = "", "_refusals", "_failures", "_length"
"""Endings of the names of the metrics, after the name of the measure."""


@dataclass(frozen=True)
class GroupPromptMeasure(ScoredTextMeasure):
    """Abstract base class of measures of texts after prompts about either of two groups."""

    groups: tuple[str, str] | None = field(default=None, kw_only=True)
    prompts: tuple[GroupPrompt, ...] | None = field(default=None, kw_only=True)
    """Your own prompts, about the two groups, instead of those of the data set."""

    noun: ClassVar[str] = "continuations"
    unit_name: ClassVar[str]
    """Name of the sampling units."""

    @property
    def base_name(self) -> str:
        """Name of the measure, with which the names of its metrics begin."""
        return next(iter(self.metrics))

    # -- items

    @property
    @abstractmethod
    def default_groups(self) -> tuple[str, str]:
        """The groups that are compared by default."""

    @property
    @abstractmethod
    def dataset_hashes(self) -> Mapping[str, str]:
        """SHA-256 of the files of the data set, by name."""

    @abstractmethod
    def load_prompts(self) -> tuple[GroupPrompt, ...]:
        """The prompts of the data set about the two groups."""

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """The two groups that are compared."""
        if self.groups is not None:
            return self.groups
        if self.prompts is None:
            return self.default_groups
        groups = tuple(dict.fromkeys(prompt.group for prompt in self.prompts))
        if len(groups) != 2:
            raise LevelheadError(
                f"the prompts are about {len(groups)} groups", hint="name the two groups to compare"
            )
        return groups

    @cached_property
    def used_prompts(self) -> tuple[GroupPrompt, ...]:
        """The prompts about the first group, then those about the second."""
        prompts = self.load_prompts() if self.prompts is None else self.prompts
        first, second = self.compared_groups
        return tuple(
            prompt for group in (first, second) for prompt in prompts if prompt.group == group
        )

    @property
    def data(self) -> Mapping[str, str]:
        """Hashes of the prompts and of the scorer."""
        if self.prompts is not None:
            return {"prompts": hash_items(self.prompts), **self.scorer_hash}
        return {**self.dataset_hashes, **self.scorer_hash}

    def units(self, prompt: GroupPrompt) -> tuple[str, ...]:
        """Sampling units of a prompt."""
        return (prompt.unit, prompt.template)[: len(self.factors)]

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the sampling factors."""
        return (self.unit_name,)

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Texts after each prompt, k of them, the first group's prompts first."""
        faults = find_faults(self.used_prompts)
        items = tuple(
            MeasureItem.from_queries(
                prompt.id,
                faults.get(prompt.id) or tuple((prompt.text, i) for i in range(self.k)),
                self.units(prompt),
                prompt.group,
            )
            for prompt in self.used_prompts
        )
        counts = Counter(prompt.group for prompt in self.used_prompts)
        notes = (
            f"texts after each prompt: {self.k}, of at most {self.tokens} tokens, seed {self.seed}",
            "prompts: " + ", ".join(f"{count} {group}" for group, count in counts.items()),
        )
        return (QuerySet("generate", self.generation_settings, self.factors, items, notes=notes),)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Units are sampled within their group."""
        return responses.design(grouped=True)

    # -- formulas

    @property
    def comparison(self) -> TextComparison:
        """How texts about the two groups are compared."""
        first, second = self.compared_groups
        return compare_separate(
            (first, second), self.noun, "same prompts", is_crossed=len(self.factors) > 1
        )

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Differences of shares, first group less second, and of lengths; shares of each group."""
        compare, name = self.comparison, self.base_name
        label = self.resolved_scorer.label
        differences = (
            compare.share(name + LABELS, label, self.count_labelled, lambda: self.rates),
            compare.share(name + REFUSALS, "refusals", self.count_refusals, is_silence=True),
            compare.share(name + FAILURES, "empty", self.count_failures, is_silence=True),
            compare.length(name + LENGTH, self.count_words, self.tokens),
        )
        return (
            *(metric for metric in differences if metric.name in self.metrics),
            *compare.rates(label, self.count_labelled, lambda: self.rates),
            *compare.rates("refusals", self.count_refusals),
            *compare.rates("empty", self.count_failures),
        )

    @property
    def corrected_metrics(self) -> tuple[str, ...]:
        """The difference and the shares of the label."""
        label = self.resolved_scorer.label
        return (self.base_name, *(f"{label}, {group}" for group in self.compared_groups))

    def count_labelled(self, responses: Responses, rates: GroupRates | None = None) -> torch.Tensor:
        """Texts that the scorer labels, corrected by its error rates; refusals are left out.

        They are counted by `count_refusals`: a refusal is no text about the group.
        """
        rates = self.rates if rates is None else rates
        is_answer = self.answers(responses)
        values = count_texts(self.labels(responses).double(), is_answer.double(), 1)
        return self.correct_values(responses, values, rates)

    def correct_values(
        self, responses: Responses, values: torch.Tensor, rates: GroupRates | None
    ) -> torch.Tensor:
        """Correct counts by the error rates for texts about each item's group, and add shares.

        Args:
            responses: Generated texts.
            values: `[items, 3]` counts; the share is filled in.
            rates: Error rates for each group; None: counts stay as they are.
        """
        values = values.clone()
        for group, group_rates in zip(self.compared_groups, rates or (), strict=False):
            rows = torch.tensor([item.group == group for item in responses.items])
            # The correction is linear, so it commutes with the sums over items.
            values[rows, HITS] = correct_count(values[rows, HITS], values[rows, COUNT], group_rates)
        values[:, HITS] *= 100
        values[:, SHARE] = values[:, HITS] / values[:, COUNT].clamp(min=1)
        return values

    def count_refusals(self, responses: Responses) -> torch.Tensor:
        """Refusals among all texts that are not empty."""
        has_text = ~self.failures(responses)
        # One refusal, or one other text, for everybody is no evidence of equal treatment.
        self.require_different_texts(responses, torch.ones_like(has_text))
        return count_texts(self.refusals(responses).double(), has_text.double(), 100)

    def count_failures(self, responses: Responses) -> torch.Tensor:
        """Empty texts among all texts."""
        failures = self.failures(responses).double()
        self.require_different_texts(responses, torch.ones_like(failures))
        return count_texts(failures, torch.ones_like(failures), 100)

    def count_words(self, responses: Responses) -> torch.Tensor:
        """Words of all texts that are neither refusals nor empty."""
        return count_texts(self.word_counts(responses), self.answers(responses).double(), 1)

    def value_with_rates(self, responses: Responses, metric: Metric, rates: GroupRates) -> float:
        """One of `corrected_metrics` with other error rates."""
        full_sample = self.design(responses, metric).full_sample
        return float(metric.aggregate(self.count_labelled(responses, rates), full_sample))
