"""Comparison of chosen heads with random heads: would any heads of the same layers do as much?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Estimate, PValue, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.effects import estimate_effects
from levelhead.locate.head_map import head_label
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

# The least p of 199 sets is 1/200 = 0.005, which leaves room below 0.05 for a clear result.
MIN_RANDOM_SETS = 199


class RandomHeadControl(Record):
    """Effect of masking some heads, compared with masking random heads of the same layers."""

    heads: tuple[str, ...]
    """Labels of the heads as in the paper, <layer>-<head>, counted from 1."""
    effect: Estimate
    """Decrease of the measure by masking the heads together, on the confirmation half."""
    random_effects: tuple[float, ...]
    """Decrease of the measure by masking each random set."""
    p: PValue
    """p-value against random heads of these layers: (b + 1) / (m + 1)."""
    notes: tuple[str, ...] = ()
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""

    @property
    def random_median(self) -> float:
        """Median effect of the random sets."""
        return float(np.median(self.random_effects))

    @property
    def random_95th_percentile(self) -> float:
        """95th percentile of the effects of the random sets."""
        return float(np.quantile(self.random_effects, 0.95))


def sample_random_heads(
    sites: Sequence[Site], heads_per_layer: int, *, rng: np.random.Generator
) -> tuple[Site, ...]:
    """Sample random heads, as many in every layer as there are among the given heads."""
    sampled = []
    for layer, count in sorted(Counter(site.layer for site in sites).items()):
        # As many heads per layer as were chosen: layers differ in effect, so random heads of other
        # layers would be no comparison.
        chosen = rng.choice(heads_per_layer, count, replace=False)
        sampled += [Site("head_out", layer, int(head)) for head in sorted(chosen)]
    return tuple(sampled)


def compare_with_random_heads(
    lm: LM,
    measure: Measure,
    responses: Responses,
    sites: Sequence[Site],
    *,
    sign: int = 1,
    n_random_sets: int = 199,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> RandomHeadControl:
    """Mask some heads, and sets of random heads of the same layers.

    Args:
        lm: The model.
        measure: The measure to reduce.
        responses: Responses to the confirmation half, on which the heads were not chosen.
        sites: The chosen heads.
        sign: Direction of bias.
        n_random_sets: Number of random sets.
        inference: Seed and level.
        context: Store, threads, progress and cancellation.
    """
    if n_random_sets < MIN_RANDOM_SETS:
        raise LevelheadError(
            f"{n_random_sets} random sets say little", hint=f"give at least {MIN_RANDOM_SETS}"
        )
    if not sites or any(site.stream != "head_out" or site.head is None for site in sites):
        raise LevelheadError("random heads stand for heads only", hint="give sites of heads")
    chosen = tuple(sorted(sites))
    rng = inference.rng(measure.name, "random heads", *map(str, chosen))
    random_sets = [
        sample_random_heads(chosen, lm.layout.heads, rng=rng) for _ in range(n_random_sets)
    ]
    distinct = list(
        dict.fromkeys([chosen, *random_sets])
    )  # a set that comes twice is measured once
    ablation_responses = read_variants(
        lm,
        measure,
        responses,
        [AblationVariant(site_set) for site_set in distinct],
        context=context,
    )
    direction, base = sign or 1, float(measure.reduce(ablation_responses.responses_of(None)))
    effect_of_set = {
        site_set: direction * (base - float(measure.reduce(ablation_responses.responses_of(i))))
        for i, site_set in enumerate(distinct)
    }
    # Repeated sets count as often as they were drawn, or p would not be that of random sampling.
    random_effects = tuple(effect_of_set[site_set] for site_set in random_sets)
    ablation_effects = estimate_effects(
        measure,
        ablation_responses.responses_of(None),
        [ablation_responses.responses_of(0)],
        sign=direction,
        inference=inference,
        name="joint",
    )
    (effect,) = ablation_effects.to_estimates(["joint mask"], unit=measure.primary_metric.unit)
    if effect is None:
        raise LevelheadError("masking these heads changes nothing", hint="check the heads")
    n_as_large = sum(random_effect >= effect_of_set[chosen] for random_effect in random_effects)
    notes: tuple[str, ...] = ()
    if len(set(random_sets)) < n_random_sets / 2:
        notes = (f"these layers allow few sets: {len(set(random_sets))} different ones were drawn",)
    return RandomHeadControl(
        heads=tuple(head_label(site) for site in chosen),
        effect=effect,
        random_effects=random_effects,
        p=PValue(
            # The chosen heads count as one of the sets, so that p is never 0.
            value=(n_as_large + 1) / (n_random_sets + 1),
            method="random heads of the same layers",
            alternative="greater",
            n_resamples=n_random_sets,
        ),
        notes=notes,
        measured_by=measure.measure_key(lm),
    )
