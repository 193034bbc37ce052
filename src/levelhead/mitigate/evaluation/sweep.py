"""One measure of a model and of every setting of a grid, read together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Dropped, Estimate, Provenance, Record
from levelhead.core.run_context import RunContext
from levelhead.measures.edit_sweep import read_each
from levelhead.measures.inference import estimate
from levelhead.mitigate.evaluation.gain import redrawn, shared
from levelhead.mitigate.evaluation.variant_responses import Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.run_context import Inference
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.forward.edit_sweep import Edits
    from levelhead.models.lm import LM


class SweptSetting(Record):
    """What one setting changes."""

    name: str
    value: float
    """Of the edited model, on the items that all settings could read."""
    change: Estimate | None = None
    """Edited less base, item by item; None: not one answer changes."""


class Swept(Record):
    """One measure of the model and of every setting."""

    measure: str
    unit: str = ""
    base: Estimate
    """Of the model as it is."""
    settings: Annotated[tuple[SweptSetting, ...], Field(min_length=1)]
    behind: tuple[str, ...] = ()
    """Settings that act behind all that the measure reads: they cannot change it."""
    dropped: tuple[Dropped, ...] = ()
    measured_by: Ruler | None = None
    """What it is measured by."""
    provenance: Provenance | None = None

    def of(self, name: str) -> SweptSetting | None:
        """A setting by its name; None if it cannot change the measure."""
        return next((one for one in self.settings if one.name == name), None)


def said(
    lm: LM, measure: Measure, settings: Mapping[str, Edits], *, context: RunContext = RunContext()
) -> Said:
    """What a model and its settings say to a measure, and which of them cannot change it.

    Args:
        lm: the model as it is.
        measure: what asks.
        settings: the edits of each, by name.
        context: store, threads, progress and cancellation.
    """
    asked = measure.asked(lm)[0]
    base, *found = read_each(lm, asked, [(), *settings.values()], context=context)
    assert base is not None  # noqa: S101  # the model as it is always answers
    acting: dict[str, Readouts] = {
        name: own for name, own in zip(settings, found, strict=True) if own is not None
    }
    return Said(
        measure,
        base,
        acting,
        measured_by=measure.ruler(lm),
        behind=tuple(name for name in settings if name not in acting),
        asked_of=_asked_of(lm, measure, settings, base),
    )


def _asked_of(
    lm: LM, measure: Measure, settings: Mapping[str, Edits], base: Readouts
) -> Provenance:
    """The model as it is; the edits of all settings have one hash together."""
    edits = {name: [edit.content_hash for edit in own] for name, own in settings.items()}
    return Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data={**measure.data, "edits of the settings": content_hash(edits)},
        equation=measure.headline.equation,
        settings={"measure": measure.settings, "asked": base.facts},
    )


def swept(of: Said, *, inference: Inference) -> Swept:
    """The values of all settings, and their paired changes with intervals.

    Args:
        of: what the model and its settings said.
        inference: seed, resamples and level.
    """
    if not of.settings:
        raise NotMeasurable(
            f"no setting acts before what {of.measure.name} reads",
            mend="choose a deeper level, or a measure that reads what these edit",
        )
    head = of.measure.headline
    readouts, dropped = shared([of.base, *of.settings.values()])
    found = redrawn(of.measure, readouts, head.over, aspect=head, inference=inference)
    changes = found.effects(way=-1).estimates(
        [f"change of {head.name}"] * len(of.settings), unit=head.unit
    )
    base = estimate(
        inference, head, head.per_item(of.base), of.measure.design(of.base, head), tested=False
    )
    return Swept(
        measure=of.measure.name,
        unit=head.unit,
        base=base,
        settings=tuple(
            SweptSetting(name=name, value=float(value), change=change)
            for name, value, change in zip(of.settings, found.whole[1:], changes, strict=True)
        ),
        behind=of.behind,
        dropped=dropped,
        measured_by=of.measured_by,
        provenance=of.judged_by(inference),
    )
