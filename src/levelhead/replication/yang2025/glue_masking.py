"""What masked heads cost on a task: a column of Yang et al. 2025, Table 2.

Classifiers of several seeds are averaged, resample by resample. Their items are a sample; the seeds
are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.results import Estimate, Record
from levelhead.locate.head_map import head_label
from levelhead.mitigate.evaluation.gain import average_resamples
from levelhead.mitigate.evaluation.sweep import VariantRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.measures.utility.glue_task import GlueTask
    from levelhead.mitigate.evaluation.gain import PairedResamples
    from levelhead.models.sites import Site


class GlueMaskingResult(Record):
    """The utility cost of masking heads on one task: a column of Yang et al. 2025, Table 2."""

    task: str
    metric: str
    unit: str = ""
    mask: str
    """"before" or "after" training."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    heads: dict[str, tuple[str, ...]]
    """Heads of every set, by the paper's names."""
    full: float
    """Value without masked heads, averaged over seeds."""
    sets: Annotated[tuple[VariantRow, ...], Field(min_length=1)]
    """Values averaged over seeds; intervals of changes are over items with fixed seeds."""
    per_seed: tuple[dict[str, float], ...]
    """Values by seed; "full" is without masked heads."""
    random: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Values with random heads of the same layers masked, by set, averaged over seeds."""

    def p(self, name: str) -> float:
        """p-value against random heads of the same layers: (b + 1) / (m + 1)."""
        (value,) = (head_set.value for head_set in self.sets if head_set.name == name)
        random = self.random[name]
        return (sum(random_value <= value for random_value in random) + 1) / (len(random) + 1)


def compute_glue_masking(
    measure: GlueTask,
    resampled: Mapping[int, PairedResamples],
    sets: Mapping[str, Sequence[Site]],
    *,
    mask: str,
    n_random: int,
) -> GlueMaskingResult:
    """Average a task over seeds. No model is run.

    Args:
        measure: the task.
        resampled: by seed, the classifier without masked heads, then with each of the sets masked,
            then with random heads of the first set's layers, of the second's, and so on.
        sets: masked heads by the paper's names.
        mask: "before" or "after" training.
        n_random: number of random sets for each set.
    """
    n_reported = 1 + len(sets)
    unit = measure.primary_metric.unit
    mean = average_resamples(list(resampled.values()))
    # Random heads are a control and no hypotheses: they are not in the sets' correction.
    of_sets = replace(mean, full=mean.full[:n_reported], resamples=mean.resamples[:, :n_reported])
    # Shape [sets, random]: the random heads follow the sets, in their order.
    random = mean.full[n_reported:].reshape(len(sets), n_random).tolist()
    return GlueMaskingResult(
        task=measure.task,
        metric=measure.spec.metrics[0],
        unit=unit,
        mask=mask,
        seeds=tuple(resampled),
        heads={name: tuple(head_label(site) for site in sites) for name, sites in sets.items()},
        full=float(mean.full[0]),
        sets=_changes(of_sets, tuple(sets), unit),
        per_seed=tuple(
            # zip stops after the named sets; the values of random heads follow them.
            dict(zip(("full", *sets), seed.full.tolist(), strict=False))
            for seed in resampled.values()
        ),
        random=dict(zip(sets, map(tuple, random), strict=True)) if n_random else {},
    )


def _changes(mean: PairedResamples, names: Sequence[str], unit: str) -> tuple[VariantRow, ...]:
    effects = mean.effects(sign=-1)
    changes: tuple[Estimate | None, ...] = (None,) * len(names)  # no response changes
    if (effects.standard_errors > 0).any():
        changes = effects.to_estimates([f"change, {set_name}" for set_name in names], unit=unit)
    return tuple(
        VariantRow(name=name, value=float(value), change=change)
        for name, value, change in zip(names, mean.full[1:], changes, strict=True)
    )
