"""The distribution of biased heads: counts, concentration and layers, with permuted labels.

Any skewed distribution looks like "a small set of heads". So every description of the effects is
reported with the same description of maps whose labels were permuted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError
from levelhead.core.results import PValue, Record
from levelhead.core.run_context import Inference
from levelhead.locate.validation.relabel import sample_relabelling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.locate.attribution.variants import AblationResponses
    from levelhead.locate.validation.split import SplitHalf
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric

# Top-3 is the best mask of Yang et al. 2025 (Table 1).
TOP_HEADS = 3
TOP_SHARES = (0.05, 0.10)


class MapStatistic(Record):
    """A number that describes a map, with its null distribution from maps of permuted labels."""

    name: str
    value: float
    null_median: float | None = None
    null_low: float | None = None
    null_high: float | None = None
    """2.5% and 97.5% quantiles over the maps with permuted labels."""
    p: PValue | None = None
    """Two-sided: twice the share of permuted labels whose number is at least as extreme, on the
    nearer side."""


class MapDescription(Record):
    """Numbers that describe a map."""

    statistics: tuple[MapStatistic, ...]
    layer_sums: tuple[MapStatistic, ...]
    """Sum of the values of each layer, from the first layer on."""
    n_relabellings: int
    measured_by: MeasureKey | None = None

    def statistic(self, name: str) -> MapStatistic:
        """Return a number by its name."""
        return next(statistic for statistic in self.statistics if statistic.name == name)


def compute_map_statistics(
    values: NDArray[np.float64], layer_of_head: Sequence[int]
) -> dict[str, float]:
    """Counts of positive and negative heads, concentration of the positive mass, sums by layer.

    The effective number of heads is (sum b)^2 / sum b^2 over positive b: 1 if one head carries
    everything, n if n heads carry the same.

    >>> described = compute_map_statistics(np.array([3.0, 1.0, -1.0]), [0, 0, 1])
    >>> round(described["effective number of heads"], 2)
    1.6
    """
    # Only heads that add to the bias: negative ones would cancel in the mass, and shares could
    # exceed 1.
    positive = np.sort(values[values > 0])[::-1]
    mass = float(positive.sum())

    def top_share(count: int) -> float:
        return float(positive[:count].sum()) / mass if mass else 0.0

    statistics = {
        "positive heads": float(positive.size),
        "negative heads": float((values < 0).sum()),
        f"share of the top {TOP_HEADS}": top_share(TOP_HEADS),
        **{
            f"share of the top {100 * fraction:.0f}%": top_share(
                max(1, math.ceil(fraction * values.size))
            )
            for fraction in TOP_SHARES
        },
        # Participation ratio, as for eigenvalues: robust to many heads with tiny effects.
        "effective number of heads": mass**2 / float((positive**2).sum()) if mass else 0.0,
        "total": float(values.sum()),
        "largest": float(values.max()),
    }
    for number in sorted(set(layer_of_head)):
        statistics[f"layer {number + 1}"] = float(values[np.array(layer_of_head) == number].sum())
    return statistics


def describe_map(
    measure: Measure,
    ablation_responses: AblationResponses,
    half: SplitHalf,
    *,
    n_relabellings: int = 199,
    inference: Inference = Inference(),
    measured_by: MeasureKey | None = None,
) -> MapDescription:
    """Describe the effects of ablation on a half, and those of permuted labels; runs no model.

    Args:
        measure: The measure.
        ablation_responses: Responses of the model without each head.
        half: The half of the items.
        n_relabellings: Number of label permutations.
        inference: Seed.
        measured_by: Key of the measure with this type of model.
    """
    rng = inference.rng(measure.name, "relabelled maps")
    # An MLP is a part of another size: shares of heads and layer sums would mix the two.
    if any(variant.sites[0].stream != "head_out" for variant in ablation_responses.variants):
        raise LevelheadError("a description is of heads", hint="ablate heads only")
    layer_of_head = [variant.sites[0].layer for variant in ablation_responses.variants]
    variant_responses = [half.select_variant(ablation_responses, None)]
    variant_responses += [
        half.select_variant(ablation_responses, i) for i in range(len(ablation_responses.variants))
    ]
    metric = measure.primary_metric

    full_sample = measure.design(variant_responses[0], metric).full_sample
    values = np.array(
        [
            float(metric.aggregate(metric.per_item_values(responses), full_sample))
            for responses in variant_responses
        ]
    )
    statistics = compute_map_statistics(
        _bias_direction(values[0], metric) * (values[0] - values[1:]), layer_of_head
    )
    null: dict[str, list[float]] = {name: [] for name in statistics}
    for _ in range(n_relabellings):
        # One permutation for the model and all its variants: effects are paired differences.
        permute, per_item = sample_relabelling(measure, variant_responses[0], rng)
        permuted = [permute(responses) for responses in variant_responses]
        # The design is made anew, because the groups of the items have changed.
        full_sample = measure.design(permuted[0], metric).full_sample
        values = np.array(
            [float(metric.aggregate(per_item(responses), full_sample)) for responses in permuted]
        )
        # The observed map chose its direction by its value, so each permuted map must do the same:
        # a fixed direction would compare a chosen sign with random ones.
        permuted_effects = _bias_direction(values[0], metric) * (values[0] - values[1:])
        for name, value in compute_map_statistics(permuted_effects, layer_of_head).items():
            null[name].append(value)
    map_statistics = [
        _make_statistic(name, value, null[name]) for name, value in statistics.items()
    ]
    return MapDescription(
        statistics=tuple(
            statistic for statistic in map_statistics if not statistic.name.startswith("layer ")
        ),
        layer_sums=tuple(
            statistic for statistic in map_statistics if statistic.name.startswith("layer ")
        ),
        n_relabellings=n_relabellings,
        measured_by=measured_by,
    )


def _bias_direction(value: float, metric: Metric) -> float:
    """Direction of bias by one rule for the map and for permuted maps, each by its value."""
    if metric.role == "parity":
        return -1.0
    return 1.0 if metric.parity is None or value >= metric.parity else -1.0


def _make_statistic(name: str, value: float, null: Sequence[float]) -> MapStatistic:
    statistic = MapStatistic(name=name, value=value)
    if not null:
        return statistic
    # Both tails count, since bias may be more or less concentrated than permuted labels give.
    n_as_extreme = min(
        sum(null_value >= value for null_value in null),
        sum(null_value <= value for null_value in null),
    )
    p_value = PValue(
        value=min(1.0, 2 * (n_as_extreme + 1) / (len(null) + 1)),
        method="labels permuted",
        alternative="two-sided",
        n_resamples=len(null),
    )
    low, median, high = np.quantile(null, [0.025, 0.5, 0.975])
    return statistic.model_copy(
        update={
            "null_low": float(low),
            "null_median": float(median),
            "null_high": float(high),
            "p": p_value,
        }
    )
