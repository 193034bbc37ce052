"""BOLD (Dhamala et al. 2021): are sentences about one group continued with other words?

A model continues the first words of sentences of Wikipedia about people, religions, political
ideologies or professions. The prompts about two groups differ in more than the group: what
Wikipedia itself writes after them is scored as well, and can be subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
import torch

from levelhead.core.errors import NotMeasurableError, require_option
from levelhead.data.prompts.group_prompts import (
    BOLD_GROUPS,
    BoldDomain,
    GroupPrompt,
    bold_groups,
    bold_hashes,
    load_bold,
)
from levelhead.measures.generation.group_prompts import GroupPromptMeasure
from levelhead.measures.generation.scored_texts import label_texts
from levelhead.measures.generation.text_shares import COUNT, HITS
from levelhead.measures.reductions import Reduction, split_groups
from levelhead.models.inputs.chat import ChatStyle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from levelhead.measures.generation.scoring.scorer_calibration import GroupRates
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.stats.bootstrap import ItemCounts
    from levelhead.stats.designs import Resample

EXCESS = "bold_excess"
REFERENCE_HITS, REFERENCE_COUNT = COUNT + 1, COUNT + 2
"""Columns of an item: labelled texts of Wikipedia, and their number."""


@final
@dataclass(frozen=True)
class Bold(GroupPromptMeasure):
    """Difference between continuations of prompts about two groups, in what a scorer labels.

    Articles are sampled (people, in the domains gender and race). This is a step function of the
    model; for gradients use a measure of decisions.
    """

    domain: BoldDomain = "gender"
    """Kind of the groups: gender, race, religious_ideology, political_ideology or profession."""
    k: int = field(default=1, kw_only=True)
    """Number of texts for each prompt."""
    tokens: int = field(default=30, kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)
    style: ChatStyle = field(default="plain", kw_only=True)
    """"plain": the model continues the bare text, as in the paper; "chat": it is a request."""

    metrics: ClassVar[dict[str, str]] = {
        "bold": "difference of the share of positive continuations about two groups",
        EXCESS: "the same, less the difference between Wikipedia's own texts",
        "bold_refusals": "difference of the share of refusals",
        "bold_failures": "difference of the share of empty or unreadable continuations",
        "bold_length": "difference of the length of continuations",
    }
    unit_name: ClassVar[str] = "articles"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_option("domain", self.domain, tuple(BOLD_GROUPS))

    @property
    def default_groups(self) -> tuple[str, str]:
        """Two groups of the domain."""
        return BOLD_GROUPS[self.domain]

    @property
    def dataset_hashes(self) -> Mapping[str, str]:
        """SHA-256 of the files of the domain."""
        return bold_hashes(self.domain)

    def load_prompts(self) -> tuple[GroupPrompt, ...]:
        """The prompts of the two groups."""
        return load_bold(self.domain, self.compared_groups)

    def excluded_groups_note(self) -> tuple[str, ...]:
        """A note if the comparison leaves out groups of the domain."""
        if self.groups is not None or self.prompts is not None:
            return ()
        excluded = [name for name in bold_groups(self.domain) if name not in self.default_groups]
        note = f"{' and '.join(self.default_groups)} are compared; not {', '.join(excluded)}"
        return (note,) if excluded else ()

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """Those of all texts, and the difference less that of Wikipedia."""
        difference, *others = super().formulas
        first, second = self.compared_groups
        what = self.resolved_scorer.label
        excess = replace(
            difference,
            name=EXCESS,
            equation=f"{difference.equation}; less the same of Wikipedia's texts",
            per_item_values=self.count_with_reference,
            aggregate=difference_of_differences,
            low=-200.0,
            high=200.0,
            direction=f"above 0: more than in Wikipedia, {first} are written of as {what}",
            above=f"the model adds to the share that is {what}, rather about {first}",
            below=f"the model adds to the share that is {what}, rather about {second}",
            comparability_key=f"{EXCESS}, same prompts and scorer",
            closed_form_interval=None,
        )
        return (difference, excess, *others)

    @property
    def corrected_metrics(self) -> tuple[str, ...]:
        """The excess as well."""
        return (*super().corrected_metrics, EXCESS)

    def count_with_reference(
        self, responses: Responses, rates: GroupRates | None = None
    ) -> torch.Tensor:
        """`[items, 5]` labelled continuations, then labelled texts of Wikipedia and their number.

        A prompt that is the beginning of no known sentence has no text of Wikipedia.
        """
        rates = self.rates if rates is None else rates
        reference = {prompt.id: prompt.reference for prompt in self.used_prompts}
        texts = [reference[item.id] for item in responses.items]
        if not any(texts):
            raise NotMeasurableError(
                "no prompt has a text of Wikipedia", hint="give prompts with a reference"
            )
        has_text = torch.tensor([bool(text) for text in texts], dtype=torch.float64)
        is_hit = torch.tensor(label_texts(self.resolved_scorer, texts), dtype=torch.float64)
        written = torch.stack([has_text, is_hit * has_text, has_text], dim=1)
        return torch.cat(
            [
                self.count_labelled(responses, rates),
                self.correct_values(responses, written, rates)[:, [HITS, COUNT]],
            ],
            dim=1,
        )

    def value_with_rates(self, responses: Responses, metric: Metric, rates: GroupRates) -> float:
        """One of `corrected_metrics` with other error rates."""
        if metric.name != EXCESS:
            return super().value_with_rates(responses, metric, rates)
        full_sample = self.design(responses, metric).full_sample
        return float(metric.aggregate(self.count_with_reference(responses, rates), full_sample))


def _difference_of_differences(values: torch.Tensor, resample: Resample) -> torch.Tensor:
    sums = [group.sum(0) for group in split_groups(values, resample)]
    if any(float(row[column]) <= 0 for row in sums for column in (COUNT, REFERENCE_COUNT)):
        raise NotMeasurableError(
            "no text about a group could be counted, of the model or of Wikipedia",
            hint="look at refusals and empty texts, and at prompts without a reference",
        )
    first, second = (
        row[HITS] / row[COUNT] - row[REFERENCE_HITS] / row[REFERENCE_COUNT] for row in sums
    )
    return first - second


def _difference_of_differences_many(
    values: NDArray[np.float64], item_counts: ItemCounts
) -> NDArray[np.float64]:
    sums = np.tensordot(item_counts.astype(float), values, axes=(2, 0))
    # A resample without texts about a group has no value: NaN, which is replaced.
    with np.errstate(divide="ignore", invalid="ignore"):
        written = sums[..., HITS] / sums[..., COUNT]
        excess = written - sums[..., REFERENCE_HITS] / sums[..., REFERENCE_COUNT]
        return np.asarray(excess[:, 0] - excess[:, 1])


difference_of_differences = Reduction(_difference_of_differences, _difference_of_differences_many)
"""Difference between two groups of a ratio of sums, less the same of the reference."""
