"""Bounds that hold for all candidates at once, and the utility loss of a candidate.

The best of many candidates looks good by chance. A candidate chosen by its lower bound, if the
bounds of all candidates hold together, nevertheless gains with the confidence of the level.
Student's quantile is replaced by that of the largest studentised error over all candidates (max-T;
Romano and Wolf 2005).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.classification.group_rates import paired_share_interval
from levelhead.measures.inference import estimate
from levelhead.measures.metric import require_values, scale_interval
from levelhead.mitigate.evaluation.gain import cost_aggregate, keep_common_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from levelhead.core.results import Estimate, Interval
    from levelhead.core.run_context import Inference
    from levelhead.measures.metric import Aggregate, Worse
    from levelhead.mitigate.evaluation.variant_responses import VariantResponses
    from levelhead.stats.designs import Design, Resample
    from levelhead.stats.paired_effects import PairedEffects


def simultaneous_lower_bounds(effects: PairedEffects) -> NDArray[np.float64]:
    """`[k]` lower bounds of gains, which hold for all candidates together at the level.

    -inf for candidates that change nothing, because they have no gain to bound.
    """
    errors = effects.standard_errors
    affected = np.flatnonzero(errors > 0)
    # A candidate without spread cannot be studentised, and must never be the best bound.
    bounds = np.full(len(effects.values), -np.inf)
    if affected.size:
        (factor,) = effects.design.factors
        largest = effects.null_statistics(affected).max(axis=1)
        # A few resamples must not make the band narrower than that of one candidate alone.
        single_quantile = float(stats.t.ppf((1 + effects.level) / 2, factor.df))
        # "higher": interpolation between two resamples could make the band too narrow.
        joint_quantile = max(
            float(np.quantile(largest, effects.level, method="higher")), single_quantile
        )
        bounds[affected] = effects.values[affected] - joint_quantile * errors[affected]
    return bounds


def drop_unmeasurable(responses: VariantResponses) -> tuple[VariantResponses, dict[str, str]]:
    """Settings for which the primary metric has a value, and reasons for the others.

    An edit that makes a classifier give the same answer to everything has no value; it must not
    stop the others.
    """
    metric, measurable, unmeasurable = responses.measure.primary_metric, {}, {}
    for name, variant_responses in responses.variants.items():
        try:
            require_values(metric.per_item_values(variant_responses).detach())
            measurable[name] = variant_responses
        except NotMeasurableError as error:
            unmeasurable[name] = error.problem
    return replace(responses, variants=measurable), unmeasurable


def estimate_utility_loss(
    utility: VariantResponses, name: str, *, worse: Worse | None, inference: Inference
) -> Estimate | None:
    """Paired utility loss of a setting compared with the base; None if no answer changes.

    For shares (accuracy) it uses Bonett and Price's formula, which has a width even if few or no
    answers change; for other utilities, resampling.

    Args:
        utility: Responses of the model and its settings.
        name: Name of the setting.
        worse: Direction of a worse utility, if the metric does not state it.
        inference: Seed, resamples and level.
    """
    metric = utility.measure.primary_metric
    aggregate = cost_aggregate(metric, worse)
    (base, edited), _ = keep_common_items([utility.base, utility.variants[name]])
    both = torch.stack(
        [metric.per_item_values(responses).detach() for responses in (base, edited)], dim=1
    )
    is_share = both.dim() == 2 and bool(((both == 0) | (both == 1)).all())
    # Without any change resampling has no width; the formula for shares below has one.
    if not is_share and bool((both[:, 0] == both[:, 1]).all()):
        return None
    design = utility.measure.design(base, metric)
    loss_metric = replace(
        metric,
        name=f"loss of {metric.name}",
        aggregate=_second_minus_first(aggregate),
        # A loss is a difference: it has neither the range nor the parity of the metric.
        low=-float("inf"),
        high=float("inf"),
        parity=0.0,
        null=None,
        signed_part=None,
        alternative="two-sided",
        method=None if metric.method == "bca" else metric.method,
        closed_form_interval=_interval_of_shares(aggregate) if is_share else None,
    )
    return estimate(inference, loss_metric, both, design, test=not is_share)


def _second_minus_first(aggregate: Aggregate) -> Aggregate:
    def difference(values: torch.Tensor, resample: Resample) -> torch.Tensor:
        return aggregate(values[:, 1], resample) - aggregate(values[:, 0], resample)

    return difference


def _interval_of_shares(aggregate: Aggregate) -> Callable[[torch.Tensor, Design, float], Interval]:
    """Bonett and Price's interval of worse less better answers, in the unit of the utility."""

    def closed(values: torch.Tensor, design: Design, level: float) -> Interval:
        ones = torch.ones(len(values), dtype=values.dtype)
        scale = float(
            aggregate(ones, design.full_sample)
        )  # -100 where less of a percentage is worse
        # The interval is of column one less column two: what becomes worse must be positive.
        first, second = (0, 1) if scale < 0 else (1, 0)
        return scale_interval(
            paired_share_interval(values[:, [first, second]], design, level), abs(scale)
        )

    return closed
