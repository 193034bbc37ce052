"""Effects of an edit: a measure of the edited model, and its paired difference from the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Record
from levelhead.locate.effects import estimate_effects
from levelhead.measures.inference import estimate

if TYPE_CHECKING:
    from levelhead.core.run_context import Inference
    from levelhead.locate.validation.split import SplitHalf
    from levelhead.measures.base import Measure
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses


class MeasureChange(Record):
    """One measure of an edited model and of its base."""

    measure: str
    value: Estimate
    """Value of the edited model, on all items."""
    change: Estimate | None = None
    """Value of the edited model less that of the base, paired by item; None for the base itself."""
    confirmed_change: Estimate | None = None
    """The same difference on the half on which the edit was not chosen."""
    extra_changes: tuple[Estimate, ...] = ()
    """Changes of other metrics, such as SEAT's difference of means, because its effect size has
    no scale."""
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""


def measure_change(
    measure: Measure,
    base: Responses,
    edited: Responses | None,
    *,
    inference: Inference,
    confirmation_half: SplitHalf | None = None,
    extras: tuple[str, ...] = (),
    measured_by: MeasureKey | None = None,
) -> MeasureChange:
    """Compute the change of one measure.

    Args:
        measure: The measure.
        base: Responses of the model.
        edited: Responses of the edited model; None for the value of the base alone.
        inference: Seed, resamples and level.
        confirmation_half: The half on which the edit was not chosen, if it was chosen by this
            measure.
        extras: Names of other metrics whose change is computed.
        measured_by: Key of the measure with this type of model.
    """
    metric = measure.primary_metric
    value = estimate(
        inference,
        metric,
        metric.per_item_values(edited or base),
        measure.design(edited or base, metric),
        # The value itself has no test: the claim about an edit is its paired change below.
        test=False,
    )
    if edited is None:
        return MeasureChange(measure=measure.name, value=value, measured_by=measured_by)
    # Paired: an item that one model cannot read would move the difference by its own value.
    common_ids = {item.id for item in base.items} & {item.id for item in edited.items}
    first, second = (
        responses.select(lambda item: item.id in common_ids) for responses in (base, edited)
    )
    return MeasureChange(
        measure=measure.name,
        value=value,
        change=_difference(measure, first, second, inference, metric),
        confirmed_change=None
        if confirmation_half is None
        else _difference(
            measure,
            confirmation_half.select(first),
            confirmation_half.select(second),
            inference,
            metric,
            "confirmed",
        ),
        extra_changes=tuple(
            _difference(measure, first, second, inference, measure.get_metric(name))
            for name in extras
        ),
        measured_by=measured_by,
    )


def _difference(
    measure: Measure,
    base: Responses,
    edited: Responses,
    inference: Inference,
    metric: Metric,
    name: str = "change",
) -> Estimate:
    paired_effects = estimate_effects(
        measure,
        base,
        [edited],
        # Effects are base less variant; a change is the reverse.
        sign=-1,
        inference=inference,
        name=f"{name} {metric.name}",
        metric=metric,
    )
    (estimate,) = paired_effects.to_estimates([f"{name} of {metric.name}"], unit=metric.unit)
    # A change of 0 would read as a measured one.
    if estimate is None:
        raise NotMeasurableError(
            "the edit changes no answer", hint="check the edit: one without effect is no edit"
        )
    return estimate
