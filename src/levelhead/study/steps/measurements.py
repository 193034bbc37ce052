"""Measurements of single models, and item-by-item comparisons of two models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs, contrast_pairs_digest
from levelhead.measures.compare import Comparison
from levelhead.measures.responses import model_key
from levelhead.measures.run import run_measures
from levelhead.measures.skills import checks
from levelhead.mitigate.evaluation.knowledge import (
    MARGIN,
    evaluate_knowledge,
)
from levelhead.mitigate.evaluation.price import (
    MitigationReport,
    evaluate_mitigation,
    list_price_measures,
)
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.mitigate.heads.mask_top_heads import select_heads
from levelhead.mitigate.selection.compare_methods import MethodComparison, compare_methods
from levelhead.mitigate.selection.method_settings import EDIT_METHODS
from levelhead.mitigate.selection.method_table import MethodTable
from levelhead.models.edits.dictionary_files import load_dictionary
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Count,
    Names,
    Reference,
    StrictConfig,
    any_model_reference,
    as_tuple,
    map_reference,
    measure_reference,
)
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM
    from levelhead.study.steps.config import StudyConfigBase


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


class MitigationStep(StrictConfig):
    """A mitigation of a model, by measures of bias and by its price."""

    model: str
    measures: Names
    """Measures of bias."""
    utility_measures: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Measures of utility; by default those that fit the model."""
    map: str | None = None
    """Head map whose top heads are masked."""
    k: Count = 3
    """Number of these heads."""
    mitigated: str | None = None
    """Another model of the study, such as the same with an edit."""
    system_prompt: str = ""
    knowledge_measures: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Measures of knowledge that must be kept, such as definitional_gender."""
    knowledge_margin: Annotated[float, Field(gt=0, lt=100)] = MARGIN
    """Largest change that counts as none, in percentage points."""

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield from map(any_model_reference, filter(None, (self.model, self.mitigated)))
        yield from map(
            measure_reference, (*self.measures, *self.utility_measures, *self.knowledge_measures)
        )
        if self.map is not None:
            yield map_reference(self.map)

    def check_in(self, config: StudyConfigBase) -> None:
        """Raise an error for a row without a mitigation."""
        if not (self.map or self.mitigated or self.system_prompt.strip()):
            raise LevelheadError(
                "a mitigation changes nothing", hint="give a map, mitigated, or a system_prompt"
            )


class MethodsStep(StrictConfig):
    """Methods of mitigation, each chosen on half of the items and tested on the other."""

    model: str
    measure: str
    """Measure of bias, with a smooth metric."""
    methods: Names = tuple(EDIT_METHODS)
    """Methods that edit the model."""
    variants: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Models of the study that were trained from it, each a method."""
    pairs: str = "gender-en"
    """Lexicon whose words, in neutral template sentences, fit the edits."""
    n: Count | None = None
    """Number of pairs; all by default. Fewer leave words for the probes."""
    dictionary: str | None = None
    """Folder of a sparse dictionary, for feature ablation."""
    utility_measures: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    knowledge_measures: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    placebos: Annotated[int, Field(ge=19)] = 99
    probe: bool = False
    """Whether probes test if the group was removed or hidden."""

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield from map(any_model_reference, (self.model, *self.variants))
        names = (self.measure, *self.utility_measures, *self.knowledge_measures)
        yield from map(measure_reference, names)


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


def mitigation_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per mitigation."""
    for name, row in session.config.rows(MitigationStep).items():
        trained = session.steps_that_train(*filter(None, (row.model, row.mitigated)))
        after = trained if row.map is None else (*trained, f"map.{row.map}")
        yield StudyStep(f"mitigation.{name}", partial(run_mitigation_step, session, row), after)


def run_mitigation_step(session: StudySession, row: MitigationStep) -> MitigationReport:
    """Compare a mitigated model with its base."""
    lm = session.model(row.model)
    mitigated = _mitigated_model(session, row, lm)
    measures = [session.measure(name) for name in row.measures]
    price = [session.measure(name) for name in row.utility_measures] or list_price_measures(
        mitigated
    )
    inputs: dict[str, object] = {
        "models": [model_key(lm), model_key(mitigated)],
        "measures": [measure_inputs(measure) for measure in measures],
        "price": [measure_inputs(measure) for measure in price],
    }
    knowledge = [session.measure(name) for name in row.knowledge_measures]
    # No key without a panel: studies of earlier versions keep their stored results.
    if knowledge:
        inputs["knowledge"] = [row.knowledge_margin, *map(measure_inputs, knowledge)]
    evaluate = partial(_evaluate, session, row, (lm, mitigated), (measures, price, knowledge))
    return session.load_or_compute(MitigationReport, inputs, evaluate)


def _evaluate(
    session: StudySession,
    row: MitigationStep,
    models: tuple[LM, LM],
    measures: tuple[Sequence[Measure], Sequence[Measure], Sequence[Measure]],
) -> MitigationReport:
    """Compare the models by measures of bias, of utility and of knowledge."""
    bias, price, knowledge = measures
    panel = (
        evaluate_knowledge(
            *models,
            knowledge,
            margin=row.knowledge_margin,
            inference=session.inference,
            context=session.context,
        )
        if knowledge
        else None
    )
    return evaluate_mitigation(
        *models,
        bias,
        price=price,
        knowledge=panel,
        inference=session.inference,
        context=session.context,
    )


def _mitigated_model(session: StudySession, row: MitigationStep, lm: LM) -> LM:
    mitigated = lm if row.mitigated is None else session.model(row.mitigated)
    if row.map is not None:
        sites = select_heads(session.head_map(row.map), "top", row.k)
        mitigated = mitigated.edited(mask_heads(sites))
    # Without a prompt in the row, another model keeps its own.
    return mitigated.with_system_prompt(row.system_prompt) if row.system_prompt else mitigated


def methods_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per table of methods."""
    for name, row in session.config.rows(MethodsStep).items():
        trained = session.steps_that_train(row.model, *row.variants)
        yield StudyStep(f"methods.{name}", partial(run_methods_step, session, row), trained)


def run_methods_step(session: StudySession, row: MethodsStep) -> MethodTable:
    """Compare methods on one model."""
    lm = session.model(row.model)
    variants = {name: session.model(name) for name in row.variants}
    pairs = contrast_pairs(row.pairs, n=row.n)
    dictionary = None if row.dictionary is None else load_dictionary(row.dictionary)
    measure = session.measure(row.measure)
    utility, knowledge = (
        tuple(session.measure(name) for name in names)
        for names in (row.utility_measures, row.knowledge_measures)
    )
    inputs: dict[str, object] = {
        "models": [model_key(model) for model in (lm, *variants.values())],
        "measures": [measure_inputs(part) for part in (measure, *utility, *knowledge)],
        "pairs": contrast_pairs_digest(pairs),
        "dictionary": dictionary and dictionary.content_hash,
        "row": row.model_dump(exclude={"dictionary"}),
    }
    comparison = MethodComparison(
        measure,
        pairs,
        utility,
        knowledge,
        methods=row.methods,
        dictionary=dictionary,
        probe_lexicon=row.pairs if row.probe else None,
        n_placebos=row.placebos,
    )
    return session.load_or_compute(
        MethodTable,
        inputs,
        lambda: compare_methods(
            lm,
            comparison,
            variants=variants,
            inference=session.inference,
            context=session.context,
        ),
    )


def methods_rows(table: MethodTable) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    mark = failed_calibration_mark(table.measured_by)
    yield estimate_cells("base", table.base, mark=mark)
    for row in table.methods:
        if row.gain is not None:
            yield estimate_cells(f"{row.method}: {row.verdict}", row.gain, mark=mark)
        if row.placebo is not None:
            p = row.placebo.p
            value = p.value if p.adjusted is None else p.adjusted
            yield {"name": row.method, "what": "p against placebos", "value": value}
        for comparison in row.price:
            yield estimate_cells(row.method, comparison.difference, mark=comparison.mark)
        for change in () if row.knowledge is None else row.knowledge.changes:
            yield estimate_cells(f"{row.method}, knowledge {change.outcome}", change.change)
        yield {"name": row.method, "what": "CPU seconds", "value": row.cpu_seconds}


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


def mitigation_rows(report: MitigationReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for comparison in (*report.bias, *report.price):
        mark = comparison.mark
        yield estimate_cells("base", comparison.first)
        yield estimate_cells("mitigated", comparison.second)
        yield estimate_cells("mitigated less base", comparison.difference, mark=mark)
        if comparison.distance is not None:
            yield estimate_cells("mitigated less base", comparison.distance, mark=mark)
    for change in () if report.knowledge is None else report.knowledge.changes:
        yield estimate_cells("base", change.base)
        yield estimate_cells("mitigated", change.edited)
        yield estimate_cells(f"knowledge {change.outcome}", change.change)


MEASUREMENTS = StepDefinition(MeasureStep, measure_steps, {Measurement: measurement_rows})
COMPARISONS = StepDefinition(CompareModelsStep, comparison_steps, {Comparison: comparison_rows})
MITIGATIONS = StepDefinition(MitigationStep, mitigation_steps, {MitigationReport: mitigation_rows})
METHODS = StepDefinition(MethodsStep, methods_steps, {MethodTable: methods_rows})
