"""Heads of a map masked and amplified (Yang et al. 2025, Tables 1 and 3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import failed_calibration_mark
from levelhead.mitigate.heads.amplify import AmplifyReport, ScalingGrid, amplify
from levelhead.mitigate.heads.mask_top_heads import MaskingReport, compare_masked_heads
from levelhead.replication.yang2025.masking_curves import MaskingCurves, measure_masking_curves
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Count,
    Counts,
    Factors,
    Names,
    Reference,
    StrictConfig,
    map_reference,
    measure_reference,
)
from levelhead.study.steps.head_maps import HeadMapStep
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.mitigate.evaluation.change import MeasureChange


class MaskHeadsStep(StrictConfig):
    """Table 1 of Yang et al. 2025: top, bottom, all positive and random heads masked."""

    map: str
    utility_measures: Names
    k: Count = 3
    random: Annotated[int, Field(ge=2)] = 5

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield map_reference(self.map)
        yield from map(measure_reference, self.utility_measures)


class MaskingCurveStep(StrictConfig):
    """Table 3: other measures by the number of masked heads of a map."""

    map: str
    measures: Names
    step_size: Count = 5

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield map_reference(self.map)
        yield from map(measure_reference, self.measures)


class AmplifyStep(StrictConfig):
    """Amplification of heads with negative scores, compared with masking."""

    map: str
    utility_measure: str
    ks: Counts = (1, 3, 5)
    factors: Factors = (1.5, 2.0, 3.0)

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield map_reference(self.map)
        yield measure_reference(self.utility_measure)


def masking_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per table of masked heads."""
    for name, row in session.config.rows(MaskHeadsStep).items():
        yield StudyStep(
            f"masking.{name}", partial(run_masking_step, session, name), (f"map.{row.map}",)
        )


def masking_curve_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per set of curves."""
    for name, row in session.config.rows(MaskingCurveStep).items():
        yield StudyStep(
            f"lines.{name}", partial(run_masking_curves_step, session, name), (f"map.{row.map}",)
        )


def amplify_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per selection of heads to amplify."""
    for name, row in session.config.rows(AmplifyStep).items():
        yield StudyStep(
            f"amplify.{name}", partial(run_amplify_step, session, name), (f"map.{row.map}",)
        )


def run_masking_step(session: StudySession, name: str) -> MaskingReport:
    """Compute Table 1."""
    row = session.config.rows(MaskHeadsStep)[name]
    head_map = session.head_map(row.map)
    map_step = session.config.rows(HeadMapStep)[row.map]
    lm = session.model(map_step.model)
    measures = [
        session.measure(measure_name) for measure_name in (map_step.measure, *row.utility_measures)
    ]
    inputs = {"map": head_map.content_hash, "k": row.k, "random": row.random}
    return session.load_or_compute(
        MaskingReport,
        inputs | {"measures": [measure_inputs(measure) for measure in measures]},
        lambda: compare_masked_heads(
            lm,
            head_map,
            measures,
            k=row.k,
            n_random_sets=row.random,
            inference=session.inference,
            context=session.context,
        ),
    )


def run_masking_curves_step(session: StudySession, name: str) -> MaskingCurves:
    """Compute Table 3."""
    row = session.config.rows(MaskingCurveStep)[name]
    head_map = session.head_map(row.map)
    lm = session.model(session.config.rows(HeadMapStep)[row.map].model)
    measures = [(measure_name, session.measure(measure_name)) for measure_name in row.measures]
    inputs = {"map": head_map.content_hash, "every": row.step_size, "names": list(row.measures)}
    return session.load_or_compute(
        MaskingCurves,
        inputs | {"measures": [measure_inputs(measure) for _, measure in measures]},
        lambda: measure_masking_curves(
            lm,
            head_map,
            measures,
            step=row.step_size,
            inference=session.inference,
            context=session.context,
        ),
    )


def run_amplify_step(session: StudySession, name: str) -> AmplifyReport:
    """Compare amplification with masking."""
    row = session.config.rows(AmplifyStep)[name]
    head_map, map_step = session.head_map(row.map), session.config.rows(HeadMapStep)[row.map]
    lm, measure, utility_measure = (
        session.model(map_step.model),
        session.measure(map_step.measure),
        row.utility_measure,
    )
    inputs = {"map": head_map.content_hash, "row": row.model_dump(), "k": map_step.k}
    return session.load_or_compute(
        AmplifyReport,
        inputs
        | {"measures": [measure_inputs(measure), measure_inputs(session.measure(utility_measure))]},
        lambda: amplify(
            lm,
            head_map,
            measure,
            session.measure(utility_measure),
            k=map_step.k,
            grid=ScalingGrid(row.ks, row.factors),
            inference=session.inference,
            context=session.context,
        ),
    )


def _change_rows(name: str, change: MeasureChange) -> Iterator[RowCells]:
    failed = failed_calibration_mark(change.measured_by)
    yield estimate_cells(name, change.value, change.measure, failed)
    for estimate in (change.change, change.confirmed_change, *change.extra_changes):
        if estimate is not None:
            yield estimate_cells(name, estimate, mark=failed)


def masking_rows(result: MaskingReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for change in result.base:
        yield from _change_rows("none", change)
    for row in result.rows:
        for change in row.changes:
            yield from _change_rows(row.name, change)


def masking_curve_rows(result: MaskingCurves) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for curve in result.curves:
        failed = failed_calibration_mark(curve.measured_by)
        for point in curve.points:
            cells: RowCells = {
                "low": point.low,
                "high": point.high,
                "mark": failed,
                "over": "items",
            }
            yield {"name": f"top {point.k}", "what": curve.name, "value": point.value, **cells}
            if point.change is not None:
                yield estimate_cells(
                    f"top {point.k}", point.change, f"change of {curve.name}", failed
                )


def amplify_rows(result: AmplifyReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for setting in (result.masking, *result.candidates):
        name = f"{len(setting.heads)} heads x {setting.factor:g}"
        yield {"name": name, "what": "gain, find half", "value": setting.gain}
        # The cost is that of another measure, whose mark is not the map's.
        yield {"name": name, "what": "price, find half", "value": setting.cost, "mark": ""}
    gains = (result.masking_gain, result.gain, result.difference)
    for estimate in (
        result.masking_gain,
        result.masking_cost,
        result.gain,
        result.cost,
        result.difference,
    ):
        if estimate is not None:
            yield estimate_cells("confirm half", estimate, mark=None if estimate in gains else "")


MASKING = StepDefinition(MaskHeadsStep, masking_steps, {MaskingReport: masking_rows})
MASKING_CURVES = StepDefinition(
    MaskingCurveStep, masking_curve_steps, {MaskingCurves: masking_curve_rows}
)
AMPLIFY = StepDefinition(AmplifyStep, amplify_steps, {AmplifyReport: amplify_rows})
