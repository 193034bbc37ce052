"""Other measures as more and more heads of a map are masked (Yang et al. 2025, Table 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import MeasureKey
from levelhead.core.results import Estimate, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.heads.mask_top_heads import MaskingReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.base import Measure
    from levelhead.mitigate.evaluation.change import MeasureChange
    from levelhead.models.lm import LM


class MaskingPoint(Record):
    """A measure with the first k heads masked."""

    k: Annotated[int, Field(ge=0)]
    value: float
    low: float
    high: float
    change: Estimate | None = None
    """From no head masked."""


class MaskingCurve(Record):
    """A measure against the number of masked heads."""

    name: str
    points: tuple[MaskingPoint, ...]
    measured_by: MeasureKey | None = None
    """What it is measured by."""


class MaskingCurves(Record):
    """Table 3: other measures as more and more heads are masked."""

    map: str
    measure: str = "value"
    """What all curves are of, if it is one measure."""
    curves: tuple[MaskingCurve, ...]
    notes: tuple[str, ...] = ()


def measure_masking_curves(
    lm: LM,
    head_map: HeadMap,
    measures: Sequence[tuple[str, Measure]],
    *,
    step: int = 5,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> MaskingCurves:
    """Other measures with the first 0, 5, 10 ... heads of a map masked, up to all positive ones."""
    head_map.require_same_model(lm)
    positive = head_map.positive_heads()
    # As in Table 3, where the smallest LPBS is not that of all 45 heads: the end alone would
    # mislead.
    counts = [*range(step, len(positive), step), len(positive)]
    curves = []
    for name, measure in measures:
        reader = MaskingReader(lm, [measure], inference, context)
        (base,) = reader.base
        points = [_point(0, base)]
        for k in counts:
            (change,) = reader.mask(f"top {k}", mask_heads(positive[:k])).changes
            points.append(_point(k, change))
        curves.append(
            MaskingCurve(name=name, points=tuple(points), measured_by=measure.measure_key(lm))
        )
    kinds = {measure.name for _, measure in measures}
    measure_name = kinds.pop() if len(kinds) == 1 else "value"
    return MaskingCurves(map=head_map.content_hash, measure=measure_name, curves=tuple(curves))


def _point(k: int, change: MeasureChange) -> MaskingPoint:
    value = change.value
    return MaskingPoint(
        k=k,
        value=value.value,
        low=value.interval.low,
        high=value.interval.high,
        change=change.change,
    )
