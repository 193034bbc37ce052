"""How many pairs are enough: directions, and effects of an edit, by the number of pairs.

Dawkins et al. 2024, section 4, fit on "a very small handful" of pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.results import Estimate, Provenance, Record
from levelhead.mitigate.evaluation.sweep import compute_sweep_report
from levelhead.mitigate.projection.subspace_stability import StabilityReport

if TYPE_CHECKING:
    from levelhead.core.run_context import Inference
    from levelhead.mitigate.evaluation.variant_responses import VariantResponses


class SubspaceStabilityReport(Record):
    """The stability of the subspaces."""

    sites: Annotated[tuple[StabilityReport, ...], Field(min_length=1)]


class AtPairCount(Record):
    """The chosen setting, fitted on a number of pairs."""

    pairs: Annotated[int, Field(ge=1)]
    value: float
    change: Estimate | None = None


class PairBudgetCurve(Record):
    """The change by a setting as a function of the number of pairs it was fitted on."""

    variant: str
    measure: str
    base: Estimate
    sizes: Annotated[tuple[AtPairCount, ...], Field(min_length=1)]
    measured_by: MeasureKey | None = None
    """The measure of the changes."""
    provenance: Provenance | None = None


def compute_pair_budget(
    setting: str, responses: VariantResponses, *, inference: Inference
) -> PairBudgetCurve:
    """The changes by one setting, fitted on several numbers of pairs. No model is run.

    Args:
        setting: name of the setting.
        responses: of the model and of the setting's edits, by number of pairs.
        inference: seed, resamples and level.
    """
    report = compute_sweep_report(responses, inference=inference)
    return PairBudgetCurve(
        variant=setting,
        measure=report.measure,
        base=report.base,
        sizes=tuple(
            AtPairCount(pairs=int(variant.name), value=variant.value, change=variant.change)
            for variant in report.variants
        ),
        measured_by=report.measured_by,
        provenance=report.provenance,
    )
