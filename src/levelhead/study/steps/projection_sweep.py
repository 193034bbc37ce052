"""Projections in all settings, with intrinsic measures (Dawkins et al. 2024)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from levelhead.core.errors import NotMeasurableError
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs, contrast_pairs_digest
from levelhead.measures.responses import model_key
from levelhead.mitigate.controls.placebo_report import (
    ChosenSetting,
    PlaceboConfig,
    PlaceboReport,
    evaluate_with_placebos,
)
from levelhead.mitigate.controls.placebo_test import estimate_base_effect
from levelhead.mitigate.evaluation.gain import Objective, keep_common_items, resample_paired
from levelhead.mitigate.evaluation.sweep import (
    SweepReport,
    compute_sweep_report,
    read_variant_responses,
)
from levelhead.mitigate.evaluation.variant_responses import VariantResponses, best_variant
from levelhead.mitigate.projection.config_grid import (
    EDIT_POINTS,
    EditPoint,
    ProjectionConfig,
    projection_grid,
)
from levelhead.mitigate.projection.edit_points import (
    build_edits,
    edit_point_sites,
    fit_subspaces,
    has_pooled,
    list_edit_points,
)
from levelhead.mitigate.projection.subspace_stability import subspace_stability
from levelhead.mitigate.selection.select_on_dev import DevSelection, select_on_dev
from levelhead.replication.dawkins2024.claims import (
    ClaimTests,
    comparison_aggregate,
    run_claim_tests,
)
from levelhead.replication.dawkins2024.pair_budget import (
    PairBudgetCurve,
    SubspaceStabilityReport,
    compute_pair_budget,
)
from levelhead.study.projection_sweep_rows import (
    findings_rows,
    pair_budget_rows,
    placebo_rows,
    selection_rows,
    stability_rows,
    sweep_rows,
)
from levelhead.study.session import StudyStep, measure_inputs
from levelhead.study.steps.config import (
    Count,
    Counts,
    Names,
    Reference,
    ResampleCount,
    StrictConfig,
    any_model_reference,
    as_tuple,
    measure_reference,
)
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.steps.trained_models import FinetuneStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.mitigate.projection.subspace import Subspace
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site
    from levelhead.study.session import StudySession


class ProjectionSweepStep(StrictConfig):
    """Projections in all settings (Dawkins et al. 2024): chosen on dev, reported on test."""

    model: str
    measures: Names
    """Measures of every setting."""
    bias_measure: str
    """Measure that chooses a setting on dev."""
    test_measure: str
    """The same measure on other items, for the report."""
    utility_measure: str | None = None
    max_utility_loss: float | None = None
    """Maximum utility cost."""
    pairs: str = "gender-en"
    """Lexicon whose words, in neutral template sentences, fit the subspaces."""
    n: Count | None = None
    """Number of pairs; all by default."""
    centered: bool = False
    edit_points: (
        Annotated[tuple[EditPoint, ...], BeforeValidator(as_tuple), Field(min_length=1)] | None
    ) = None
    """All by default."""
    stability_resamples: ResampleCount | None = None
    """Number of resamples of the pairs."""
    pair_counts: Counts | None = None
    """Numbers of pairs with which the chosen setting is fitted again."""
    placebos: Annotated[int, Field(ge=200)] | None = None
    """Number of placebos for the best setting of every level."""

    @model_validator(mode="after")
    def _reports_on_other_items(self) -> Self:
        if self.bias_measure == self.test_measure:
            raise ValueError(
                f"{self.bias_measure} both chooses and reports: give a test_measure with "
                "other items"
            )
        return self

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield any_model_reference(self.model)
        measure_names = (*self.measures, self.bias_measure, self.test_measure)
        yield from map(
            measure_reference,
            measure_names
            if self.utility_measure is None
            else (*measure_names, self.utility_measure),
        )


def sweep_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield the steps of every sweep."""
    for name, sweep in session.config.rows(ProjectionSweepStep).items():
        yield from steps_of_sweep(session, name, sweep)


def steps_of_sweep(
    session: StudySession, name: str, row: ProjectionSweepStep
) -> Iterator[StudyStep]:
    """Yield the steps of one sweep."""
    training_steps = session.steps_that_train(row.model)
    if row.stability_resamples:
        yield StudyStep(
            f"stability.{name}", partial(run_stability_step, session, name), training_steps
        )
    for measure_name in row.measures:
        yield StudyStep(
            f"sweep.{name}.{measure_name}",
            partial(run_sweep_step, session, name, measure_name),
            training_steps,
        )
    # Later steps reuse the stored responses of a sweep with the same measure, if there is one.
    read_steps = tuple(
        f"sweep.{name}.{measure_name}"
        for measure_name in row.measures
        if measure_name in (row.bias_measure, row.test_measure)
    )
    finding_steps = tuple(
        f"findings.{name}.{measure_name}"
        for measure_name in dict.fromkeys((row.bias_measure, row.test_measure))
    )
    for step in finding_steps:
        make = partial(run_findings_step, session, name, step.rpartition(".")[2])
        yield StudyStep(step, make, (*training_steps, *read_steps))
    selection_step = f"choice.{name}"
    yield StudyStep(
        selection_step, partial(run_selection_step, session, name, "parity"), finding_steps
    )
    # Only where the parity depends on the model do the two objectives differ.
    if session.measure(row.bias_measure).primary_metric.signed_part is not None:
        yield StudyStep(
            f"{selection_step}.value",
            partial(run_selection_step, session, name, "value"),
            (selection_step,),
        )
    if row.pair_counts:
        yield StudyStep(
            f"pairs.{name}", partial(run_pair_budget_step, session, name), (selection_step,)
        )
    if row.placebos:
        for edit_point in row.edit_points or EDIT_POINTS:
            if edit_point in predict_edit_points(session, row.model):
                make_placebo = partial(run_placebo_step, session, name, edit_point)
                yield StudyStep(f"placebo.{name}.{edit_point}", make_placebo, (selection_step,))


def run_stability_step(session: StudySession, name: str) -> SubspaceStabilityReport:
    """Fit the subspaces on resampled pairs."""
    row = session.config.rows(ProjectionSweepStep)[name]
    lm, pairs = session.model(row.model), _contrast_pairs(row)
    sites_by_part = edit_point_sites(lm)
    fit_sites = [
        site for part, part_sites in sites_by_part.items() if part != "attn" for site in part_sites
    ]

    def make() -> SubspaceStabilityReport:
        inference = replace(
            session.inference, resamples=row.stability_resamples or session.inference.resamples
        )
        site_results = subspace_stability(
            lm, pairs, fit_sites, centered=row.centered, inference=inference
        )
        return SubspaceStabilityReport(sites=site_results)

    return session.load_or_compute(
        SubspaceStabilityReport,
        {"row": sweep_inputs(session, row), "draws": row.stability_resamples},
        make,
    )


def run_sweep_step(session: StudySession, name: str, measure_name: str) -> SweepReport:
    """Measure all settings."""
    row, measure = session.config.rows(ProjectionSweepStep)[name], session.measure(measure_name)

    def make() -> SweepReport:
        return compute_sweep_report(
            _read_sweep(session, row, measure_name), inference=session.inference
        )

    return session.load_or_compute(
        SweepReport, {"row": sweep_inputs(session, row), "measure": measure_inputs(measure)}, make
    )


def run_findings_step(session: StudySession, name: str, measure_name: str) -> ClaimTests:
    """Test the paper's claims about settings on one measure."""
    row, measure = session.config.rows(ProjectionSweepStep)[name], session.measure(measure_name)

    def make() -> ClaimTests:
        variant_responses = _read_sweep(session, row, measure_name)
        metric = measure.primary_metric
        aggregate, better = comparison_aggregate(metric)
        responses, _ = keep_common_items(
            [variant_responses.base, *variant_responses.variants.values()]
        )
        resampled = resample_paired(
            measure, responses, aggregate, metric=metric, inference=session.inference
        )
        return run_claim_tests(
            resampled,
            tuple(variant_responses.variants),
            measure=measure.name,
            better=better,
            unit=metric.unit,
            measured_by=variant_responses.measured_by,
            provenance=variant_responses.provenance_with(session.inference),
            base=estimate_base_effect(measure, variant_responses.base, inference=session.inference),
        )

    return session.load_or_compute(
        ClaimTests, {"row": sweep_inputs(session, row), "measure": measure_inputs(measure)}, make
    )


def run_selection_step(session: StudySession, name: str, objective: Objective) -> DevSelection:
    """Choose the setting nearest to parity, or with the smallest value, on dev; report on test."""
    row = session.config.rows(ProjectionSweepStep)[name]
    measures = [
        session.measure(measure_name)
        for measure_name in (row.bias_measure, row.test_measure, *_as_names(row.utility_measure))
    ]
    inputs = {
        "row": sweep_inputs(session, row),
        "most": row.max_utility_loss,
        "by": objective,
        "measures": [measure_inputs(measure) for measure in measures],
    }

    def make() -> DevSelection:
        dev, test = (
            replace(_read_sweep(session, row, measure_name), objective=objective)
            for measure_name in (row.bias_measure, row.test_measure)
        )
        utility_responses = (
            None if row.utility_measure is None else _read_sweep(session, row, row.utility_measure)
        )
        return select_on_dev(
            dev,
            test,
            utility=utility_responses,
            max_utility_loss=row.max_utility_loss,
            inference=session.inference,
        )

    return session.load_or_compute(DevSelection, inputs, make)


def run_pair_budget_step(session: StudySession, name: str) -> PairBudgetCurve:
    """Measure the chosen setting, fitted on fewer pairs."""
    row, choice = session.config.rows(ProjectionSweepStep)[name], session.results[f"choice.{name}"]
    if not isinstance(choice, DevSelection) or choice.chosen is None:
        raise NotMeasurableError("no setting was chosen", hint="see the reason in the step before")
    setting = ProjectionConfig.from_name(choice.chosen)
    inputs = {
        "row": sweep_inputs(session, row),
        "setting": setting.name,
        "sizes": list(row.pair_counts or ()),
    }

    def make() -> PairBudgetCurve:
        # On test: the setting was chosen on dev, where its effect is optimistic.
        lm, measure = session.model(row.model), session.measure(row.test_measure)
        sets = {}
        for size in row.pair_counts or ():
            # Smaller selections of pairs are part of larger ones (`contrast_pairs`).
            fitted = fit_subspaces(lm, contrast_pairs(row.pairs, n=size), centered=row.centered)
            sets[str(size)] = build_edits(lm, setting, fitted)
        responses = read_variant_responses(lm, measure, sets, context=session.context)
        return compute_pair_budget(setting.name, responses, inference=session.inference)

    return session.load_or_compute(
        PairBudgetCurve,
        inputs | {"measure": measure_inputs(session.measure(row.test_measure))},
        make,
    )


def run_placebo_step(session: StudySession, name: str, edit_point: str) -> PlaceboReport:
    """Test the best setting of a level on dev against placebos on test."""
    row = session.config.rows(ProjectionSweepStep)[name]
    measures = [
        session.measure(measure_name) for measure_name in (row.bias_measure, row.test_measure)
    ]
    inputs = {"row": sweep_inputs(session, row), "level": edit_point, "placebos": row.placebos}

    def make() -> PlaceboReport:
        lm = session.model(row.model)
        dev = _read_sweep(session, row, row.bias_measure)
        candidates = {
            variant: dev.variants[variant]
            for variant in dev.variants
            if ProjectionConfig.from_name(variant).edit_point == edit_point
        }
        # On dev, so that the test against placebos on test is of a setting chosen elsewhere.
        best_name = best_variant(replace(dev, variants=candidates))
        if best_name is None:
            raise NotMeasurableError(
                f"no setting of {edit_point} reduces bias on dev",
                hint="there is no setting to test",
            )
        edits = build_edits(
            lm, ProjectionConfig.from_name(best_name), _fitted_subspaces(session, row)
        )
        return evaluate_with_placebos(
            lm,
            measures[1],
            ChosenSetting(best_name, edits, len(candidates)),
            _contrast_pairs(row),
            placebos=PlaceboConfig(row.placebos or 200),
            inference=session.inference,
            context=session.context,
        )

    return session.load_or_compute(
        PlaceboReport,
        inputs | {"measures": [measure_inputs(measure) for measure in measures]},
        make,
    )


def _read_sweep(
    session: StudySession, row: ProjectionSweepStep, measure_name: str
) -> VariantResponses:
    lm = session.model(row.model)
    sets = {
        config.name: build_edits(lm, config, _fitted_subspaces(session, row))
        for config in sweep_configs(lm, row)
    }
    return read_variant_responses(lm, session.measure(measure_name), sets, context=session.context)


def predict_edit_points(session: StudySession, name: str) -> tuple[EditPoint, ...]:
    """The levels of a model, also before the study has trained it."""
    trained_models, source = session.config.trained_models, name
    while source in trained_models:
        source = trained_models[source].base
    base_points = list_edit_points(session.model(source))
    is_classifier = isinstance(trained_models.get(name), FinetuneStep)
    # A classifier has a pooled vector, the input of its head, even if its base has none.
    return base_points if not is_classifier or "sent" in base_points else ("sent", *base_points)


def sweep_configs(lm: LM, row: ProjectionSweepStep) -> tuple[ProjectionConfig, ...]:
    """The settings of a sweep for the levels that a model has."""
    points = [
        point
        for point in list_edit_points(lm)
        if row.edit_points is None or point in row.edit_points
    ]
    return tuple(
        config for config in projection_grid(pooled=has_pooled(lm)) if config.edit_point in points
    )


def _fitted_subspaces(session: StudySession, row: ProjectionSweepStep) -> dict[Site, Subspace]:
    """Fit subspaces on the activations of the unedited model, once per run."""
    key = f"{row.model} {row.pairs} {row.n} {row.centered}"
    if key not in session.subspaces:
        lm = session.model(row.model)
        session.subspaces[key] = fit_subspaces(lm, _contrast_pairs(row), centered=row.centered)
    return session.subspaces[key]


def _contrast_pairs(row: ProjectionSweepStep) -> tuple[ContrastPair, ...]:
    return contrast_pairs(row.pairs, n=row.n)


def sweep_inputs(session: StudySession, row: ProjectionSweepStep) -> dict[str, object]:
    """The inputs of a sweep's edits that their hash covers."""
    return {
        "model": model_key(session.model(row.model)),
        "pairs": contrast_pairs_digest(_contrast_pairs(row)),
        "levels": row.edit_points,
        "centered": row.centered,
    }


def _as_names(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


PROJECTION_SWEEP = StepDefinition(
    ProjectionSweepStep,
    sweep_steps,
    {
        SubspaceStabilityReport: stability_rows,
        SweepReport: sweep_rows,
        ClaimTests: findings_rows,
        DevSelection: selection_rows,
        PairBudgetCurve: pair_budget_rows,
        PlaceboReport: placebo_rows,
    },
)
