"""A measure of a model and of every setting of a grid, read together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurableError
from levelhead.core.frames import make_number_row
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import DroppedItem, Estimate, Provenance, Record
from levelhead.core.run_context import RunContext
from levelhead.measures.edit_sweep import read_all_variants
from levelhead.measures.inference import estimate
from levelhead.mitigate.evaluation.gain import keep_common_items, resample_paired
from levelhead.mitigate.evaluation.variant_responses import VariantResponses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM


class VariantRow(Record):
    """Value and change of one setting."""

    name: str
    value: float
    """Value of the edited model, on the items that all settings could read."""
    change: Estimate | None = None
    """Value of the edited model less that of the base, paired by item; None if no answer
    changes."""


class SweepReport(NotebookResult, Record):
    """A measure of the model and of every setting."""

    measure: str
    unit: str = ""
    base: Estimate
    """Value of the unedited model."""
    variants: Annotated[tuple[VariantRow, ...], Field(min_length=1)]
    unaffected_variants: tuple[str, ...] = ()
    """Settings that act after all layers that the measure reads, and so cannot change it."""
    dropped: tuple[DroppedItem, ...] = ()
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""
    provenance: Provenance | None = None

    @property
    def title(self) -> str:
        """The measure and the number of settings."""
        return f"{self.measure} with {len(self.variants)} edits"

    def to_rows(self) -> list[dict[str, object]]:
        """The unedited model, then each setting: its value, and its change with the interval."""
        return [
            {"name": "unedited", "value": self.base.value},
            *(
                {"change" if key == "value" else key: cell for key, cell in row.items()}
                | {"name": variant.name, "value": variant.value}
                for variant in self.variants
                for row in (make_number_row(variant.name, variant.change),)
            ),
        ]

    def variant(self, name: str) -> VariantRow | None:
        """Return a setting by its name; None if it cannot change the measure."""
        return next((row for row in self.variants if row.name == name), None)


def read_variant_responses(
    lm: LM, measure: Measure, variants: Mapping[str, EditSet], *, context: RunContext = RunContext()
) -> VariantResponses:
    """Read the responses of a model and its settings, and list settings that cannot change them.

    Args:
        lm: The unedited model.
        measure: The measure.
        variants: Edits of each setting, by name.
        context: Store, threads, progress and cancellation.
    """
    queries = measure.queries(lm)[0]
    base, *edited_responses = read_all_variants(
        lm, queries, [(), *variants.values()], context=context
    )
    assert base is not None  # noqa: S101  # the model as it is always answers
    affected: dict[str, Responses] = {
        name: responses
        for name, responses in zip(variants, edited_responses, strict=True)
        if responses is not None
    }
    return VariantResponses(
        measure,
        base,
        affected,
        measured_by=measure.measure_key(lm),
        unaffected_variants=tuple(name for name in variants if name not in affected),
        provenance=_provenance(lm, measure, variants, base),
    )


def _provenance(
    lm: LM, measure: Measure, variants: Mapping[str, EditSet], base: Responses
) -> Provenance:
    """Provenance of the unedited model; the edits of all settings have one hash together."""
    edits = {
        name: [edit.content_hash for edit in variant_edits]
        for name, variant_edits in variants.items()
    }
    return Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data={**measure.data, "edits of the settings": content_hash(edits)},
        equation=measure.primary_metric.equation,
        settings={"measure": measure.settings, "asked": base.metadata},
    )


def compute_sweep_report(responses: VariantResponses, *, inference: Inference) -> SweepReport:
    """Values of all settings, and their paired changes with intervals.

    Args:
        responses: Responses of the model and its settings.
        inference: Seed, resamples and level.
    """
    # An empty report would read as settings without an effect.
    if not responses.variants:
        raise NotMeasurableError(
            f"no setting acts before what {responses.measure.name} reads",
            hint="choose a deeper level, or a measure that reads what these edit",
        )
    metric = responses.measure.primary_metric
    # The same items for all settings, or a setting that drops hard items would look better.
    all_responses, dropped = keep_common_items([responses.base, *responses.variants.values()])
    resamples = resample_paired(
        responses.measure, all_responses, metric.aggregate, metric=metric, inference=inference
    )
    changes = resamples.effects(sign=-1).to_estimates(
        [f"change of {metric.name}"] * len(responses.variants), unit=metric.unit
    )
    # The base's value is of all its items; the rows below are of those that all settings could
    # read.
    base = estimate(
        inference,
        metric,
        metric.per_item_values(responses.base),
        responses.measure.design(responses.base, metric),
        test=False,
    )
    return SweepReport(
        measure=responses.measure.name,
        unit=metric.unit,
        base=base,
        variants=tuple(
            VariantRow(name=name, value=float(value), change=change)
            for name, value, change in zip(
                responses.variants, resamples.full[1:], changes, strict=True
            )
        ),
        unaffected_variants=responses.unaffected_variants,
        dropped=dropped,
        measured_by=responses.measured_by,
        provenance=responses.provenance_with(inference),
    )
