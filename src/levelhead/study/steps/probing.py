"""Probes of whether an edit removed or hid information."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.held_out import held_out_pairs
from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.measures.responses import model_key
from levelhead.mitigate.evaluation.bias_reduction import estimate_bias_reduction
from levelhead.mitigate.probing.concept_removal import (
    LEVEL,
    BiasReductionEvidence,
    RemovalReport,
    concept_removal,
)
from levelhead.models.edits.files import read_fitted_words
from levelhead.study.session import StudySession, StudyStep, measure_inputs
from levelhead.study.steps.config import Reference, StrictConfig, measure_reference
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator


class ProbingStep(StrictConfig):
    """Tests whether a model's edit removed or hid a group, without the words it was fitted on."""

    model: str
    lexicon: str = "gender-en"
    measure: str | None = None
    """Measure of the bias that the edit should mitigate."""

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield Reference("model", ("models",), self.model)
        if self.measure is not None:
            yield measure_reference(self.measure)


def probing_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per edited model."""
    for name, row in session.config.rows(ProbingStep).items():
        yield StudyStep(
            f"removed.{name}",
            partial(run_probing_step, session, row),
            session.steps_that_train(row.model),
        )


def run_probing_step(session: StudySession, row: ProbingStep) -> RemovalReport:
    """Probe an edited model on words that were not used to fit the edit."""
    edited, source = session.model(row.model), session.config.models[row.model]
    if source.edit is None:
        raise LevelheadError(
            f"{row.model} has no edit", hint="give it an edit, or remove this step"
        )
    fitted_words = read_fitted_words(source.edit)
    if fitted_words is None:
        raise LevelheadError(
            f"{source.edit} does not record the words it was fitted on",
            hint="use `levelhead probe --exclude-words`",
        )
    # Probes compare activations without and with the edit.
    lm, edits = replace(edited, edits=()), edited.edits
    measure = None if row.measure is None else session.measure(row.measure)
    # The names are part of the hashes of stored results: a new one computes them again.
    inputs = {
        "model": model_key(edited),
        "row": row.model_dump(),
        "lexicon": resolve_lexicon(row.lexicon).sha256,
        "seen": list(fitted_words),
        "measure": None if measure is None else measure_inputs(measure),
    }

    def make() -> RemovalReport:
        reduction = BiasReductionEvidence()
        if measure is not None:
            gain = estimate_bias_reduction(
                measure, lm, edits, inference=session.inference, context=session.context
            )
            reduction = BiasReductionEvidence(gain, measure.measure_key(lm))
        pairs = held_out_pairs(row.lexicon, fitted_on=fitted_words).pairs
        return concept_removal(
            lm,
            edits,
            pairs,
            fitted_on=fitted_words,
            bias_reduction=reduction,
            # One-sided bounds of 0.95 are the ends of an interval of 0.9.
            inference=replace(session.inference, level=LEVEL),
        )

    return session.load_or_compute(RemovalReport, inputs, make)


def probing_rows(result: RemovalReport) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for site_result in result.sites:
        site_name = " ".join(str(part) for part in site_result.site if part is not None)
        for when, probe_report in (("before", site_result.before), ("after", site_result.after)):
            for estimate in (
                *(probe.auc for probe in probe_report.probes),
                probe_report.clusters.accuracy,
            ):
                yield estimate_cells(f"{site_name}, {when}: {result.verdict}", estimate)


PROBING = StepDefinition(ProbingStep, probing_steps, {RemovalReport: probing_rows})
