"""Read many edited models with the same queries, and compute the layers they share only once.

Answers are stored by model and shard, under the hash of model, edits and queries. So a grid can be
extended, and an interrupted sweep resumes without repeating a query.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import RunCancelledError, TaskResult
from levelhead.engine.scheduler import run_missing
from levelhead.engine.store import open_store
from levelhead.measures.generation.text_queries import Answers
from levelhead.measures.query_kinds import LocalQuery, answer_query
from levelhead.measures.responses import (
    NO_ANSWERS,
    build_query,
    collect_responses,
    encode_shard,
    model_key,
    plan_tasks,
    track_batch_shrinking,
)
from levelhead.models.forward.edit_sweep import can_have_effect, run_edit_sets
from levelhead.models.loading.weight_checksums import check_weights_once, require_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.executors.base import Outcome
    from levelhead.engine.tasks import Task
    from levelhead.measures.base import Measure
    from levelhead.measures.items import QuerySet
    from levelhead.measures.responses import Responses
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM

TASK_FUNCTION = "levelhead.measures.edit_sweep:answers"
"""Marks the tasks of `SweepExecutor`; the text is part of every stored key, and no function."""
MAX_MODELS_AT_ONCE = 80
"""Maximum number of models queried at once: their answers to a shard must fit in memory."""


def read_all_variants(
    lm: LM, query_set: QuerySet, edit_sets: Sequence[EditSet], *, context: RunContext = RunContext()
) -> list[Responses | None]:
    """Read the responses of `lm.edited(*edits)` to the queries of a measure, for every edit set.

    The result is None if no edit of a set can change an answer, because all act after the layers
    that are read.

    Args:
        lm: The model; the edits are added to those it has.
        query_set: The queries.
        edit_sets: Edits of each model; an empty set queries the model unchanged.
        context: Store, threads, progress and cancellation.
    """
    models = {edits: lm.edited(*edits) for edits in _effective_edit_sets(lm, query_set, edit_sets)}
    with check_weights_once():
        plans = {
            edits: plan_tasks(model, query_set, context.threads, work=TASK_FUNCTION)
            for edits, model in models.items()
        }
        keys = {model_key(model): edits for edits, model in models.items()}
    store = open_store(lm.response_store(context.store))
    tasks = [task for plan in plans.values() for task in plan.tasks]
    if tasks:
        run_missing(tasks, store, executor=SweepExecutor(lm, keys), context=context)
    return [
        collect_responses(query_set, plans[edits], store) if edits in plans else None
        for edits in edit_sets
    ]


def read_needed(
    lm: LM,
    measure: Measure,
    sets: Sequence[EditSet],
    *,
    items: frozenset[str] | None = None,
    context: RunContext = RunContext(),
) -> list[Responses | None]:
    """Read what a measure's primary metric needs, of some items, with each set of edits.

    Args:
        lm: The model.
        measure: The measure.
        sets: Sets of edits.
        items: Names of the items that are read; None: all.
        context: Store, threads, progress and cancellation.
    """
    queries = measure.queries(lm)[0]
    kept = tuple(
        item
        for item in queries.items
        if (items is None or item.id in items)
        and (not measure.reads_only_sampled or measure.is_sampled(item))
    )
    return read_all_variants(lm, queries._replace(items=kept), sets, context=context)


@final
@dataclass(frozen=True)
class SweepExecutor:
    """Executor that answers one shard for all edited models together."""

    lm: LM
    edits: Mapping[str, EditSet]
    """Edit sets by the key of the edited model."""

    def run(self, tasks: Sequence[Task], *, cancel: CancelSignal) -> Iterator[Outcome]:
        """Run the tasks shard by shard."""
        groups: dict[str, list[Task]] = {}
        for task in tasks:
            # Tasks that differ only in the model share their text batches and unedited layers.
            shared_spec = {name: value for name, value in task.spec.items() if name != "model"}
            groups.setdefault(content_hash(shared_spec), []).append(task)
        for group in groups.values():
            for start in range(0, len(group), MAX_MODELS_AT_ONCE):
                if cancel.is_set():
                    raise RunCancelledError
                yield from self._answer_group(group[start : start + MAX_MODELS_AT_ONCE])

    def _answer_group(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        try:
            payloads = self._compute_payloads(tasks)
        except LevelheadError as error:
            yield from (TaskFailed(task.key, str(error)) for task in tasks)
        # Other groups must continue; the scheduler raises after the last one.
        except Exception as error:
            trace = "".join(traceback.format_exception(error)).rstrip()
            yield from (TaskFailed(task.key, trace) for task in tasks)
        else:
            for task, payload in zip(tasks, payloads, strict=True):
                yield TaskResult(task.key, payload)

    def _compute_payloads(self, tasks: Sequence[Task]) -> list[bytes]:
        spec_json = json.loads(to_canonical_json(tasks[0].spec))
        rows = [tuple(row) for row in spec_json["asks"]]
        query, dropped = build_query(self.lm, spec_json["verb"], rows, spec_json["settings"])
        edit_sets = [self.edits[str(task.spec["model"])] for task in tasks]
        require_unchanged(self.lm.layout.model)
        with (
            threadpool_limits(tasks[0].threads),
            track_batch_shrinking(self.lm) as get_smallest_batch,
        ):
            answers: Iterable[Answers]
            if query is None:
                # No row of this shard can be answered: an empty shard stores the reasons.
                answers = [NO_ANSWERS] * len(tasks)
            elif isinstance(query, LocalQuery):
                # An edit without effect on this shard may affect queries of another shard.
                swept = run_edit_sets(self.lm, query.query, edit_sets, raise_on_no_effect=False)
                answers = [Answers(query.join_columns(output)) for output in swept]
            # Generated tokens depend on earlier tokens, so edited models share no computation.
            else:
                answers = [answer_query(query, self.lm.edited(*edits)) for edits in edit_sets]
        return [
            encode_shard(shard_answers, dropped, get_smallest_batch()) for shard_answers in answers
        ]


def _effective_edit_sets(
    lm: LM, query_set: QuerySet, edit_sets: Sequence[EditSet]
) -> list[EditSet]:
    """The distinct edit sets that can change the answer to at least one query."""
    queries = [query for item in query_set.items for query in item.queries]
    built_query = (
        build_query(lm, query_set.query_kind, queries, query_set.settings)[0] if queries else None
    )
    # Generated text runs through all layers, so every edit can change it.
    if not isinstance(built_query, LocalQuery):
        return list(dict.fromkeys(edit_sets))
    model_query = built_query.query
    return [
        edits
        for edits in dict.fromkeys(edit_sets)
        if not edits or can_have_effect(model_query, lm, edits)
    ]
