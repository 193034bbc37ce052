"""A sweep's settings in downstream classifiers (Dawkins et al. 2024, Tables 5, 6 and 7)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs
from levelhead.measures.responses import model_key
from levelhead.mitigate.evaluation.gain import keep_common_items, resample_paired
from levelhead.mitigate.evaluation.sweep import (
    SweepReport,
    compute_sweep_report,
    read_variant_responses,
)
from levelhead.mitigate.projection.baselines import sentence_debias
from levelhead.mitigate.projection.edit_points import build_edits, fit_subspaces
from levelhead.mitigate.projection.subspace import drop_unreadable_pairs
from levelhead.mitigate.selection.simultaneous_bounds import drop_unmeasurable
from levelhead.replication.dawkins2024.claims import comparison_aggregate
from levelhead.replication.dawkins2024.downstream import (
    ColumnInfo,
    DownstreamReport,
    Viability,
    compare_downstream,
)
from levelhead.study.projection_sweep_rows import findings_rows
from levelhead.study.session import StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Names,
    Reference,
    StrictConfig,
    StudyConfigBase,
    measure_reference,
)
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.steps.projection_sweep import (
    ProjectionSweepStep,
    predict_edit_points,
    sweep_configs,
    sweep_inputs,
)
from levelhead.study.steps.trained_models import FinetuneStep
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.mitigate.evaluation.gain import PairedResamples
    from levelhead.mitigate.evaluation.variant_responses import VariantResponses
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM
    from levelhead.study.session import StudySession


SENT_DEBIAS = "sent-debias"


class DownstreamStep(StrictConfig):
    """The settings of a sweep in classifiers (Dawkins et al. 2024, Tables 5, 6 and 7)."""

    sweep: str
    """Sweep of the pretrained model."""
    intrinsic: Names
    """Measures of the pretrained model."""
    models: Names
    """Classifiers to average: one task, several seeds."""
    extrinsic: Names
    """Measures of the classifiers, including the utility measure."""
    utility_measure: str
    max_utility_loss: Annotated[float, Field(ge=0)] = 0.05
    """Maximum utility loss of a viable setting: in the unit, or as a share of the base's value."""
    viability: Viability = "relative"
    subspaces: Literal["refitted", "reused"] = "refitted"
    """Whether subspaces are fitted on each classifier or on the pretrained model."""

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield Reference("sweep", ("projection_sweeps",), self.sweep)
        for name in self.models:
            yield Reference("classifier", ("classifiers",), name)
        yield from map(measure_reference, (*self.intrinsic, *self.extrinsic))

    def check_in(self, config: StudyConfigBase) -> None:
        """Raise an error for classifiers of another model or task, and for duplicates."""
        if self.utility_measure not in self.extrinsic:
            raise UnknownNameError(
                "utility measure among the extrinsic measures", self.utility_measure, self.extrinsic
            )
        if duplicates := sorted({*self.intrinsic} & {*self.extrinsic}):
            raise LevelheadError(
                f"{duplicates[0]} is an intrinsic and an extrinsic measure",
                hint="give one of them a different name",
            )
        classifiers = [config.rows(FinetuneStep)[name] for name in self.models]
        if {classifier.base for classifier in classifiers} != {
            config.rows(ProjectionSweepStep)[self.sweep].model
        }:
            raise LevelheadError(
                "classifiers of another model than the sweep's",
                hint="give classifiers that were trained from the sweep's model",
            )
        if len({classifier.task for classifier in classifiers}) > 1 or len(
            {classifier.seed for classifier in classifiers}
        ) < len(classifiers):
            raise LevelheadError(
                "classifiers to average must differ in their seed and in nothing else",
                hint="give all the same task and each a different seed",
            )


def downstream_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield the steps of every comparison with classifiers."""
    for name, row in session.config.rows(DownstreamStep).items():
        yield from steps_of_downstream(session, name, row)


def steps_of_downstream(
    session: StudySession, name: str, row: DownstreamStep
) -> Iterator[StudyStep]:
    """Yield every measure of every classifier, and the comparison."""
    pretrained_model = session.config.rows(ProjectionSweepStep)[row.sweep].model
    if "sent" not in predict_edit_points(
        session, pretrained_model
    ):  # the names of the classifiers' settings include the pooled level
        raise LevelheadError(
            (
                f"{pretrained_model}, which [downstream.{name}] compares classifiers with, "
                "has no pooled vector"
            ),
            hint="sweep a model with a pooler: with its next-sentence head, or its own classifier",
        )
    base = session.steps_that_train(pretrained_model)
    needed_steps = [
        f"sweep.{row.sweep}.{measure_name}"
        for measure_name in session.config.rows(ProjectionSweepStep)[row.sweep].measures
    ]
    for model in row.models:
        for measure_name in row.extrinsic:
            make = partial(run_downstream_sweep_step, session, name, model, measure_name)
            needed_steps.append(f"outside.{name}.{model}.{measure_name}")
            yield StudyStep(needed_steps[-1], make, (*base, *session.steps_that_train(model)))
    yield StudyStep(
        f"downstream.{name}", partial(run_downstream_step, session, name), tuple(needed_steps)
    )


def run_downstream_sweep_step(
    session: StudySession, name: str, model: str, measure_name: str
) -> SweepReport:
    """Measure one classifier with every setting."""
    row, lm, measure = (
        session.config.rows(DownstreamStep)[name],
        session.model(model),
        session.measure(measure_name),
    )
    inputs = _downstream_inputs(session, row) | {
        "classifier": model_key(lm),
        "measure": measure_inputs(measure),
    }

    def make() -> SweepReport:
        responses = read_variant_responses(
            lm, measure, _build_edits(session, row, lm), context=session.context
        )
        return compute_sweep_report(drop_unmeasurable(responses)[0], inference=session.inference)

    return session.load_or_compute(SweepReport, inputs, make)


def run_downstream_step(session: StudySession, name: str) -> DownstreamReport:
    """Compute Tables 5, 6 and 7."""
    row = session.config.rows(DownstreamStep)[name]
    sweep = session.config.rows(ProjectionSweepStep)[row.sweep]
    base, models = (
        session.model(sweep.model),
        [session.model(model_name) for model_name in row.models],
    )
    measures = [session.measure(measure_name) for measure_name in (*row.intrinsic, *row.extrinsic)]
    inputs = _downstream_inputs(session, row) | {
        "row": row.model_dump(),
        "classifiers": [model_key(lm) for lm in models],
        "measures": [measure_inputs(measure) for measure in measures],
    }

    def make() -> DownstreamReport:
        to_read = [(measure_name, base) for measure_name in row.intrinsic]
        to_read += [(measure_name, lm) for measure_name in row.extrinsic for lm in models]
        columns = {
            measure_name: _describe_measure(session, measure_name, base)
            for measure_name in row.intrinsic
        }
        columns |= {
            measure_name: _describe_measure(session, measure_name, models[0])
            for measure_name in row.extrinsic
        }
        column_responses = [
            (columns[measure_name], _read_variants(session, lm, row, measure_name))
            for measure_name, lm in to_read
        ]
        variants_by_model = [tuple(_build_edits(session, row, lm)) for lm in (base, *models)]
        all_variants = tuple(dict.fromkeys(name for names in variants_by_model for name in names))
        # Only settings that are measurable in every model: rows and columns form a full table.
        names = tuple(
            variant
            for variant in all_variants
            if all(variant in responses.variants for _, responses in column_responses)
        )
        resampled: dict[ColumnInfo, list[PairedResamples]] = {}
        for measure, responses in column_responses:
            resampled.setdefault(measure, []).append(_resample_variants(session, responses, names))
        intrinsic = {
            columns[measure_name]: resampled[columns[measure_name]][0]
            for measure_name in row.intrinsic
        }
        extrinsic = {
            columns[measure_name]: resampled[columns[measure_name]]
            for measure_name in row.extrinsic
        }
        omitted = tuple(variant for variant in all_variants if variant not in names)
        provenances = [
            responses.provenance_with(session.inference) for _, responses in column_responses
        ]
        return compare_downstream(
            names,
            intrinsic,
            extrinsic,
            utility_measure=row.utility_measure,
            left_out=omitted,
            max_utility_loss=row.max_utility_loss,
            viability=row.viability,
            provenance=[provenance for provenance in provenances if provenance is not None],
        )

    return session.load_or_compute(DownstreamReport, inputs, make)


def _read_variants(
    session: StudySession, lm: LM, row: DownstreamStep, measure_name: str
) -> VariantResponses:
    """Values of a model with every setting; edits after all sites that are read change nothing."""
    edits = _build_edits(session, row, lm)
    responses = read_variant_responses(
        lm, session.measure(measure_name), edits, context=session.context
    )
    measurable_responses, _ = drop_unmeasurable(responses)
    variants = {
        **measurable_responses.variants,
        **dict.fromkeys(measurable_responses.unaffected_variants, measurable_responses.base),
    }
    return replace(measurable_responses, variants=variants, unaffected_variants=())


def _resample_variants(
    session: StudySession, variant_responses: VariantResponses, names: Sequence[str]
) -> PairedResamples:
    responses, _ = keep_common_items(
        [variant_responses.base, *(variant_responses.variants[name] for name in names)]
    )
    metric = variant_responses.measure.primary_metric
    aggregate, _ = comparison_aggregate(metric)
    return resample_paired(
        variant_responses.measure,
        responses,
        aggregate,
        metric=metric,
        inference=session.inference,
        # Regrets test the setting that a resample chooses on the units outside it.
        out_of_bag=True,
    )


def _describe_measure(session: StudySession, name: str, lm: LM) -> ColumnInfo:
    measure = session.measure(name)
    return ColumnInfo(
        name=name,
        better=comparison_aggregate(measure.primary_metric)[1],
        unit=measure.primary_metric.unit,
        measured_by=measure.measure_key(lm),
    )


def _build_edits(session: StudySession, row: DownstreamStep, lm: LM) -> dict[str, tuple[Edit, ...]]:
    """The 74 settings and SentenceDebias, fitted on this or the pretrained model."""
    sweep = session.config.rows(ProjectionSweepStep)[row.sweep]
    base = session.model(sweep.model)
    source = base if row.subspaces == "reused" else lm
    # Everything that a fit depends on: several measures of one model share it.
    key = f"{model_key(source)} {sweep.pairs} {sweep.n} {sweep.centered}"
    if key not in session.sentence_debias_edits:
        pairs = contrast_pairs(sweep.pairs, n=sweep.n)
        session.subspaces[key] = fit_subspaces(source, pairs, centered=sweep.centered)
        session.sentence_debias_edits[key] = sentence_debias(
            source, drop_unreadable_pairs(source, pairs)[0]
        )
    fitted_subspaces = session.subspaces[key]
    edits: dict[str, tuple[Edit, ...]] = {SENT_DEBIAS: session.sentence_debias_edits[key]}
    return edits | {
        config.name: build_edits(lm, config, fitted_subspaces)
        for config in sweep_configs(lm, sweep)
    }


def _downstream_inputs(session: StudySession, row: DownstreamStep) -> dict[str, object]:
    sweep = session.config.rows(ProjectionSweepStep)[row.sweep]
    return {"sweep": sweep_inputs(session, sweep), "subspaces": row.subspaces, "also": SENT_DEBIAS}


def downstream_rows(result: DownstreamReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    failed_marks = {
        column.name: failed_calibration_mark(column.measured_by) for column in result.columns
    }
    for column in result.columns:
        cells: RowCells = {
            "what": column.name,
            "unit": column.unit,
            "mark": failed_marks[column.name],
        }
        for name, value in {"base": column.base, **column.values_by_config}.items():
            yield {"name": name, "value": value, **cells}
    for best in result.best_configs:
        if best.value is not None:
            cells = {
                "what": f"best by {best.measure}",
                "mark": failed_marks[best.measure],
            }
            label = f"{best.edit_point}: {best.config}"
            yield {"name": label, "value": best.value, "n": best.n_configs, **cells}
    what = f"least {result.utility_measure} of a viable setting, and how many are"
    yield {"name": "viable", "what": what, "value": result.utility_limit, "n": len(result.viable)}
    correlation_marks = {
        f"spearman of {a} and {b}": failed_marks[a] or failed_marks[b]
        for a in result.intrinsic
        for b in result.extrinsic
    }
    for estimate in result.correlations:
        yield estimate_cells("inside and outside", estimate, mark=correlation_marks[estimate.name])
    for regret in result.regrets:
        name = f"{regret.config}, not {regret.best_config}; they differ: {regret.verdict}"
        yield estimate_cells(
            name, regret.regret, mark=failed_marks[regret.chosen_by] or failed_marks[regret.measure]
        )
    for finding in result.claim_tests:
        for row in findings_rows(finding):
            yield {"mark": failed_calibration_mark(finding.measured_by), **row}


DOWNSTREAM = StepDefinition(DownstreamStep, downstream_steps, {DownstreamReport: downstream_rows})
