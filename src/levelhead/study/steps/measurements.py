"""Measures of models as they are, and of two models item by item."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.calibration import mark_of
from levelhead.core.results import Measurement
from levelhead.measures.compare import Comparison
from levelhead.measures.responses import model_key
from levelhead.measures.run import run
from levelhead.measures.skills import skills
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, Work, told_of
from levelhead.study.steps.config import Names, Reference, Strict, any_model, measure_named
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cells(Strict):
    """Measures of models as they are."""

    models: Names
    measures: Names

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield from map(any_model, self.models)
        yield from map(measure_named, self.measures)


class Paired(Strict):
    """A model beside another, or an edited one beside its base, item by item."""

    first: str
    second: str
    """Differences are second less first."""
    measures: Names

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield from map(any_model, (self.first, self.second))
        yield from map(measure_named, self.measures)


def cell_steps(work: Work) -> Iterator[Step]:
    """A step for every measure of every model."""
    for name, cells in work.plan.rows(Cells).items():
        for model in cells.models:
            for one in cells.measures:
                make = partial(measured_of, work, model, one)
                yield Step(f"cell.{name}.{model}.{one}", make, work.makers(model))


def comparison_steps(work: Work) -> Iterator[Step]:
    """A step for every measure of every two models."""
    for name, pair in work.plan.rows(Paired).items():
        for one in pair.measures:
            make = partial(compared_with, work, pair, one)
            yield Step(f"against.{name}.{one}", make, work.makers(pair.first, pair.second))


def measured_of(work: Work, model: str, name: str) -> Measurement:
    """One measure of one model."""
    lm, measure = work.model(model), work.measure(name)
    return work.kept(
        Measurement,
        {"measure": told_of(measure), "model": model_key(lm), "skill": skills.REVISION},
        lambda: measure(lm, inference=work.inference, context=work.context),
    )


def compared_with(work: Work, row: Paired, name: str) -> Comparison:
    """One measure of two models, second less first."""
    first, second, measure = work.model(row.first), work.model(row.second), work.measure(name)
    models = [model_key(first), model_key(second)]
    return work.kept(
        Comparison,
        {"measure": told_of(measure), "models": models},
        lambda: run(
            second, [measure], against=first, inference=work.inference, context=work.context
        ).comparisons[0],
    )


def measurement_rows(one: Measurement) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield estimate_cells("", one)
    for beside in one.beside:
        yield estimate_cells("", beside, mark=mark_of(one, beside.name))


def comparison_rows(one: Comparison) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    yield estimate_cells("first", one.first)
    yield estimate_cells("second", one.second)
    for estimate in (one.difference, *one.beside):
        yield estimate_cells("second less first", estimate, mark=one.mark)


CELLS = StepDefinition(Cells, cell_steps, {Measurement: measurement_rows})
COMPARISONS = StepDefinition(Paired, comparison_steps, {Comparison: comparison_rows})
