"""An audit is a generated study: a core suite of measures, and more if the time budget allows.

The core suite is fixed (`core_suite`). The additions depend on the speed of the model on this
machine and on the time that the core suite needs. Both are planned before the first measure, and
`saved_plan` stores the plan in the folder: a run that was killed is resumed with the same queries,
and they can be repeated elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record
from levelhead.core.run_context import Inference
from levelhead.measures.registry import parse_measure, reported_metric_name
from levelhead.measures.responses import model_key
from levelhead.models.edits.files import load_edits
from levelhead.models.loading.load import compute_checkpoint_hash
from levelhead.models.loading.open_model import is_http
from levelhead.study.audit.budget_shares import MODEL, OVERHEAD, TimeBudget, Truncated
from levelhead.study.audit.core_suite import (
    CHAT,
    WRITING,
    CoreMeasure,
    Role,
    core_suite,
    kind_of,
)
from levelhead.study.audit.suite import (
    Omitted,
    estimate_core_seconds,
    find_extensions,
    omit_after_error,
    rank_locators,
)
from levelhead.study.audit.time_budget import QueryTimer
from levelhead.study.config import StudyConfig
from levelhead.study.steps.config import ModelSource, inference_keys
from levelhead.study.steps.measurements import CompareModelsStep, MeasureStep
from levelhead.study.steps.probing import ProbingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.lm import LM

OTHER = "other"
CORE_ROW, ADDED_ROW = "audit", "more"
"""Names of the measurement steps of the core suite and of the additions."""
CORE_LIMIT = 3.0
"""Multiple of the budget after which no further measure of the core suite begins. Below it the
suite runs to its end, whatever the budget: a verdict must not depend on the clock."""
PLANNING_SHARE = 0.3
"""Share of the remaining time after which planning considers no further measure."""
DESCRIPTION_PREFIX = "An audit of "


class Audit(Record):
    """The plan of an audit: the queried and the skipped measures."""

    request_hash: str
    """A hash of everything the core suite's plan was made from."""
    budget: float | None
    """Seconds."""
    model_summary: str
    """The model in a line."""
    study_config: StudyConfig
    roles: tuple[tuple[str, Role], ...]
    """The role of each measure: of the core suite, also if it does not fit the model, and of the
    additions."""
    core: tuple[str, ...] = ()
    """Names of the core suite; empty if no suite was planned: then all measures belong to it."""
    omitted: tuple[Omitted, ...]
    truncated: tuple[Truncated, ...]
    expected_seconds: float | None
    """Estimated seconds of all queries, from a timed sample."""

    @property
    def model_name(self) -> str:
        """The model's name without its folders."""
        return self.study_config.description.removeprefix(DESCRIPTION_PREFIX)

    @property
    def compared_names(self) -> tuple[str, str]:
        """The two models of a comparison, the first before the second."""
        model, other = (self.study_config.models.get(name) for name in (MODEL, OTHER))
        if other is None:
            return "this model", "the edited model"
        if model is not None and model.edit and model.path == other.path and not other.edit:
            return "the unedited model", "the edited model"
        return _display_name(other), self.model_name

    @property
    def core_names(self) -> tuple[str, ...]:
        """The measures on which the verdict is based."""
        return self.core or tuple(name for name, _ in self.roles)

    @property
    def core_steps(self) -> frozenset[str]:
        """The steps of the core suite, as the study names them."""
        steps = [f"cell.{CORE_ROW}.{MODEL}.{name}" for name in self.core_names]
        if self.study_config.rows(CompareModelsStep):
            steps += [f"against.{OTHER}.{name}" for name in self.core_names]
        return frozenset(
            (*steps, *(f"removed.{row}" for row in self.study_config.rows(ProbingStep)))
        )


class AuditSources(NamedTuple):
    """The sources from which an audit loads its models."""

    model: ModelSource
    against: ModelSource | None = None
    requested: tuple[CoreMeasure, ...] = ()
    """Measures that the user asks for besides the core suite, as `request_measures` makes them."""


def plan_core(
    lm: LM,
    sources: AuditSources,
    *,
    budget: float | None,
    inference: Inference = Inference(),
    threads: int = 1,
    record_items: bool = True,
) -> Audit:
    """Plan the core suite of a model, which depends on neither the budget nor the machine.

    Args:
        lm: model, edited or not.
        sources: source of the model, and of the model to compare it with.
        budget: seconds, stored for the additions; None: no limit.
        inference: seed, resamples and permutations.
        threads: number of threads of numpy and torch.
        record_items: whether results contain the texts of the items.
    """
    kind = kind_of(lm)
    # What the user asks for belongs to the suite: without it, the audit is not complete.
    suite = (*core_suite(kind), *(row for row in sources.requested if kind in row.kinds))
    measures: dict[str, str] = {}
    omitted: list[Omitted] = []
    for row in suite:
        try:
            # Whatever cannot be measured on this model fails here, before any forward pass.
            measure = parse_measure(row.text)
            measure.check(lm)
            measure.queries(lm)
        # Listed with its reason: what does not run must not look like a test without a finding.
        except LevelheadError as error:
            omitted.append(omit_after_error(row.name, error))
        else:
            measures[row.name] = row.text
    if kind == WRITING:
        omitted += _omit_log_probs(lm, [row.name for row in suite])
    if not any(row.role == "bias" and row.name in measures for row in suite):
        explanation = "; ".join(f"{skipped.name}: {skipped.details}" for skipped in omitted)
        reasons = Counter(skipped.reason for skipped in omitted)
        counts = "; ".join(f"{count} not run: {name}" for name, count in sorted(reasons.items()))
        raise NoBiasMeasureError(
            f"INCONCLUSIVE: no measure of bias fits {lm.identity.name}: "
            f"{len(measures)} of {len(suite)} planned measures run; {counts} ({explanation})",
            hint="use a model with an LM head, and check the data: `levelhead data list`",
        )
    tables: dict[str, object] = {
        "format": "levelhead-study-2",
        "name": "audit",
        "description": f"{DESCRIPTION_PREFIX}{_display_name(sources.model)}",
        **inference_keys(inference),
        "threads": threads,
        "record_items": record_items,
        "models": {MODEL: sources.model}
        | ({OTHER: sources.against} if sources.against is not None else {}),
        "measures": measures,
        "measurements": {CORE_ROW: MeasureStep(models=(MODEL,), measures=tuple(measures))},
    }
    if sources.against is not None:
        tables["comparisons"] = {
            OTHER: CompareModelsStep(first=OTHER, second=MODEL, measures=tuple(measures))
        }
    if sources.model.edit is not None:
        # Reversed, so that of several measures with one metric the first is used.
        names = {reported_metric_name(measures[name]): name for name in reversed(measures)}
        probing_measure = next(
            (
                names[metric]
                for row in rank_locators(lm)[0]
                if (metric := reported_metric_name(row.text)) in names
            ),
            None,
        )
        tables["probing"] = {"edit": ProbingStep(model=MODEL, measure=probing_measure)}
    config = StudyConfig.model_validate(tables)
    config.check()
    return Audit(
        request_hash=compute_request_hash(
            lm, sources, inference, threads, record_items=record_items
        ),
        budget=budget,
        model_summary=_hide_paths(str(lm), lm, sources.model),
        study_config=config,
        roles=tuple((row.name, row.role) for row in suite),
        core=tuple(row.name for row in suite),
        omitted=tuple(_hide_paths_in(omitted, lm, sources.model)),
        truncated=(),
        expected_seconds=None,
    )


def extend_audit(
    audit: Audit,
    lm: LM,
    *,
    seconds_left: float | None,
    on_step: Callable[[str, int, int], None] = lambda what, done, of: None,
    timer: QueryTimer | None = None,
) -> Audit:
    """Add to an audit the measures that the budget allows besides its core suite.

    The core suite counts with the estimated time of its queries, because its real time is only
    known after a part of the audit, and would be another one after an interruption.

    Args:
        audit: audit whose core suite is planned.
        lm: the model.
        seconds_left: seconds for the core suite and the additions; None: every measure is queried
            in full.
        on_step: callback with the current step, the number of finished steps and their total.
        timer: timer of queries; by default it times a few queries of each kind.
    """
    started_at = time.monotonic()
    core_config = audit.study_config
    timer = timer or QueryTimer(lm, threads=core_config.threads, is_timed=seconds_left is not None)
    names = {
        name: core_config.measures[name] for name in audit.core if name in core_config.measures
    }
    # A comparison queries two models.
    n_models = 2 if core_config.rows(CompareModelsStep) else 1
    core_seconds = 0.0
    if seconds_left is not None:
        on_step("timing the core suite", 0, len(names))
        core_seconds = n_models * estimate_core_seconds(lm, names, timer)
    deadline = (
        None
        if seconds_left is None
        else started_at + PLANNING_SHARE * (seconds_left - core_seconds)
    )
    candidates, omitted = find_extensions(lm, names, timer, deadline=deadline, on_step=on_step)
    total = (
        # Less what planning has used since `started_at`.
        None
        if seconds_left is None
        else (started_at + seconds_left - time.monotonic()) * OVERHEAD - core_seconds
    )
    budget = TimeBudget(lm, timer, total, n_models, omitted)
    added = budget.plan_measures(candidates)
    measures = {**core_config.measures, **added}
    tables: dict[str, object] = {}
    if added:
        added_step = MeasureStep(models=(MODEL,), measures=tuple(added))
        tables["measurements"] = {**core_config.rows(MeasureStep), ADDED_ROW: added_step}
        if core_config.rows(CompareModelsStep):
            pair = core_config.rows(CompareModelsStep)[OTHER]
            both = (*pair.measures, *added)
            tables["comparisons"] = {OTHER: pair.model_copy(update={"measures": both})}
    head_tables = budget.plan_head_map(measures)
    # Before the second attempt at a head map, which may take all the time that is left.
    tables |= budget.plan_knowledge()
    tables |= head_tables or budget.plan_head_map(measures, last=True)
    config = core_config.model_copy(update={**tables, "measures": measures})
    config.check()
    source = core_config.models[MODEL]
    roles = {candidate.audit_measure.name: candidate.audit_measure.role for candidate in candidates}
    return audit.model_copy(
        update={
            "study_config": config,
            "roles": (*audit.roles, *((name, roles[name]) for name in added)),
            "omitted": (*audit.omitted, *_hide_paths_in(budget.omitted, lm, source)),
            "truncated": tuple(budget.truncated),
            "expected_seconds": None if seconds_left is None else core_seconds + budget.used,
        }
    )


def _omit_log_probs(lm: LM, planned: Sequence[str]) -> Iterator[Omitted]:
    """What a server with log-probabilities would be measured by, and why this one is not."""
    for row in core_suite(CHAT):
        try:
            measure = parse_measure(row.text)
            measure.check(lm)
            measure.queries(lm)
        except LevelheadError as error:
            skipped = omit_after_error(row.name, error)
            if row.name in planned:
                # The same decisions are measured by what the model writes.
                if skipped.reason == "does not fit this model":
                    yield skipped.model_copy(
                        update={
                            "name": f"{row.name}, by log-probabilities",
                            "details": f"{error.problem}; measured by generated answers instead",
                        }
                    )
            else:
                yield skipped


class NoBiasMeasureError(LevelheadError):
    """No bias measure of the core suite fits the model."""


def compute_request_hash(
    lm: LM,
    sources: AuditSources,
    inference: Inference,
    threads: int,
    *,
    record_items: bool = True,
) -> str:
    """Hash everything that the core suite's plan depends on: neither budget nor speed."""
    against = None if sources.against is None else _describe_content(sources.against)
    # An audit that records texts must not be resumed as one that does not. The default stays out of
    # the hash, so that audits of earlier versions can be resumed.
    choice: dict[str, object] = {} if record_items else {"record_items": False}
    if sources.requested:
        choice["requested"] = [row.text for row in sources.requested]
    keys = {**inference_keys(inference), "threads": threads, **choice}
    return content_hash({"model": model_key(lm), "against": against, **keys})


def _describe_content(source: ModelSource) -> dict[str, object]:
    """What an audit compares with: files by content, so that other weights are another audit."""
    if is_http(source.path):
        return source.model_dump()
    settings = source.model_dump(exclude={"path", "revision", "edit"})
    edits = load_edits(source.edit) if source.edit else ()
    return settings | {
        "checkpoint": compute_checkpoint_hash(source.path, source.revision),
        "edits": [edit.content_hash for edit in edits],
    }


def _display_name(source: ModelSource) -> str:
    """A model's name without its folders, because reports are sent to other people."""
    name = Path(source.path).name if Path(source.path).exists() else source.path
    return f"{name}, edited" if source.edit else name


def _hide_paths(text: str, lm: LM, source: ModelSource) -> str:
    return text.replace(lm.identity.name, _display_name(source))


def _hide_paths_in(omitted: Sequence[Omitted], lm: LM, source: ModelSource) -> Iterator[Omitted]:
    for skipped in omitted:
        yield skipped.model_copy(update={"details": _hide_paths(skipped.details, lm, source)})
