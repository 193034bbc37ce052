"""Effects of variants of a model on a measure, with intervals and corrected p-values.

e = sign x (L(model) - L(variant)). For a variant without one head, e is positive if the head adds
to the bias, as its score is. Words are resampled, the same ones for the model and all its variants,
and the metric is recomputed from the stored responses of every resample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.core.results import Estimate, Interval
from levelhead.measures.metric import require_values
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import single_factor_design
from levelhead.stats.paired import resample_statistics
from levelhead.stats.paired_effects import PairedEffects
from levelhead.stats.rank_correlation import rowwise_spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses

# 999 + 1 makes p a multiple of 0.001; more resamples cost time for every part of a model.
DEFAULT_RESAMPLES = 999


def estimate_effects(
    measure: Measure,
    base_responses: Responses,
    variant_responses: Sequence[Responses],
    *,
    sign: int,
    inference: Inference,
    name: str = "effects",
    n_resamples: int = DEFAULT_RESAMPLES,
    metric: Metric | None = None,
) -> PairedEffects:
    """Compute the effects of variants, on all units and on resampled units.

    Args:
        measure: The measure.
        base_responses: Responses of the model.
        variant_responses: Responses of each variant to the same items.
        sign: Direction of bias; 0 counts as 1.
        inference: Seed and level.
        name: Name of the effects, which is part of the seed.
        n_resamples: Number of resamples of the units.
        metric: The metric to compute; by default the primary metric of the measure.
    """
    target_metric = metric or measure.primary_metric
    # Words are resampled and their contexts are fixed: `design_description` says so in every
    # interval.
    design = single_factor_design(measure.design(base_responses, target_metric))
    values = [
        target_metric.per_item_values(responses).detach()
        for responses in (base_responses, *variant_responses)
    ]
    # One item without a number would make every resample with it NaN.
    for item_values in values:
        require_values(item_values)
    direction = sign or 1

    rng = inference.rng(measure.name, name)
    full_values = direction * np.array(
        [float(target_metric.aggregate(item_values, design.full_sample)) for item_values in values]
    )
    (resampled_values,) = resample_statistics(
        design, values, (target_metric.aggregate,), rng, n_resamples
    )
    resampled_values = direction * resampled_values
    return PairedEffects(
        values=full_values[0] - full_values[1:],
        # Paired: what a resample adds to the model's value it mostly adds to a variant's.
        resamples=resampled_values[:, :1] - resampled_values[:, 1:],
        base=resampled_values[:, 0],
        design=design,
        level=inference.level,
        items=tuple(item.id for item in measure.select_sampled(base_responses).items),
    )


def estimate_rank_agreement(
    scores: Sequence[float], ablation_effects: PairedEffects, *, name: str = "rank agreement"
) -> Estimate | None:
    """Spearman's correlation of scores, which are held fixed, and effects, which are resampled."""
    # Two ranks always correlate by 1 or -1, and constant ranks not at all.
    if len(scores) < 3 or is_constant(scores) or is_constant(ablation_effects.values):
        return None
    value = float(rowwise_spearman(scores, ablation_effects.values)[0])
    rows = np.array([row for row in ablation_effects.resamples if not is_constant(row)])
    if len(rows) < 2:
        return None
    resampled_correlations = rowwise_spearman(np.broadcast_to(scores, rows.shape), rows)
    (factor,) = ablation_effects.design.factors
    # On Fisher's scale: resampled ranks are noisier than the ranks themselves, so their quantiles
    # lie too low, and only their spread is used.
    spread = float(np.std(np.arctanh(np.clip(resampled_correlations, -0.9999, 0.9999)), ddof=1))
    # The bootstrap variance has divisor n; this rescales it to n - 1 (df).
    spread *= float(np.sqrt(factor.n_units / factor.df))
    half_width = float(stats.t.ppf((1 + ablation_effects.level) / 2, factor.df)) * spread
    # Fisher's z is infinite at 1, so correlations are clipped.
    centre = float(np.arctanh(np.clip(value, -0.9999, 0.9999)))
    return Estimate(
        name=name,
        value=value,
        interval=Interval(
            low=float(np.tanh(centre - half_width)),
            high=float(np.tanh(centre + half_width)),
            level=ablation_effects.level,
            method=f"spearman, fisher z, effects resampled: {ablation_effects.design}",
        ),
        n=len(scores),
    )
