"""Measurements of single models, and item-by-item comparisons of two models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.results import Measurement
from levelhead.measures.compare import Comparison
from levelhead.measures.responses import model_key
from levelhead.measures.run import run_measures
from levelhead.measures.skills import checks
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Names,
    Reference,
    StrictConfig,
    any_model_reference,
    measure_reference,
)
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator


class MeasureStep(StrictConfig):
    """Measurements of models."""

    models: Names
    measures: Names

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield from map(any_model_reference, self.models)
        yield from map(measure_reference, self.measures)


class CompareModelsStep(StrictConfig):
    """Comparison of two models, or of an edited model with its base, item by item."""

    first: str
    second: str
    """Differences are second minus first."""
    measures: Names

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield from map(any_model_reference, (self.first, self.second))
        yield from map(measure_reference, self.measures)


def measure_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per model and measure."""
    for name, row in session.config.rows(MeasureStep).items():
        for model in row.models:
            for measure_name in row.measures:
                make = partial(run_measure_step, session, model, measure_name)
                yield StudyStep(
                    f"cell.{name}.{model}.{measure_name}", make, session.steps_that_train(model)
                )


def comparison_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per pair of models and measure."""
    for name, pair in session.config.rows(CompareModelsStep).items():
        for measure_name in pair.measures:
            make = partial(run_comparison_step, session, pair, measure_name)
            yield StudyStep(
                f"against.{name}.{measure_name}",
                make,
                session.steps_that_train(pair.first, pair.second),
            )


def run_measure_step(session: StudySession, model: str, name: str) -> Measurement:
    """Measure one model."""
    lm, measure = session.model(model), session.measure(name)
    return session.load_or_compute(
        Measurement,
        # The measurement contains the skill, so a new revision of skills computes it again; it
        # also contains the items or not.
        {
            "measure": measure_inputs(measure),
            "model": model_key(lm),
            "skill": checks.REVISION,
            "items": session.context.record_items,
        },
        lambda: measure(lm, inference=session.inference, context=session.context),
    )


def run_comparison_step(session: StudySession, row: CompareModelsStep, name: str) -> Comparison:
    """Compare two models by one measure, second minus first."""
    first, second, measure = (
        session.model(row.first),
        session.model(row.second),
        session.measure(name),
    )
    # In this order: the difference changes its sign with it.
    models = [model_key(first), model_key(second)]
    return session.load_or_compute(
        Comparison,
        {"measure": measure_inputs(measure), "models": models},
        lambda: run_measures(
            second, [measure], against=first, inference=session.inference, context=session.context
        ).comparisons[0],
    )


def measurement_rows(measurement: Measurement) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield estimate_cells("", measurement)
    for extra in measurement.extras:
        yield estimate_cells("", extra, mark=failed_calibration_mark(measurement, extra.name))


def comparison_rows(comparison: Comparison) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    yield estimate_cells("first", comparison.first)
    yield estimate_cells("second", comparison.second)
    for estimate in (comparison.difference, *comparison.extras):
        yield estimate_cells("second less first", estimate, mark=comparison.mark)


MEASUREMENTS = StepDefinition(MeasureStep, measure_steps, {Measurement: measurement_rows})
COMPARISONS = StepDefinition(CompareModelsStep, comparison_steps, {Comparison: comparison_rows})
