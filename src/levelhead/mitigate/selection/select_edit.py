"""Choose an edit for the user's task by its bounds on dev, and report it once on test.

Dawkins et al. 2024, section 6: intrinsic scores do not predict which edit helps downstream, so it
must be chosen on "a task-specific development set". Candidates are projections and masks of heads
(candidates.py). On dev a candidate is eligible if the lower bound of its gain, which holds for all
candidates together, is above 0, and the upper bound of its loss is within the limit. The eligible
candidate with the largest lower bound is chosen. Only this candidate is measured on test, once. It
is recommended only if both conditions hold there again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs, contrast_pairs_digest
from levelhead.data.counterfactuals.held_out import fitted_words
from levelhead.mitigate.selection.candidate_evaluation import (
    CandidateEvaluator,
    DroppedBySource,
    UtilityLimit,
)
from levelhead.mitigate.selection.candidates import (
    DEFAULT_KINDS,
    CandidateGrid,
    EditCandidates,
    mask_candidates,
    projection_candidates,
)
from levelhead.mitigate.selection.selection_report import (
    HeldOutResult,
    SelectionReport,
    best_candidate,
    explain_choice,
)
from levelhead.mitigate.selection.user_task import (
    BiasUtilityTask,
    TaskFiles,
    load_user_task,
    pairs_from_task,
)
from levelhead.mitigate.steering.candidates import steering_candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
    from levelhead.measures.base import Measure
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM

PairSource = Literal["frames", "dev"]
MIN_LEVEL = 0.9
EQUATION = "Dawkins et al. 2024, section 6"


class EditSelection(NamedTuple):
    """Report of the choice, and the edits; no edits if none is recommended."""

    report: SelectionReport
    edits: EditSet


def select_edit(
    lm: LM,
    files: TaskFiles,
    *,
    limit: UtilityLimit = UtilityLimit(),
    grid: CandidateGrid = CandidateGrid(),
    n_pairs: int | None = None,
    pair_source: PairSource = "frames",
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> EditSelection:
    """Choose an edit on the rows of one file and report it on those of another.

    Args:
        lm: The model, such as a classifier of the user.
        files: Files on which the edit is chosen and reported. Subspaces are fitted on pairs of
            words of their lexicon.
        limit: Limit of the utility loss.
        grid: Candidate edits.
        n_pairs: Number of the lexicon's pairs of texts, all by default; fewer pairs leave words for
            a test of the edit by `concept_removal`.
        pair_source: Whether subspaces are fitted on the lexicon's pairs of words in neutral frames,
            or on the texts of dev and their swaps ("dev").
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    require_option("kind of pairs", pair_source, get_args(PairSource))
    task = load_user_task(files)
    texts = (
        pairs_from_task(lm, task.bias, lexicon=files.lexicon, groups=files.groups).pairs
        if pair_source == "dev"
        else contrast_pairs(files.lexicon, groups=files.groups, n=n_pairs)
    )
    return select_edit_for_task(
        lm,
        task,
        texts,
        # The utility of a user's files is always an accuracy.
        limit=replace(limit, worse="lower"),
        grid=grid,
        inference=inference,
        context=context,
    )


def select_edit_for_task(
    lm: LM,
    task: BiasUtilityTask,
    pairs: Sequence[ContrastPair],
    *,
    limit: UtilityLimit = UtilityLimit(),
    grid: CandidateGrid = CandidateGrid(),
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> EditSelection:
    """Choose an edit by any measures of bias and of utility, each on dev and on test.

    Args:
        lm: The model.
        task: The measures.
        pairs: Pairs of texts that differ in the contrast, to fit subspaces on.
        limit: Limit of the utility loss.
        grid: Candidate edits.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    # The choice rests on bounds of this level: at a low one, chance alone would pass them.
    if inference.level < MIN_LEVEL:
        raise LevelheadError(
            f"bounds of level {inference.level:g} show little", hint=f"give {MIN_LEVEL} or more"
        )
    settings: dict[str, object] = {
        "paper_rules": grid.paper_rules,
        "head_ranking": grid.head_ranking,
        "sizes": list(grid.sizes),
        "threads": context.threads,
    }
    # Results of the default kinds keep the settings that they had before there was a choice.
    if tuple(grid.kinds) != DEFAULT_KINDS:
        settings["kinds"] = list(grid.kinds)
    # First of all: an overlap makes everything after it worthless.
    notes = forbid_dev_test_overlap(lm, task)
    candidates = _list_candidates(lm, task.bias, pairs, grid, context)
    evaluator = CandidateEvaluator(inference, limit)
    # Only dev is read before the choice.
    bias = evaluator.read_candidates(lm, task.bias, candidates.edits, context)
    utility = evaluator.read_candidates(lm, task.utility, candidates.edits, context)
    rows, dropped = evaluator.evaluate_on_dev(candidates, bias, utility)
    allowed_loss = evaluator.allowed_loss(utility.responses)
    name = best_candidate(rows)
    on_test: HeldOutResult | None = None
    dropped_on_test: DroppedBySource = ()
    if name is not None:
        # Test evaluates a single candidate: seeing several there would be a second choice.
        chosen_edits = {name: candidates.edits[name]}
        bias_test = evaluator.read_candidates(lm, task.bias_test, chosen_edits, context)
        utility_test = evaluator.read_candidates(lm, task.utility_test, chosen_edits, context)
        on_test, dropped_on_test = evaluator.evaluate_on_test(name, bias_test, utility_test)
    is_confirmed = on_test is not None and on_test.is_gain_confirmed and on_test.is_utility_kept
    report = SelectionReport(
        bias_measure=task.bias.name,
        utility_measure=task.utility.name,
        min_utility_kept=limit.share,
        max_utility_loss=allowed_loss,
        base=evaluator.estimate_base(bias.responses),
        base_utility=evaluator.estimate_base(utility.responses),
        chosen=name,
        is_recommended=is_confirmed,
        reason=explain_choice(rows, name, on_test),
        candidates=rows,
        on_test=on_test,
        excluded=candidates.excluded,
        dropped=(*dropped, *dropped_on_test, ("pairs of texts", candidates.dropped)),
        fitted_words=tuple(sorted(fitted_words(pairs))),
        notes=(*notes, *candidates.notes),
        provenance=_provenance(lm, task, pairs, inference, settings),
        measured_by=task.bias.measure_key(lm),
    )
    # Unconfirmed edits are not handed out: nobody can apply them by accident.
    return EditSelection(
        report, candidates.edits[name] if name is not None and is_confirmed else ()
    )


def _list_candidates(
    lm: LM,
    bias: Measure,
    pairs: Sequence[ContrastPair],
    grid: CandidateGrid,
    context: RunContext,
) -> EditCandidates:
    """Candidates of all kinds; pairs that the model cannot read are listed once."""
    found = EditCandidates(())
    if "projection" in grid.kinds:
        found = found.merge(projection_candidates(lm, pairs, paper_rules=grid.paper_rules))
    if "steering" in grid.kinds:
        found = found.merge(_list_steering(lm, pairs, is_dropped_known=bool(found.dropped)))
    if "mask" in grid.kinds:
        found = found.merge(
            mask_candidates(
                lm, bias, head_ranking=grid.head_ranking, sizes=grid.sizes, context=context
            )
        )
    if not found.candidates:
        raise NotMeasurableError(
            f"there is no edit to try: {'; '.join(found.notes)}", hint="add kinds of edits"
        )
    return found


def _list_steering(
    lm: LM, pairs: Sequence[ContrastPair], *, is_dropped_known: bool
) -> EditCandidates:
    try:
        candidates = steering_candidates(lm, pairs)
    # Where no detector reads the groups, the other kinds can still be tried.
    except NotMeasurableError as error:
        return EditCandidates((), notes=(f"no steering edit: {error.problem}",))
    return candidates._replace(dropped=()) if is_dropped_known else candidates


def forbid_dev_test_overlap(lm: LM, task: BiasUtilityTask) -> tuple[str, ...]:
    """Raise an error for items of test that are in dev; return notes on units that are in both.

    Items are the same if their queries are, whatever their names and whichever of two twins is
    first.
    """
    notes = []
    for dev, test in ((task.bias, task.bias_test), (task.utility, task.utility_test)):
        if dev.name != test.name:
            raise LevelheadError(
                f"chosen by {dev.name} and reported by {test.name}",
                hint="give one measure, on dev and on test",
            )
        dev_items, test_items = (
            # Items without queries were dropped, and any two of them would look equal below.
            [item for item in measure.queries(lm)[0].items if item.queries]
            for measure in (dev, test)
        )
        # The text and its counterfactual, in either order; a third query is the placebo.
        dev_queries = {frozenset(item.queries[:2]) for item in dev_items}
        repeated = [item.id for item in test_items if frozenset(item.queries[:2]) in dev_queries]
        if repeated:
            raise LevelheadError(
                f"{len(repeated)} items of test are in dev ({repeated[0]}), by {dev.name}: a "
                "choice is not to be reported on items it has seen",
                hint="split the items before choosing, the same text and its twin to one side",
            )
        units = {item.units[0] for item in test_items}
        both = units & {item.units[0] for item in dev_items}
        # A note, no error: the items differ, but results on them generalise to these units alone.
        if both:
            unit_name = dev.queries(lm)[0].factors[0]
            notes.append(
                f"{dev.name}: {len(both)} of {len(units)} {unit_name} of test are in dev, too: "
                "the results on test hold for these"
            )
    return tuple(notes)


def _provenance(
    lm: LM,
    task: BiasUtilityTask,
    pairs: Sequence[ContrastPair],
    inference: Inference,
    settings: dict[str, object],
) -> Provenance:
    """Provenance: all settings that the choice depends on."""
    parts = dict(zip(task._fields, task, strict=True))
    data = {
        f"{part}: {name}": digest
        for part, measure in parts.items()
        for name, digest in measure.data.items()
    }
    return Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data=data | {"pairs of texts": contrast_pairs_digest(pairs)},
        equation=EQUATION,
        seed=inference.seed,
        settings={part: measure.settings for part, measure in parts.items()}
        | settings
        | {"resamples": inference.resamples, "level": inference.level},
    )
