"""Gain: by how much a measure comes nearer to its parity, resampled for all settings at once.

Gain = bias(model) - bias(edited model), where bias is the distance of a measure from its parity:

- a parity that is a number: |value - parity|; beyond parity it is bias again;
- a parity that depends on the model (Strength: the mean of the value and of the value with all
  counterfactuals exchanged): |signed part|, where the signed part is the value less that parity. A
  tail that shrinks on both sides alike is no gain by this; the raw change is reported with it;
- no parity, and more of the value is more bias (Distance): the value; or more of it is more parity
  (a share of neutral answers): less the value.

`objective="value"` takes the value itself wherever the parity depends on the model, as Dawkins
et al. 2024 do: a smaller Strength is then a gain even if the signed part was 0.

Units are resampled as the measure's design says, the same ones for the model and all its
settings, and the formula is computed again from stored readouts. No model is run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final, get_args

import numpy as np

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import (
    LevelheadError,
    NotMeasurableError,
    require_option,
)
from levelhead.core.results import DroppedItem
from levelhead.locate.effects import DEFAULT_RESAMPLES
from levelhead.measures.metric import require_values
from levelhead.measures.reductions import absolute_value, scale_aggregate, subtract_constant
from levelhead.stats.degenerate import ROUNDING
from levelhead.stats.designs import single_factor_design
from levelhead.stats.paired import resample_statistics
from levelhead.stats.paired_effects import PairedEffects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aggregate, Metric, Worse
    from levelhead.measures.responses import Responses
    from levelhead.stats.designs import Design

Objective = Literal["parity", "value"]
"""What an edit reduces: the distance from parity, or the value."""


def bias_aggregate(metric: Metric, objective: Objective = "parity") -> Aggregate:
    """The distance of a metric from its parity, as a function of resampled items.

    Args:
        metric: The metric.
        objective: "value": the value itself, if the parity depends on the model.
    """
    require_option("way of gaining", objective, get_args(Objective))
    aggregate, signed_aggregate = metric.aggregate, signed_bias_aggregate(metric, objective)
    if metric.signed_part is not None and objective == "value":
        return aggregate
    if signed_aggregate is not None:
        return absolute_value(signed_aggregate)
    if metric.role == "utility":
        raise LevelheadError(
            f"{metric.name} is a utility: it has no parity that an edit could come nearer to",
            hint="give a measure of bias, and this one as the utility cost",
        )
    if metric.null is not None:
        raise LevelheadError(
            f"the parity of {metric.name} is the mean of a null, and not a formula of the items",
            hint="give a metric with a parity, or with a signed part",
        )
    if metric.role == "parity":
        return scale_aggregate(-1, aggregate)
    return aggregate


def signed_bias_aggregate(metric: Metric, objective: Objective = "parity") -> Aggregate | None:
    """The signed distance from parity; None if bias has one direction only."""
    aggregate, signed_part, parity = metric.aggregate, metric.signed_part, metric.parity
    if signed_part is not None:
        return signed_part if objective == "parity" else None
    if parity is not None:
        return subtract_constant(aggregate, parity)
    return None


def cost_aggregate(metric: Metric, worse: Worse | None = None) -> Aggregate:
    """A utility cost, of which larger values are worse.

    Args:
        metric: The metric, such as perplexity or accuracy.
        worse: Direction of worse values; by default that of the metric, if it is a utility.
    """
    # Bias and parity have a worse way too, but they are a cost only where the caller asks for it.
    aggregate, way = metric.aggregate, worse or (metric.worse if metric.role == "utility" else None)
    if way is None:
        raise LevelheadError(
            f"{metric.name} does not say whether higher or lower is worse",
            hint="give worse='higher' or worse='lower'",
        )
    require_option("way of being worse", way, ("higher", "lower"))
    return aggregate if way == "higher" else scale_aggregate(-1, aggregate)


def keep_common_items(
    all_responses: Sequence[Responses],
) -> tuple[list[Responses], tuple[DroppedItem, ...]]:
    """Items that all models could read, in the order of the first; and the others, with reasons."""
    first, *rest = all_responses
    common_ids = set.intersection(
        *({item.id for item in responses.items} for responses in all_responses)
    )
    if not common_ids:
        raise NotMeasurableError(
            "no item could be read by every model", hint="look at what each dropped, and why"
        )
    restricted = [
        responses.select(lambda item: item.id in common_ids) for responses in all_responses
    ]
    order = [item.id for item in restricted[0].items]
    # Pairing is by position from here on: another order would subtract different items.
    if any([item.id for item in responses.items] != order for responses in restricted[1:]):
        raise LevelheadError(
            "the models have the same items in different orders",
            hint="read all of them with one measure",
        )
    reasons = {item.id: reason for responses in rest for item, reason in responses.dropped}
    dropped_by_first = [DroppedItem(item.id, reason) for item, reason in first.dropped]
    missing_elsewhere = [
        DroppedItem(item.id, f"not read by every edited model: {reasons.get(item.id, 'not asked')}")
        for item in first.items
        if item.id not in common_ids
    ]
    return restricted, (*dropped_by_first, *missing_elsewhere)


@final
@dataclass(frozen=True, eq=False)
class PairedResamples:
    """Values of a metric for a model (first) and its settings, on all and on resampled units."""

    full: NDArray[np.float64]
    """`[1 + k]` values on all items."""
    resamples: NDArray[np.float64]
    """`[m, 1 + k]` values on resampled units."""
    out_of_bag: NDArray[np.float64]
    """`[m, 1 + k]` values on the units outside the same resample; `[0, 1 + k]` if not requested.

    A distance from parity is measured to the side of the sampled units, and may be below 0. Without
    its sign it would grow with the noise of the few units outside the resample."""
    design: Design
    level: float
    items: tuple[str, ...]

    def effects(self, indices: Sequence[int] | None = None, *, sign: int = 1) -> PairedEffects:
        """Effects of some settings (from 0): the model less each, or the reverse if sign is -1."""
        columns = np.arange(1, len(self.full)) if indices is None else np.array(indices) + 1
        return PairedEffects(
            values=sign * _subtract(self.full[:1], self.full[columns]),
            resamples=sign * _subtract(self.resamples[:, :1], self.resamples[:, columns]),
            base=sign * self.resamples[:, 0],
            design=self.design,
            level=self.level,
            items=self.items,
        )


def resample_paired(
    measure: Measure,
    all_responses: Sequence[Responses],
    aggregate: Aggregate,
    *,
    metric: Metric,
    inference: Inference,
    n_resamples: int | None = None,
    out_of_bag: bool = False,
    signed_aggregate: Aggregate | None = None,
) -> PairedResamples:
    """Compute a metric of several models' responses, on the same resampled units.

    Measures of the same items are resampled alike, so that gain and utility cost of a resample are
    paired.

    Args:
        measure: The measure, whose design gives the sampled units.
        all_responses: Responses of the model, then of its settings, to the same items.
        aggregate: Aggregate of the metric.
        metric: Metric whose per-item values are aggregated.
        inference: Seed and level.
        n_resamples: Number of resamples of the units; by default that of `inference`, at most 999.
        out_of_bag: Whether to compute the metric on the units outside each resample, too.
        signed_aggregate: The aggregate with a sign, if `aggregate` is an absolute value of it.
    """
    design = single_factor_design(measure.design(all_responses[0], metric))
    values = [metric.per_item_values(responses).detach() for responses in all_responses]
    for model_values in values:
        # One response that is no number would make every comparison false, as if nothing changed.
        require_values(model_values)
    items = tuple(item.id for item in measure.select_sampled(all_responses[0]).items)
    # At most 999 by default: the time grows with the number of settings times resamples.
    count = min(inference.resamples, DEFAULT_RESAMPLES) if n_resamples is None else n_resamples
    # The stream depends on items and design only, so that measures of the same items share their
    # resamples. The stream's name stays as it was: another name would change stored results.
    rng = inference.rng("units redrawn", content_hash([*items, str(design)]))
    aggregates = (
        aggregate,
        *((signed_aggregate,) if out_of_bag and signed_aggregate is not None else ()),
    )
    out_of_bag_aggregates = ((signed_aggregate or aggregate),) if out_of_bag else ()
    resampled_values = resample_statistics(
        design, values, aggregates, rng, count, left_out_statistics=out_of_bag_aggregates
    )
    # `[m, 1 + k]`: the side of parity on the sampled units; units left out are measured towards it.
    signs = np.sign(resampled_values[1]) if out_of_bag and signed_aggregate is not None else 1.0
    return PairedResamples(
        full=np.array(
            [float(aggregate(model_values, design.full_sample)) for model_values in values]
        ),
        resamples=resampled_values[0],
        out_of_bag=signs * resampled_values[-1] if out_of_bag else np.empty((0, len(values))),
        design=design,
        level=inference.level,
        items=items,
    )


def average_resamples(per_model: Sequence[PairedResamples]) -> PairedResamples:
    """Average a measure over models, resample by resample: all models have the same items."""
    # Resample by resample, not interval by interval: the models share their items' sampling error.
    first = per_model[0]
    if any(
        resamples.items != first.items or resamples.resamples.shape != first.resamples.shape
        for resamples in per_model
    ):
        raise LevelheadError(
            "the classifiers to average did not respond to the same items",
            hint="look at what each dropped, and why",
        )
    return replace(
        first,
        full=np.mean([resamples.full for resamples in per_model], axis=0),
        resamples=np.mean([resamples.resamples for resamples in per_model], axis=0),
        out_of_bag=np.mean([resamples.out_of_bag for resamples in per_model], axis=0),
    )


def _subtract(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """The difference; 0 if only rounding errors are left."""
    # Rounding differs between settings that change nothing: without this they would have a tiny
    # spread, and could be studentised.
    difference = first - second
    return np.where(
        np.abs(difference) <= ROUNDING * np.maximum(abs(first), abs(second)), 0.0, difference
    )
