"""Reduction of one measure of bias by one edit, paired by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference, RunContext
from levelhead.mitigate.evaluation.sweep import read_variant_responses
from levelhead.mitigate.evaluation.variant_responses import resample_bias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.measures.base import Measure
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

EDIT = "edit"


def estimate_bias_reduction(
    measure: Measure,
    lm: LM,
    edits: Sequence[Edit],
    *,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Estimate:
    """Estimate by how much edits bring a measure nearer to its parity.

    The interval is over the sampled units of the measure.

    Args:
        measure: Measure of bias.
        lm: The unedited model.
        edits: Edits, applied together.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    # Before any forward pass: a measure that does not fit must not cost the time of the edits.
    measure.check(lm)
    responses = read_variant_responses(lm, measure, {EDIT: tuple(edits)}, context=context)
    # A gain of 0 would read as an edit that does not help, not as one that was never seen.
    if responses.unaffected_variants:
        raise LevelheadError(
            f"the edit acts behind all that {measure.name} reads: it cannot change it",
            hint="give a measure that reads what the edit changes",
        )
    resamples, _ = resample_bias(responses, (EDIT,), inference, None)
    (gain,) = resamples.effects().to_estimates(
        [f"gain of {measure.name}"], unit=measure.primary_metric.unit
    )
    assert gain is not None  # noqa: S101  # without any change `estimates` has raised
    return gain
