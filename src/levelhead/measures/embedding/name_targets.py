"""Names as the target words of SEAT: each belongs to both groups, with its probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np

from levelhead.data.counterfactuals.templates import fill_templates
from levelhead.data.lexicons.name_lists import NameList, read_name_list
from levelhead.measures.group_tables.weighted_groups import (
    describe_signal,
    values_of_drawn_groups,
    weighted_difference,
    weighted_effect_size,
    with_probabilities,
)
from levelhead.measures.items import MeasureItem
from levelhead.measures.reductions import absolute_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.measures.metric import Metric, PerItemValues
    from levelhead.measures.responses import Responses

TARGETS = ("X", "Y")


@final
@dataclass(frozen=True)
class NameTargets:
    """Names with the probabilities of two groups."""

    names: NameList
    groups: tuple[str, ...]
    probabilities: dict[str, tuple[float, ...]]

    @classmethod
    def read(cls, source: str, groups: Sequence[str]) -> NameTargets:
        """Read the names that may be of one of the groups.

        Args:
            source: as for `read_name_list`.
            groups: two groups of the list.
        """
        names = read_name_list(source)
        shares = names.probabilities(groups)
        possible = {name: row for name, row in shares.items() if sum(row)}
        return cls(names, tuple(groups), possible)

    def replace_targets(self, items: tuple[MeasureItem, ...]) -> tuple[MeasureItem, ...]:
        """The items of a test with the names, in sentences about a person, as its targets.

        A name is listed, and resampled, with its likeliest group.

        Args:
            items: items of a published test.
        """
        side = {name: TARGETS[row[1] > row[0]] for name, row in self.probabilities.items()}
        targets = (
            MeasureItem(
                f"{side[sentence.word]}: {sentence.text}",
                ((sentence.text,),),
                (sentence.word,),
                side[sentence.word],
            )
            for sentence in fill_templates(list(self.probabilities), "person")
        )
        attributes = (item for item in items if item.group not in TARGETS)
        return (*targets, *attributes)

    @property
    def note(self) -> str:
        """What the names say of the groups."""
        return describe_signal(np.array(list(self.probabilities.values())))

    def adapt_metrics(self, metrics: Sequence[Metric]) -> tuple[Metric, ...]:
        """The metrics of SEAT for names that belong to both groups.

        Args:
            metrics: effect size, difference, spread and absolute value, in this order.
        """
        aggregates = (
            weighted_effect_size,
            weighted_difference,
            None,
            absolute_value(weighted_effect_size),
        )
        return tuple(
            metric
            if aggregate is None
            else replace(
                metric,
                per_item_values=self._add_probabilities(metric),
                aggregate=aggregate,
                # A name of both groups cannot be permuted between them: p is the bootstrap's.
                null=None,
                closed_form_interval=None,
                comparability_key=f"{metric.comparability_key}, names",
            )
            for metric, aggregate in zip(metrics, aggregates, strict=True)
        )

    def drawn_values(self, responses: Responses, metric: Metric) -> list[float]:
        """Values for drawn probabilities, as `leave_block_out_values`.

        Args:
            responses: answers to names and attributes.
            metric: one of `adapt_metrics`.
        """
        values, names = metric.per_item_values(responses), _target_names(responses)
        return values_of_drawn_groups(metric, values, names, (self.names, self.groups))

    def _add_probabilities(self, metric: Metric) -> PerItemValues:
        def per_item_values(responses: Responses) -> torch.Tensor:
            values = metric.per_item_values(responses)
            return with_probabilities(values, _target_names(responses), self.probabilities)

        return per_item_values


def _target_names(responses: Responses) -> list[str]:
    return [item.units[0] for item in responses.items if item.group in TARGETS]
