"""The calibration: every measure, locator and edit on models of known bias.

Its work is split into units of the engine, one organism each, so that a stopped run resumes. The
results of the full run belong into the package (calibration.json), with the command and the hashes
that made them: reports cite them with every measure, and say "not tried" without them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from levelhead.calibrate import dose_response, edits, locators
from levelhead.calibrate.chat_doses import with_chat_rows
from levelhead.calibrate.dose_response import ModelResponses
from levelhead.calibrate.edits import EditEffects, compute_edit_calibrations
from levelhead.calibrate.locators import (
    KnownHeadResult,
    OrdinaryResult,
    compute_locator_calibrations,
)
from levelhead.calibrate.measure_calibrations import (
    compute_measure_calibrations,
    compute_skill_calibrations,
)
from levelhead.calibrate.organisms.organism import describe_machine, make_organism
from levelhead.core.calibration import Calibration, CalibrationUpdate, OrganismHash, RemovalVerdicts
from levelhead.core.canonical_json import content_hash
from levelhead.core.run_context import RunContext
from levelhead.core.versions import installed_versions
from levelhead.engine.scheduler import Job, run_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.organisms.language import VocabularySize
    from levelhead.core.files import Url
    from levelhead.engine.executors.base import Executor

    CalibrationModel = (
        dose_response.DoseModel | locators.LocatorModel | edits.OrganismModel | edits.KnownTruthCase
    )


def run_calibration(
    folder: Url,
    *,
    quick: bool = False,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
) -> Calibration:
    """Train and measure what is missing, and summarise the results.

    Args:
        folder: path or URL that stores the results of every model.
        quick: whether to use a few models only, in minutes, to check the machinery; the results
            are no evidence.
        executor: computes the units; this process by default.
        context: progress and cancellation; the folder is the store.
    """
    dose_models = dose_response.list_dose_models(quick=quick)
    locator_models = locators.list_locator_models(quick=quick)
    edit_models = edits.list_edit_models(quick=quick)
    known_truth_cases = edits.list_known_truth_cases(quick=quick)
    tasks = [
        model.task
        for models in (dose_models, locator_models, edit_models, known_truth_cases)
        for model in models
    ]
    store = run_job(
        Job("calibrate", tuple(tasks)),
        folder,
        executor=executor,
        context=context,
        extend=True,  # models of a quick run are not trained again
    )

    def stored_results(models: Sequence[CalibrationModel]) -> list[bytes]:
        return [store.get(model.task.key) for model in models]

    model_responses = [ModelResponses.from_json(content) for content in stored_results(dose_models)]
    known_head_results = [
        KnownHeadResult.from_json(content)
        for content in stored_results([model for model in locator_models if model.kind == "known"])
    ]
    ordinary_results = [
        OrdinaryResult.from_json(content)
        for content in stored_results(
            [model for model in locator_models if model.kind == "ordinary"]
        )
    ]
    removal_verdicts = tuple(
        RemovalVerdicts.from_json(content) for content in stored_results(known_truth_cases)
    )
    effects = [
        effect
        for content in stored_results(edit_models)
        for effect in EditEffects.from_json(content).effects
    ]
    return Calibration(
        command="levelhead calibrate" + (" --quick" if quick else ""),
        versions=installed_versions(),
        machine=describe_machine(),
        models=(
            *_list_organism_hashes(model_responses),
            *(_make_organism_hash("known head", result) for result in known_head_results),
            *(_make_organism_hash("four layers", result) for result in ordinary_results),
            *(
                _make_organism_hash("known head, many words", verdicts, words="many")
                for verdicts in removal_verdicts
            ),
        ),
        skills=compute_skill_calibrations(model_responses),
        measures=compute_measure_calibrations(model_responses),
        locators=compute_locator_calibrations(known_head_results, ordinary_results),
        edits=compute_edit_calibrations(effects),
        removed=removal_verdicts,
    )


def refresh_calibration(
    folder: Url,
    past: Calibration,
    *,
    quick: bool = False,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
) -> Calibration:
    """Compute the measures' part of a calibration again; the other parts are unchanged.

    For changed statistics: only the dose models are trained and measured. The new part records its
    own command, versions, machine and models; locators, edits and removals keep theirs.

    Args:
        folder: path or URL that stores the results of every model; may be that of `calibrate`.
        past: the calibration with the other parts.
        quick: whether to use a few models only, in minutes, to check the machinery; the results
            are no evidence.
        executor: computes the units; this process by default.
        context: progress and cancellation; the folder is the store.
    """
    models = dose_response.list_dose_models(quick=quick)
    tasks = tuple(model.task for model in models)
    store = run_job(Job("measures", tasks), folder, executor=executor, context=context, extend=True)
    model_responses = [ModelResponses.from_json(store.get(model.task.key)) for model in models]
    parts = ("skills", "measures")
    update = CalibrationUpdate(
        parts=parts,
        command="python tools/calibration.py --measures-only" + (" --quick" if quick else ""),
        versions=installed_versions(),
        machine=describe_machine(),
        models=_list_organism_hashes(model_responses),
    )
    result = past.model_copy(
        update={
            "skills": compute_skill_calibrations(model_responses),
            "measures": compute_measure_calibrations(model_responses),
            # A later run of the same parts replaces the earlier one.
            "refreshed": (*(part for part in past.refreshed if part.parts != parts), update),
        }
    )
    # The chat organisms are computed separately, in minutes.
    return with_chat_rows(result, past)


def _list_organism_hashes(model_responses: Sequence[ModelResponses]) -> tuple[OrganismHash, ...]:
    return tuple(
        OrganismHash(
            what=f"{model.architecture}, {model.variant}, rho {model.rho:g}, seed {model.seed}",
            texts=model.texts,
            weights=model.weights,
        )
        for model in model_responses
    )


def _make_organism_hash(
    description: str,
    result: KnownHeadResult | OrdinaryResult | RemovalVerdicts,
    *,
    words: VocabularySize = "few",
) -> OrganismHash:
    return OrganismHash(
        what=f"{result.architecture}, {description}, seed {result.seed}",
        texts=_compute_texts_hash(result.seed, words),
        weights=result.weights,
    )


@cache
def _compute_texts_hash(seed: int, words: VocabularySize) -> str:
    """Compute the SHA-256 of the texts of the full dose, the same for every architecture."""
    return content_hash(make_organism(seed=seed, words=words).texts)
