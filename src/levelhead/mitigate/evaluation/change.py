"""What an edit changes: a measure of the edited model, and its paired difference from the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.calibration import Ruler
from levelhead.core.errors import NotMeasurable
from levelhead.core.results import Estimate, Record
from levelhead.locate.effects import effects
from levelhead.measures.inference import estimate

if TYPE_CHECKING:
    from levelhead.core.run_context import Inference
    from levelhead.locate.validation.split import Half
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Aspect
    from levelhead.measures.responses import Readouts


class Change(Record):
    """One measure of an edited model beside the base."""

    measure: str
    value: Estimate
    """Of the edited model, on all items."""
    change: Estimate | None = None
    """Edited less base, item by item; None of the base itself."""
    confirmed: Estimate | None = None
    """The same on the half on which the edit was not chosen."""
    beside: tuple[Estimate, ...] = ()
    """The change of other aspects: SEAT's difference of means, its effect size having no scale."""
    measured_by: Ruler | None = None
    """What it is measured by."""


def changed(
    measure: Measure,
    base: Readouts,
    edited: Readouts | None,
    *,
    inference: Inference,
    confirm: Half | None = None,
    beside: tuple[str, ...] = (),
    measured_by: Ruler | None = None,
) -> Change:
    """The change of one measure.

    Args:
        measure: which.
        base: what the model said.
        edited: what the edited model said; None: the base's own value is wanted.
        inference: seed, resamples and level.
        confirm: the half on which the edit was not chosen, if it was chosen by this measure.
        beside: other aspects whose change is wanted.
        measured_by: the measure, asked of such a model.
    """
    head = measure.headline
    value = estimate(
        inference,
        head,
        head.per_item(edited or base),
        measure.design(edited or base, head),
        tested=False,
    )
    if edited is None:
        return Change(measure=measure.name, value=value, measured_by=measured_by)
    shared = {item.id for item in base.items} & {item.id for item in edited.items}
    first, second = (own.some(lambda item: item.id in shared) for own in (base, edited))
    return Change(
        measure=measure.name,
        value=value,
        change=_difference(measure, first, second, inference, head),
        confirmed=None
        if confirm is None
        else _difference(
            measure, confirm.of(first), confirm.of(second), inference, head, "confirmed"
        ),
        beside=tuple(
            _difference(measure, first, second, inference, measure.aspect(name)) for name in beside
        ),
        measured_by=measured_by,
    )


def _difference(
    measure: Measure,
    base: Readouts,
    edited: Readouts,
    inference: Inference,
    aspect: Aspect,
    name: str = "change",
) -> Estimate:
    found = effects(
        measure,
        base,
        [edited],
        sign=-1,
        inference=inference,
        name=f"{name} {aspect.name}",
        aspect=aspect,
    )
    (estimate,) = found.estimates([f"{name} of {aspect.name}"], unit=aspect.unit)
    if estimate is None:
        raise NotMeasurable(
            "the edit changes no answer", mend="check the edit: one without effect is no edit"
        )
    return estimate
