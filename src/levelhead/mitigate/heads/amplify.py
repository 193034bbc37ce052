"""Amplify the heads that reduce the bias, instead of masking those that add to it.

Yang et al. 2025 do not edit their anti-bias heads. Here heads and factor are chosen on the find
half, among settings that cost no more than masking does there. Their effect is tested on the
confirmation half, compared with masking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.effects import estimate_effects
from levelhead.locate.head_map import head_label
from levelhead.locate.validation.split import split_items
from levelhead.mitigate.evaluation.gain import bias_aggregate, cost_aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.attribution.variants import AblationResponses
    from levelhead.locate.head_map import HeadMap, SplitBy
    from levelhead.locate.validation.split import ItemSplit
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aggregate, Metric
    from levelhead.models.lm import LM


class HeadScaling(Record):
    """Some scaled heads, and their effect on the discovery half."""

    heads: tuple[str, ...]
    factor: float
    gain: float
    """Decrease of the distance from parity, or of the value if there is no parity."""
    cost: float
    """Increase of the utility cost."""


class AmplifyReport(Record):
    """Amplification compared with masking."""

    masking: HeadScaling
    candidates: tuple[HeadScaling, ...]
    chosen: HeadScaling | None
    """The setting with the largest gain among those that cost no more than masking, on the find
    half."""
    gain: Estimate | None = None
    """Gain of the chosen setting, on the confirmation half."""
    masking_gain: Estimate
    cost: Estimate | None = None
    masking_cost: Estimate
    difference: Estimate | None = None
    """Gain of amplifying less gain of masking, on the confirmation half."""
    notes: tuple[str, ...] = ()
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""


@final
@dataclass(frozen=True)
class ScalingGrid:
    """Settings of amplification to evaluate."""

    head_counts: Sequence[int] = (1, 3, 5)
    """Numbers of the most negative heads to amplify."""
    factors: Sequence[float] = (1.5, 2.0, 3.0)
    """Factors of the amplification."""

    def settings(self, n_heads: int) -> list[tuple[int, float]]:
        """Every number of heads with every factor, if there are as many heads."""
        return [
            (count, factor)
            for count, factor in product(self.head_counts, self.factors)
            if count <= n_heads
        ]


class _SplitMeasure(NamedTuple):
    measure: Measure
    formula: Metric
    """A number to reduce."""
    variants: AblationResponses
    split: ItemSplit

    def reduction_on_discovery(self, variant: int) -> float:
        """Its reduction on the discovery half."""
        both = (
            self.split.discovery.select_variant(self.variants, index) for index in (None, variant)
        )
        before, after = (
            float(self.formula.value(responses, self.measure.design(responses, self.formula)))
            for responses in both
        )
        return before - after

    def estimate_reduction(
        self, variants: Sequence[int | None], inference: Inference, name: str
    ) -> Estimate:
        """Decrease from the first to the second setting, on the confirmation half."""
        first, second = (
            self.split.confirmation.select_variant(self.variants, variant) for variant in variants
        )
        paired_effects = estimate_effects(
            self.measure,
            first,
            [second],
            sign=1,
            inference=inference,
            name=name,
            metric=self.formula,
        )
        (estimate,) = paired_effects.to_estimates([name], unit=self.measure.primary_metric.unit)
        if estimate is None:
            raise NotMeasurableError(f"{name}: nothing changes", hint="check the heads")
        return estimate


def amplify(
    lm: LM,
    head_map: HeadMap,
    measure: Measure,
    utility_measure: Measure,
    *,
    k: int = 3,
    grid: ScalingGrid = ScalingGrid(),
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> AmplifyReport:
    """Choose heads and a factor, and compare them with masking the top k.

    Args:
        lm: The model of the map.
        head_map: The map.
        measure: The measure of the map.
        utility_measure: Utility measure, such as pppl, whose primary metric states the worse
            direction.
        k: Number of heads to mask.
        grid: Settings of amplification to evaluate.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    head_map.require_same_model(lm)
    negative = head_map.negative_heads()
    # Masking is variant 0: the gain to compare with, and the limit of the cost.
    variants = [AblationVariant(head_map.top(k))]
    variants += [
        AblationVariant(negative[:count], factor) for count, factor in grid.settings(len(negative))
    ]

    def split_measure(
        target: Measure, aggregate: Aggregate, split_by: Literal["auto"] | SplitBy
    ) -> _SplitMeasure:
        responses = target.read(lm, context=context)[0]
        # The map's own split: its confirmation half has neither ranked heads nor chosen the factor.
        split = split_items(target, responses, split_by=split_by, seed=head_map.split.seed)
        if target is measure:
            split.require_two_halves()
        variant_responses = read_variants(
            lm,
            target,
            responses,
            variants,
            block_of=split.block_of,
            context=context,
        )
        return _SplitMeasure(
            target, replace(target.primary_metric, aggregate=aggregate), variant_responses, split
        )

    utility_cost = cost_aggregate(
        utility_measure.primary_metric
    )  # refuses what is no utility before anything is read
    gains = split_measure(
        measure,
        _bias_aggregate(measure.primary_metric, head_map.bias_sign.sign or 1),
        head_map.split.split_by,
    )
    costs = split_measure(utility_measure, utility_cost, "auto")
    scalings = [
        HeadScaling(
            heads=tuple(map(head_label, variant.sites)),
            factor=float(variant.factor or 0.0),
            gain=gains.reduction_on_discovery(i),
            # The cost's formula is larger where the model is worse, so its reduction is a saving.
            cost=-costs.reduction_on_discovery(i),
        )
        for i, variant in enumerate(variants)
    ]
    masking, candidates = scalings[0], scalings[1:]
    # Where masking improves the utility, an amplification that costs nothing is still allowed.
    affordable = [
        i for i, scaling in enumerate(candidates, 1) if scaling.cost <= max(masking.cost, 0.0)
    ]
    make_report = partial(
        AmplifyReport,
        masking=masking,
        candidates=tuple(candidates),
        masking_gain=gains.estimate_reduction((None, 0), inference, "gain of masking"),
        masking_cost=costs.estimate_reduction((0, None), inference, "price of masking"),
        measured_by=measure.measure_key(lm),
    )
    if not affordable:
        reason = "no amplification costs as little as masking on the find half"
        return make_report(chosen=None, notes=(reason,))
    best = max(affordable, key=lambda i: scalings[i].gain)
    return make_report(
        chosen=scalings[best],
        gain=gains.estimate_reduction((None, best), inference, "gain of amplifying"),
        cost=costs.estimate_reduction((best, None), inference, "price of amplifying"),
        # Paired, on the same resamples: two separate intervals could overlap and the gains still
        # differ.
        difference=gains.estimate_reduction(
            (0, best), inference, "gain of amplifying less that of masking"
        ),
    )


def _bias_aggregate(metric: Metric, sign: int) -> Aggregate:
    """The distance from parity; without a parity, the value in the direction of the map."""
    if metric.parity is not None or metric.signed_part is not None:
        return bias_aggregate(metric)
    return lambda values, resample: sign * metric.aggregate(values, resample)
