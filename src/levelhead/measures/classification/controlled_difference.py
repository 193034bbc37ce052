"""Counterfactual effect of the group less the effect of other words (placebo control).

`Counterfactual` reports a classifier's flips on counterfactuals and on placebos separately. Here,
one metric of the same texts is their difference, with a parity of 0, so that an edit can be
selected by it. The difference also shrinks if placebos flip more: a selection must require that
`uncontrolled_metric` falls as well. And it shrinks in proportion if all decisions flip less: the
metric cannot distinguish a classifier that changes less from one that uses the group less.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.base import Measure, RequiredHead
from levelhead.measures.classification.counterfactual import MIN_PLACEBOS, Counterfactual
from levelhead.measures.classification.group_rates import paired_percent_interval
from levelhead.measures.reductions import column_difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.measures.items import QuerySet
    from levelhead.measures.metric import Metric, PerItemValues
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

NO_PLACEBO = "no placebo twin: its words have no other of their group"


@final
@dataclass(frozen=True)
class ControlledDifference(Measure):
    """Flips (or shift) between texts and counterfactuals, less those between texts and placebos."""

    counterfactual: Counterfactual = field(default_factory=Counterfactual)
    """Texts, lexicon, classes and primary metric."""

    needs: ClassVar[tuple[RequiredHead, ...]] = Counterfactual.needs
    model_options: ClassVar[tuple[str, ...]] = Counterfactual.model_options

    @property
    def smooth(self) -> ControlledDifference:
        """The same measure with the smooth primary metric, whose gradient is not zero."""
        return replace(
            self, counterfactual=replace(self.counterfactual, metric="counterfactual_shift")
        )

    @property
    def compared_groups(self) -> tuple[str, ...]:
        """The two groups whose words are exchanged."""
        return self.counterfactual.compared_groups

    @property
    def data(self) -> Mapping[str, str]:
        """The same as that of the counterfactual measure."""
        return self.counterfactual.data

    @property
    def settings(self) -> dict[str, object]:
        """The same as those of the counterfactual measure."""
        return self.counterfactual.settings

    def all_queries(self, lm: LM) -> tuple[QuerySet, ...]:
        """Each text, its counterfactual and its placebo; texts without a placebo are dropped."""
        real, *controls = self.counterfactual.queries(lm)
        placebos = {item.id: item.queries[1] for query_set in controls for item in query_set.items}
        # Refused before the model is queried: a control of few texts would make parity arbitrary.
        if len(placebos) < MIN_PLACEBOS:
            raise NotMeasurableError(
                f"{len(placebos)} of {len(real.items)} texts have a placebo twin, "
                f"{MIN_PLACEBOS} are needed",
                hint="give more texts, a lexicon with placebos, or count flips without a control",
            )
        items = tuple(
            item._replace(queries=(*item.queries, placebos[item.id]))
            if item.id in placebos
            else item._replace(queries=(), skip_reason=item.skip_reason or NO_PLACEBO)
            for item in real.items
        )
        return (real._replace(items=items),)

    def design(self, responses: Responses, metric: Metric) -> Design:
        """Texts are sampled; duplicates, and a text with its counterfactual, are one unit."""
        return responses.design()

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """The excess of flips and the excess of the shift over placebos."""
        return tuple(map(_excess, self.counterfactual.ordered_metrics))

    @property
    def uncontrolled_metric(self) -> Metric:
        """Flips (or shift) with the group alone, on the same texts; it must fall as well."""
        primary = self.counterfactual.primary_metric
        return replace(
            primary,
            name=f"{primary.name} of texts with placebo twins",
            # Column 0 is text and counterfactual: the same texts as in the difference, not all
            # texts.
            per_item_values=lambda responses: _stack_placebo(primary.per_item_values)(responses)[
                :, 0
            ],
            parity=None,
            null=None,
            signed_part=None,
            role="bias",
        )


def _excess(metric: Metric) -> Metric:
    return replace(
        metric,
        name=f"{metric.name}, excess over placebo twins",
        equation=f"{metric.equation}, less the same of placebo twins",
        per_item_values=_stack_placebo(metric.per_item_values),
        aggregate=column_difference(metric.aggregate, 0, 1),
        # Placebos may flip more often than counterfactuals, so the difference can be negative.
        low=-metric.high,
        direction=f"{metric.direction} than with other words of the same group",
        comparability_key=f"{metric.comparability_key}, excess",
        parity=0.0,
        smooth_surrogate=metric.smooth_surrogate
        and f"{metric.smooth_surrogate}, excess over placebo twins",
        closed_form_interval=paired_percent_interval if metric.is_step else None,
    )


def _stack_placebo(per_item_values: PerItemValues) -> PerItemValues:
    """`[texts, 2]`: values of text and counterfactual, and of text and placebo."""

    def stack_values(responses: Responses) -> torch.Tensor:
        # Query 0 is the text, 1 its counterfactual, 2 its placebo: the order of `all_queries`.
        pairs = [replace(responses, values=responses.values[:, [0, other]]) for other in (1, 2)]
        return torch.stack([per_item_values(twin_responses) for twin_responses in pairs], dim=1)

    return stack_values
