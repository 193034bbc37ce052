"""Responses of a model to items, read once and stored under the hash of their queries.

Queries are split into shards by their content. A shard is one task of the engine: its batches are
formed inside it, with a fixed number of threads, so that interruption, order and executor cannot
change a bit of its result. Two measures with the same queries share their stored responses.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast, final

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import run_missing
from levelhead.engine.sharding import shard_items
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Task
from levelhead.measures.generation.text_queries import Answers
from levelhead.measures.query_kinds import QUERY_KINDS, answer_query, shard_size
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.in_workers import ModelInWorkers, describe_source, load_source
from levelhead.models.loading.weight_checksums import check_weights_once
from levelhead.stats.designs import crossed_design

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from levelhead.engine.executors.base import Executor
    from levelhead.engine.store import Store
    from levelhead.measures.items import ItemField, MeasureItem, QueryArgs, QueryKind, QuerySet
    from levelhead.measures.query_kinds import ModelQuery
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

TASK_FUNCTION = "levelhead.measures.responses:answer_shard"
"""Path of the task's function; the text is part of every stored key."""
WORKER_FUNCTION = "levelhead.measures.responses:answer_shard_in_worker"
"""Path of the function that computes such a task in a worker."""
# Part of every task's hash.
REVISION = 4
"""Increased if the computation of shards changes, so that outdated results are not reused."""
NO_METADATA = FrozenDict({})
NO_ANSWERS = Answers(torch.zeros(0, 0, dtype=torch.float64))
"""Answers of a shard whose queries cannot be answered."""


@final
@dataclass(frozen=True, eq=False)
class Responses:
    """Responses of a model to the items that could be read."""

    items: tuple[MeasureItem, ...]
    values: torch.Tensor
    """`[items, queries, r]`, or `[items, r]` if answers are averaged; float64. The table under
    `QUERY_KINDS` explains the r columns of each kind of query."""
    factors: tuple[str, ...]
    dropped: tuple[tuple[MeasureItem, str], ...]
    """The other items, with the reasons."""
    answers: torch.Tensor
    """`[answers, r]` single answers if they are averaged, in the precision of the model."""
    owner: tuple[int, ...]
    """Index of the item of each single answer."""
    queries: tuple[QueryArgs, ...]
    """Query of each single answer."""
    lost_counts: tuple[tuple[str, int], ...] = ()
    """Reasons why single queries of averaged items could not be read, with counts."""
    metadata: FrozenDict = NO_METADATA
    """Metadata of the query set, for the metrics."""
    notes: tuple[str, ...] = ()
    shrunk_to: int | None = None
    """Smallest batch size after a shortage of memory; None if no batch had to shrink."""
    population: int | None = None
    """Number of items in the data set, queried or not; None if it is unknown."""
    query_kind: QueryKind | None = None
    """Kind of all queries; None if no model was queried."""
    settings: FrozenDict = NO_METADATA
    """Settings that all queries share."""
    texts: tuple[tuple[str, ...], ...] = ()
    """For every item, the text that answers each of its queries; empty if answers are numbers."""

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def groups(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        """Indices of the items of each group."""
        names = [item.group for item in self.items]
        return {
            name: np.flatnonzero([group == name for group in names])
            for name in dict.fromkeys(names)
        }

    def group_values(self, name: str) -> torch.Tensor:
        """The values of one group."""
        if name not in self.groups:
            raise NotMeasurableError(
                f"no item of {name!r} could be read",
                hint="look at what was dropped, and why; give more items",
            )
        return self.values[torch.from_numpy(self.groups[name])]

    def design(self, factors: Sequence[str] | None = None, *, grouped: bool = False) -> Design:
        """Sampling design: the units of each factor, within groups if `grouped`."""
        for name in factors or ():
            if name not in self.factors:
                raise UnknownNameError("factor", name, self.factors)
        labels = {
            name: [item.units[i] for item in self.items]
            for i, name in enumerate(self.factors)
            if factors is None or name in factors
        }
        within = [item.group for item in self.items] if grouped else None
        return crossed_design(labels, within=within)

    def select_where(self, field: ItemField, value: str) -> Responses:
        """Select the items that have a value in a field."""
        return self.select(lambda item: getattr(item, field) == value)

    def select(self, predicate: Callable[[MeasureItem], bool]) -> Responses:
        """Select the items that satisfy a predicate."""
        indices = [i for i, item in enumerate(self.items) if predicate(item)]
        if not indices:
            raise NotMeasurableError("no item is left", hint="look at which items were wanted")
        # Single answers follow their items, so that contexts can still be averaged anew.
        new_index = {old: new for new, old in enumerate(indices)}
        rows = [i for i, item_index in enumerate(self.owner) if item_index in new_index]
        return replace(
            self,
            items=tuple(self.items[i] for i in indices),
            values=self.values[torch.tensor(indices)],
            answers=self.answers[rows] if rows else self.answers[:0],
            owner=tuple(new_index[self.owner[i]] for i in rows),
            queries=tuple(self.queries[i] for i in rows),
            texts=tuple(self.texts[i] for i in indices) if self.texts else (),
        )


def select_common_items(response_sets: Sequence[Responses]) -> list[Responses]:
    """The items that all sets hold, such as texts whose controls could be read as well."""
    common_ids = set.intersection(
        *({item.id for item in responses.items} for responses in response_sets)
    )
    return [responses.select(lambda item: item.id in common_ids) for responses in response_sets]


def describe_losses(response_sets: Sequence[Responses]) -> tuple[str, ...]:
    """Notes of the responses, and counts of dropped items and lost contexts."""
    notes = [note for responses in response_sets for note in responses.notes]
    notes += [
        f"{len(responses.dropped)} of {len(responses.dropped) + len(responses)} {kind} "
        "could not be read"
        for responses, kind in zip(
            response_sets, ("items asked", *["controls"] * len(response_sets)), strict=False
        )
        if responses.dropped
    ]
    n_lost = sum(count for responses in response_sets for _, count in responses.lost_counts)
    if n_lost:
        example_reason = next(
            reason for responses in response_sets for reason, _ in responses.lost_counts
        )
        notes.append(f"contexts that could not be read: {n_lost} (such as: {example_reason})")
    return tuple(notes)


def read_responses(
    lm: LM, query_sets: Sequence[QuerySet], *, context: RunContext = RunContext()
) -> list[Responses]:
    """Read the responses of a model, and compute those that are not stored yet.

    Queries that several sets share are computed once.

    Args:
        lm: The model.
        query_sets: The query sets; the result has one `Responses` for each.
        context: Store, executor, threads, progress and cancellation.
    """
    with check_weights_once():
        plans = [plan_tasks(lm, query_set, context.threads) for query_set in query_sets]
    store = open_store(lm.response_store(context.store))
    tasks = [task for plan in plans for task in plan.tasks]
    executor = None
    if context.executor is not None:
        workers = cast("Executor", context.executor)
        executor = ModelInWorkers(workers, describe_source(lm), WORKER_FUNCTION)
    with register_model(lm):
        run_missing(tasks, store, executor=executor, context=context)
    return [
        collect_responses(query_set, plan, store)
        for query_set, plan in zip(query_sets, plans, strict=True)
    ]


def answer_shard(spec: FrozenDict) -> bytes:
    """Task of the engine: answer one shard's queries with a model of this process."""
    lm, query_kind = registered_model(str(spec["model"])), cast("QueryKind", spec["verb"])
    # Through JSON, as the hash is: a tuple and a list must give the same query.
    spec_json = json.loads(to_canonical_json(spec))
    rows = [tuple(row) for row in spec_json["asks"]]
    query, dropped = build_query(lm, query_kind, rows, spec_json["settings"])
    with track_batch_shrinking(lm) as get_smallest_batch:
        answers = answer_query(query, lm) if query else NO_ANSWERS
    return encode_shard(answers, dropped, get_smallest_batch())


def answer_shard_in_worker(spec: FrozenDict) -> bytes:
    """Task of the engine: answer one shard's queries with a model that the worker loads."""
    lm = cast("LM", load_source(cast("FrozenDict", spec["source"])))
    task = cast("FrozenDict", spec["task"])
    # Stored under the key of the model that is queried: another model's answers would be wrong.
    if model_key(lm) != task["model"]:
        raise LevelheadError(
            "the worker loads another model than the one that is queried: its files changed, its "
            "edits are merged in memory only, or its device is another one",
            hint="save the model with save_pretrained, and load it from there",
        )
    with register_model(lm):
        return answer_shard(task)


@contextmanager
def track_batch_shrinking(lm: LM) -> Iterator[Callable[[], int]]:
    """Record the smallest batch size within the context; 0 if no batch had to shrink."""
    previous, lm.batching.smallest_size = lm.batching.smallest_size, 0
    try:
        yield lambda: smallest
    finally:
        smallest = lm.batching.smallest_size
        # The outer record must survive, because the model's settings report it.
        lm.batching.smallest_size = previous or smallest


def encode_shard(answers: Answers, dropped: Mapping[int, str], batch_shrunk_to: int) -> bytes:
    """Encode a shard's answers for the store."""
    file = io.BytesIO()
    # Without pickle: a store may be shared, and loading a pickle can run code.
    np.save(file, answers.values.numpy(), allow_pickle=False)
    header: dict[str, object] = {
        "dropped": {str(i): reason for i, reason in dropped.items()},
        "shrunk_to": batch_shrunk_to or None,
    }
    # Only where there are texts: the stored bytes of other kinds of queries must not change.
    if answers.texts is not None:
        header["texts"] = answers.texts
    return to_canonical_json(header) + b"\n" + file.getvalue()


class ReadPlan(NamedTuple):
    """The tasks that answer a query set, and the locations of the answers."""

    tasks: tuple[Task, ...]
    locations: dict[str, tuple[int, int]]
    """Task and row of the answer to each query, by the query's hash."""
    query_hashes: tuple[tuple[str, ...], ...]
    """Hashes of the queries of each item."""


_REGISTERED: dict[str, LM] = {}
"""The models that this process is reading, by key."""


def model_key(lm: LM) -> str:
    """Hash of everything that the answers of a model depend on."""
    # The shrunk batch size depends on free memory: it must not invalidate stored answers.
    settings = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
    return content_hash({"model": lm.content_hash, "settings": settings})


@contextmanager
def register_model(lm: LM) -> Iterator[None]:
    """Register a model, so that tasks of this process find it by its key."""
    key = model_key(lm)
    _REGISTERED[key] = lm
    try:
        yield
    finally:
        _REGISTERED.pop(key, None)


def registered_model(key: str) -> LM:
    """Return the registered model of a task."""
    if key not in _REGISTERED:
        raise LevelheadError(
            "this process does not hold the queried model",
            hint="read in the process that loaded it",
        )
    # Before every shard: a callback of the run may have changed the weights.
    if model_key(lm := _REGISTERED[key]) != key:
        raise LevelheadError("the model changed while it was read", hint="start again")
    return lm


def plan_tasks(lm: LM, query_set: QuerySet, threads: int, *, work: str = TASK_FUNCTION) -> ReadPlan:
    """Split a query set into tasks."""
    if not any(item.queries for item in query_set.items):
        skip_reasons = Counter(item.skip_reason for item in query_set.items).most_common(3)
        reasons_text = "; ".join(f"{count} x {reason}" for reason, count in skip_reasons)
        raise NotMeasurableError(
            f"there is nothing to query: {reasons_text or 'the data are empty'}",
            hint="check the data, the words and the corpus",
        )
    duplicates = [name for name, n in Counter(item.id for item in query_set.items).items() if n > 1]
    if duplicates:
        raise LevelheadError(
            f"{len(duplicates)} items have the same id as another, such as {duplicates[0]!r}",
            hint="give every item an id of its own",
        )
    content: dict[str, QueryArgs] = {}
    hashes = []
    for item in query_set.items:
        item_hashes = tuple(content_hash(query) for query in item.queries)
        # Equal queries of several items have one hash and are answered once.
        content.update(zip(item_hashes, item.queries, strict=True))
        hashes.append(item_hashes)
    tasks: list[Task] = []
    locations: dict[str, tuple[int, int]] = {}
    model = model_key(lm)
    for task_number, shard in enumerate(
        shard_items(content, size=shard_size(lm, query_set.query_kind))
    ):
        spec = {
            "model": model,
            "verb": query_set.query_kind,
            "settings": query_set.settings,
            "asks": [content[key] for key in shard.items],
        }
        tasks.append(Task(work, FrozenDict(spec), revision=REVISION, threads=threads))
        locations |= {key: (task_number, row) for row, key in enumerate(shard.items)}
    return ReadPlan(tuple(tasks), locations, tuple(hashes))


def build_query(
    lm: LM, query_kind: QueryKind, rows: Sequence[QueryArgs], settings: Mapping[str, object]
) -> tuple[ModelQuery | None, dict[int, str]]:
    """Build a query without the rows that the model cannot answer, and give the reasons."""
    build = QUERY_KINDS[query_kind]
    try:
        return build(lm, rows, settings), {}
    except UnreadableTextError:
        dropped: dict[int, str] = {}
        # Row by row only after a failure: building each row alone is slow.
        for i, row in enumerate(rows):
            try:
                build(lm, [row], settings)
            except UnreadableTextError as error:
                dropped[i] = _drop_reason(error)
    answerable = [row for i, row in enumerate(rows) if i not in dropped]
    return (build(lm, answerable, settings) if answerable else None), dropped


def _drop_reason(error: UnreadableTextError) -> str:
    # A row is built alone here, so its number in the message is always 0.
    return error.problem.replace("text 0", "the text")


def collect_responses(query_set: QuerySet, plan: ReadPlan, store: Store) -> Responses:
    """Collect the answers to a query set, by item."""
    rows, reasons, batch_shrunk_to, all_texts = _collect_answers(plan, store)
    values: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    dropped: list[tuple[MeasureItem, str]] = []
    items: list[MeasureItem] = []
    used: list[int] = []
    owner: list[int] = []
    queries: list[QueryArgs] = []
    texts: list[tuple[str, ...]] = []
    lost_counts: Counter[str] = Counter()
    last = 0
    for item in query_set.items:
        positions = range(last, last := last + len(item.queries))
        missing = [reasons[i] for i in positions if i in reasons]
        answered = [i for i in positions if i not in reasons]
        # A mean over contexts tolerates a missing one; a pair with a missing side is no comparison.
        if not answered or (missing and not query_set.average_answers):
            dropped.append((item, item.skip_reason or missing[0]))
            continue
        lost_counts.update(missing)
        # Metrics are computed in float64, whatever the model's precision.
        item_values = rows[answered].astype(np.float64)
        if query_set.average_answers:
            used += answered
            owner += [len(items)] * len(answered)
            queries += [item.queries[i - positions.start] for i in answered]
            item_values = item_values.mean(axis=0)
        items.append(item)
        values.append(item_values)
        if all_texts:
            texts.append(tuple(all_texts[i] for i in answered))
    if not items and not query_set.may_be_empty:
        raise NotMeasurableError(
            f"none of {len(query_set.items)} items could be read: {dropped[-1][1]}",
            hint="check that the data fit the model; nothing stands in for a missing number",
        )
    # Answers of dropped items go, so that `owner` and `answers` have one length.
    if query_set.average_answers and len(used) < len(rows):
        rows = rows[used]
    return Responses(
        items=tuple(items),
        values=torch.from_numpy(np.stack(values)) if items else torch.zeros(0, 0),
        factors=query_set.factors,
        dropped=tuple(dropped),
        answers=torch.from_numpy(rows) if used else torch.zeros(0, 0),
        owner=tuple(owner),
        queries=tuple(queries),
        lost_counts=tuple(sorted(lost_counts.items())),
        metadata=query_set.metadata,
        notes=query_set.notes,
        shrunk_to=batch_shrunk_to,
        population=query_set.population,
        query_kind=query_set.query_kind,
        settings=query_set.settings,
        texts=tuple(texts),
    )


def _collect_answers(plan: ReadPlan, store: Store) -> _CollectedAnswers:
    """Collect the stored answers to all queries of all items, as rows of one array.

    Shards are read one by one, so that the memory in addition to the answers is bounded.
    """
    rows_of_task: dict[int, list[tuple[int, int]]] = {}
    for i, key in enumerate(key for item_hashes in plan.query_hashes for key in item_hashes):
        task, row = plan.locations[key]
        rows_of_task.setdefault(task, []).append((i, row))
    total = sum(map(len, rows_of_task.values()))
    rows: np.ndarray[tuple[int, int], np.dtype[np.floating]] = np.zeros((total, 0))
    reasons: dict[int, str] = {}
    shrunk: list[int] = []
    texts: dict[int, str] = {}
    for task, positions in rows_of_task.items():
        shard = _decode_shard(store.get(plan.tasks[task].key))
        if shard.shrunk_to:
            shrunk.append(shard.shrunk_to)
        if not rows.shape[1] and shard.values.size:
            rows = np.zeros((total, shard.values.shape[1]), dtype=shard.values.dtype)
        for i, position in positions:
            row_or_reason = shard.row_or_reason[position]
            if isinstance(row_or_reason, str):
                reasons[i] = row_or_reason
                continue
            rows[i] = shard.values[row_or_reason]
            if shard.texts is not None:
                texts[i] = shard.texts[row_or_reason]
    return _CollectedAnswers(rows, reasons, min(shrunk, default=None), texts)


class _CollectedAnswers(NamedTuple):
    rows: np.ndarray[tuple[int, int], np.dtype[np.floating]]
    reasons: dict[int, str]
    """Reasons of missing answers."""
    shrunk_to: int | None
    texts: dict[int, str]


class _Shard(NamedTuple):
    values: np.ndarray[tuple[int, int], np.dtype[np.floating]]
    row_or_reason: tuple[int | str, ...]
    """Row of the answer to each query, or the reason why there is none."""
    shrunk_to: int | None
    texts: tuple[str, ...] | None
    """Texts of the rows, if texts are the answers."""


def _decode_shard(payload: bytes) -> _Shard:
    header, _, body = payload.partition(b"\n")
    info = json.loads(header)
    dropped = {int(i): str(reason) for i, reason in info["dropped"].items()}
    values = np.load(io.BytesIO(body), allow_pickle=False)
    row_or_reason: tuple[int | str, ...] = tuple(
        # Dropped queries have no row: later rows move up by the number of drops before them.
        dropped.get(index, index - sum(i < index for i in dropped))
        for index in range(len(values) + len(dropped))
    )
    texts = info.get("texts")
    return _Shard(values, row_or_reason, info["shrunk_to"], None if texts is None else tuple(texts))
