"""Whether a measure fell: one edit's gain by one measure of bias, item by item."""

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


def bias_reduction(
    measure: Measure,
    lm: LM,
    edits: Sequence[Edit],
    *,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Estimate:
    """By how much edits bring a measure nearer to its parity, with an interval over its units.

    Args:
        measure: of bias.
        lm: the unedited model.
        edits: tested together.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
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
