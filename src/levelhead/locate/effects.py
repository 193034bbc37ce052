"""What a measure loses without a part: effects of ablation, with intervals and corrected p-values.

e = sign x (L(model) - L(model without it)): positive where the part adds to the bias, as its score.
Words are resampled, the same ones for the model and all its variants, and the formula is computed
again from the stored readouts of every resample. The family of all parts is corrected by Romano and
Wolf's step-down maximum of studentised effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Interval, PValue
from levelhead.measures.metric import require_values
from levelhead.stats.degenerate import is_constant
from levelhead.stats.designs import single_factor_design
from levelhead.stats.multiple_testing import max_t
from levelhead.stats.paired import resample_statistics
from levelhead.stats.power import critical_max_t, minimum_detectable_effect
from levelhead.stats.rank_correlation import rowwise_spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.stats.designs import Design

# 999 + 1 makes p a multiple of 0.001; more resamples cost time for every part of a model.
DEFAULT_RESAMPLES = 999


@final
@dataclass(frozen=True, eq=False)
class AblationEffects:
    """Effects of several variants on one measure, resampled together."""

    values: NDArray[np.float64]
    """`[k]`."""
    resamples: NDArray[np.float64]
    """`[m, k]`: the same, of resampled units."""
    base: NDArray[np.float64]
    """`[m]`: sign x the value of the unedited model, of the same resamples."""
    design: Design
    level: float
    items: tuple[str, ...] = ()
    """Of which items: resamples of other items are no pairs."""

    @property
    def design_description(self) -> str:
        """What is resampled, and what is held fixed."""
        fixed = [factor.name for factor in self.design.fixed if factor.name not in self._names]
        return f"{self.design}" + (f"; {' and '.join(fixed)} held" if fixed else "")

    @property
    def _names(self) -> list[str]:
        return [factor.name for factor in self.design.factors]

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """`[k]` standard errors; 0 for what changes nothing."""
        (factor,) = self.design.factors
        return np.asarray(self._spread * np.sqrt(factor.n_units / factor.df))

    @property
    def _spread(self) -> NDArray[np.float64]:
        return np.array(
            [0.0 if is_constant(column) else column.std(ddof=1) for column in self.resamples.T]
        )

    def null_statistics(self, columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """`[m, k]`: how large studentised effects of some parts are if there are none.

        The resamples around their values, in units of their spread. That is a known variance, and
        the effects' is estimated: normal quantiles become Student's, part by part, which leaves
        the parts as dependent as they are.
        """
        (factor,) = self.design.factors
        z = (self.resamples[:, columns] - self.values[columns]) / self._spread[columns]
        tail = stats.norm.logsf(np.abs(z))
        return np.asarray(stats.t.isf(np.exp(tail), factor.df))

    def to_estimates(self, names: Sequence[str], *, unit: str = "") -> tuple[Estimate | None, ...]:
        """With intervals and p-values, corrected as one family; None for what changes nothing.

        The minimum detectable effect is of the corrected test: of one part that has an effect among
        others that have none.
        """
        (factor,) = self.design.factors
        standard_errors = self.standard_errors
        # A part without spread has no t; it is left out by name and not counted as a test that
        # found nothing.
        nonzero = np.flatnonzero(standard_errors > 0)
        if not nonzero.size:
            raise NotMeasurableError(
                "no part changes the measure at all",
                hint="check that the measure reads what the model says",
            )
        t = self.values[nonzero] / standard_errors[nonzero]
        null = self.null_statistics(nonzero)
        adjusted = max_t(np.abs(t), null)
        critical = critical_max_t(null)
        # The observed statistic counts among the resamples, so that p is never 0.
        raw = (1 + (null >= np.abs(t)).sum(axis=0)) / (1 + len(null))
        # Intervals are per part; the correction for many parts is in the adjusted p.
        t_quantile = float(stats.t.ppf((1 + self.level) / 2, factor.df))
        estimates: list[Estimate | None] = [None] * len(names)
        for column, i in enumerate(nonzero.tolist()):
            value, error = float(self.values[i]), float(standard_errors[i])
            estimates[i] = Estimate(
                name=names[i],
                value=value,
                interval=Interval(
                    low=value - t_quantile * error,
                    high=value + t_quantile * error,
                    level=self.level,
                    method=f"bootstrap t, {self.design_description}",
                ),
                parity=0.0,
                p=PValue(
                    value=float(raw[column]),
                    method="paired bootstrap",
                    alternative="two-sided",
                    n_resamples=len(null),
                    adjusted=float(adjusted[column]),
                    correction="romano-wolf",
                    family=len(nonzero),
                ),
                n=self.design.n_items,
                unit=unit,
                detectable=None
                if critical is None
                else minimum_detectable_effect(error, factor.df, critical_value=critical),
            )
        return tuple(estimates)


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
) -> AblationEffects:
    """Compute the effects of variants, of all units and of resampled units.

    Args:
        measure: whose primary metric is computed.
        base_responses: what the model said.
        variant_responses: what each variant said to the same items.
        sign: which way is bias; 0 counts as 1.
        inference: level and seed.
        name: another name, other chance.
        n_resamples: of the units.
        metric: another formula than the primary metric.
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
    return AblationEffects(
        values=full_values[0] - full_values[1:],
        # Paired: what a resample adds to the model's value it mostly adds to a variant's.
        resamples=resampled_values[:, :1] - resampled_values[:, 1:],
        base=resampled_values[:, 0],
        design=design,
        level=inference.level,
        items=tuple(item.id for item in measure.select_sampled(base_responses).items),
    )


def estimate_rank_agreement(
    scores: Sequence[float], ablation_effects: AblationEffects, *, name: str = "rank agreement"
) -> Estimate | None:
    """Spearman's correlation of scores (held fixed) and effects (resampled)."""
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
