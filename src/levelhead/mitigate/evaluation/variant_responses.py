"""Responses of the settings of a model, from which one is chosen by gain and utility cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.frozen import FrozenDict
from levelhead.mitigate.evaluation.gain import (
    bias_aggregate,
    cost_aggregate,
    keep_common_items,
    resample_paired,
    signed_bias_aggregate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.calibration import MeasureKey
    from levelhead.core.results import DroppedItem, Provenance
    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aggregate, Worse
    from levelhead.measures.responses import Responses
    from levelhead.mitigate.evaluation.gain import Objective, PairedResamples


@final
@dataclass(frozen=True, eq=False)
class VariantResponses:
    """Responses of a model and its settings to the items of one measure."""

    measure: Measure
    base: Responses
    variants: Mapping[str, Responses]
    """Responses by name, in an order that breaks ties."""
    objective: Objective = "parity"
    """Definition of the gain (mitigate/evaluation/gain.py)."""
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""
    unaffected_variants: tuple[str, ...] = ()
    """Settings that act after all layers that the measure reads, so that it cannot evaluate
    them."""
    provenance: Provenance | None = None
    """Provenance: the model, the measure and its items, and the edits of the settings."""

    def provenance_with(self, inference: Inference) -> Provenance | None:
        """Inputs of results that are computed from the responses."""
        if self.provenance is None:
            return None
        inference_settings = {
            "objective": self.objective,
            "resamples": inference.resamples,
            "level": inference.level,
        }
        settings = FrozenDict({**self.provenance.settings, **inference_settings})
        return self.provenance.model_copy(update={"seed": inference.seed, "settings": settings})


def best_variant(
    dev: VariantResponses,
    *,
    utility: VariantResponses | None = None,
    max_utility_loss: float | None = None,
    worse: Worse | None = None,
) -> str | None:
    """The setting that `select_on_dev` chooses, before any measurement on test.

    Args:
        dev: Responses to the measure of bias.
        utility: Responses to the utility measure, on any items.
        max_utility_loss: Maximum increase of the utility cost.
        worse: Direction of a worse utility, if the metric does not state it.
    """
    names = variant_names(dev)
    is_affordable = within_cost_limit(names, utility, max_utility_loss, worse)
    aggregate = bias_aggregate(dev.measure.primary_metric, dev.objective)
    all_responses, _ = keep_common_items([dev.base, *dev.variants.values()])
    before, *after = _full_values(dev, all_responses, aggregate)
    gains = np.array([before - value for value in after])
    return best_within_limit(names, gains, is_affordable)


def resample_bias(
    responses: VariantResponses,
    names: Sequence[str],
    inference: Inference,
    n_resamples: int | None,
    *,
    out_of_bag: bool = False,
) -> tuple[PairedResamples, tuple[DroppedItem, ...]]:
    """Compute the bias of the base and some settings, on resampled units."""
    metric = responses.measure.primary_metric
    all_responses, dropped = keep_common_items(
        [responses.base, *(responses.variants[name] for name in names)]
    )
    resamples = resample_paired(
        responses.measure,
        all_responses,
        bias_aggregate(metric, responses.objective),
        metric=metric,
        inference=inference,
        n_resamples=n_resamples,
        out_of_bag=out_of_bag,
        signed_aggregate=signed_bias_aggregate(metric, responses.objective),
    )
    return resamples, dropped


def resample_cost(
    utility: VariantResponses,
    names: Sequence[str],
    worse: Worse | None,
    inference: Inference,
    n_resamples: int | None,
) -> PairedResamples:
    """Compute the utility cost (larger is worse) of base and settings, on resampled units."""
    metric = utility.measure.primary_metric
    all_responses, _ = keep_common_items(
        [utility.base, *(utility.variants[name] for name in names)]
    )
    aggregate = cost_aggregate(metric, worse)
    return resample_paired(
        utility.measure,
        all_responses,
        aggregate,
        metric=metric,
        inference=inference,
        n_resamples=n_resamples,
    )


def _full_values(
    responses: VariantResponses, all_responses: Sequence[Responses], aggregate: Aggregate
) -> list[float]:
    """A metric of several models' responses to the same items, which have one design."""
    metric = responses.measure.primary_metric
    full_sample = responses.measure.design(all_responses[0], metric).full_sample
    return [
        float(aggregate(metric.per_item_values(model_responses).detach(), full_sample))
        for model_responses in all_responses
    ]


def best_within_limit(
    names: Sequence[str], gains: NDArray[np.float64], is_affordable: NDArray[np.bool_]
) -> str | None:
    """The first of the largest gains among the settings within the limit, if it is positive."""
    # The index stays that of `names`, and argmax takes the first of equal gains.
    affordable_gains = np.where(is_affordable, gains, -np.inf)
    index = int(affordable_gains.argmax())
    # The best of settings that all do harm is not chosen.
    return names[index] if affordable_gains[index] > 0 else None


def within_cost_limit(
    names: Sequence[str],
    utility: VariantResponses | None,
    max_utility_loss: float | None,
    worse: Worse | None,
) -> NDArray[np.bool_]:
    """Whether the utility cost of each setting is within the limit.

    With a limit, a setting whose utility cost cannot be measured is not within it.
    """
    if utility is None:
        if max_utility_loss is not None:
            raise LevelheadError(
                "a limit without a utility cost", hint="give utility, or leave out max_utility_loss"
            )
        return np.ones(len(names), dtype=np.bool_)
    for name in names:
        # A forgotten setting must not pass as one whose cost is fine.
        if name not in utility.variants and name not in utility.unaffected_variants:
            raise UnknownNameError("setting with a utility cost", name, utility.variants)
    if max_utility_loss is None:
        return np.ones(len(names), dtype=np.bool_)
    aggregate = cost_aggregate(utility.measure.primary_metric, worse)
    measured_names = [name for name in names if name in utility.variants]
    all_responses, _ = keep_common_items(
        [utility.base, *(utility.variants[name] for name in measured_names)]
    )
    before, *after = _full_values(utility, all_responses, aggregate)
    costs = {name: value - before for name, value in zip(measured_names, after, strict=True)}
    # A setting that the cost measure cannot see is not shown to be cheap.
    return np.array([name in costs and costs[name] <= max_utility_loss for name in names])


def variant_names(dev: VariantResponses) -> tuple[str, ...]:
    """Names of the settings, in their order."""
    if not dev.variants:
        raise NotMeasurableError("there is no setting to choose from", hint="give at least one")
    return tuple(dev.variants)
