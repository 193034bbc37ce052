"""Estimate the cost of a run: counts are exact, times come from a timed sample of a few seconds.

The plan has the run's queries, so that forward passes and tokens are exact. A few batches of
several sizes are timed, with the largest one for its memory. Their responses, repeated, substitute
for all others, so that the statistics can be timed with fewer resamples. Stored responses cost
nothing.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.engine.store import open_store
from levelhead.measures.query_kinds import LocalQuery
from levelhead.measures.responses import build_query, collect_responses, encode_shard, plan_tasks
from levelhead.study.cost.estimate import MB, CostEstimate, peak_mb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.engine.store import Store
    from levelhead.engine.tasks import Task
    from levelhead.measures.base import Measure
    from levelhead.measures.items import QuerySet
    from levelhead.measures.responses import ReadPlan
    from levelhead.models.lm import LM

PROBES = 8
"""Number of timed batches."""
FEW_RESAMPLES, MORE_RESAMPLES = 99, 299
"""Numbers of resamples of the timed statistics; two give a slope and an intercept."""


class _Batch(NamedTuple):
    """Rows of one batch."""

    query: LocalQuery
    indices: tuple[int, ...]
    tokens: int
    padded: int
    kind: str
    """The kind of a query, which determines the shape of its response."""


@final
@dataclass(frozen=True)
class _MeasurePlan:
    """The queries of a measure, and those without a stored response."""

    measure: Measure
    query_sets: tuple[QuerySet, ...]
    plans: tuple[ReadPlan, ...]


def estimate_cost(
    lm: LM, measures: Sequence[Measure], *, inference: Inference, context: RunContext = RunContext()
) -> CostEstimate:
    """Estimate the cost of measuring a model, without loading it.

    Args:
        lm: the model.
        measures: measures of the run.
        inference: resamples and permutations of the run.
        context: store and threads; stored responses are not computed again.
    """
    started_at = time.perf_counter()
    with threadpool_limits(context.threads):
        measure_plans = [_plan_measure(lm, measure, context.threads) for measure in measures]
        store = open_store(lm.response_store(context.store))
        # By key: units that several measures share are computed once.
        tasks = {
            task.key: task
            for measure_plan in measure_plans
            for plan in measure_plan.plans
            for task in plan.tasks
        }
        missing = {key: task for key, task in tasks.items() if not store.has(key)}
        queries = {key: _build_query(lm, task) for key, task in missing.items()}
        batches = [
            batch
            for key, (query, _) in queries.items()
            if isinstance(query, LocalQuery)
            for batch in _make_batches(lm, query, _kind(missing[key]))
        ]
        prepared = time.perf_counter() - started_at
        reading, answers = _time_batches(lm, batches)
        stand_in_store = _make_stand_in_store(store, tasks, queries, answers)
        judging, notes = _time_inference(lm, measure_plans, stand_in_store, inference)
    built_queries = [query for query, _ in queries.values() if query is not None]
    n_not_local = sum(not isinstance(query, LocalQuery) for query in built_queries)
    if n_not_local:
        notes += (
            f"{n_not_local} units generate text or query a server: their cost is not estimated",
        )
    parts = {"preparing": prepared, "forwards": reading, "judging": judging}
    return CostEstimate(
        forwards=len(batches),
        tokens=sum(batch.tokens for batch in batches),
        seconds=sum(parts.values()),
        seconds_by_part=parts,
        peak_mb=peak_mb(),
        disk_mb=sum(len(stand_in_store.get(key)) for key in stand_in_store if key in missing) / MB,
        notes=notes,
    )


def _plan_measure(lm: LM, measure: Measure, threads: int) -> _MeasurePlan:
    measure.check(lm)
    query_sets = measure.queries(lm)
    return _MeasurePlan(
        measure, query_sets, tuple(plan_tasks(lm, query_set, threads) for query_set in query_sets)
    )


def _kind(task: Task) -> str:
    return content_hash([task.spec["verb"], task.spec["settings"]])


def _build_query(lm: LM, task: Task) -> tuple[object, dict[int, str]]:
    spec = task.spec
    rows = [tuple(row) for row in spec["asks"]]  # type: ignore[arg-type, union-attr]
    settings: Mapping[str, object] = spec["settings"]  # type: ignore[assignment]
    return build_query(lm, spec["verb"], rows, settings)  # type: ignore[arg-type]


def _make_batches(lm: LM, query: LocalQuery, kind: str) -> Iterator[_Batch]:
    rows = query.query.rows
    for indices, _ in lm.batching.run_batches(rows, lambda indices: True):
        lengths = [len(rows[i].ids) for i in indices]
        padded = max(lengths) * len(lengths)
        yield _Batch(query, tuple(indices), sum(lengths), padded, kind)


def _time_batches(lm: LM, batches: Sequence[_Batch]) -> tuple[float, dict[str, torch.Tensor]]:
    """Estimate the seconds of all batches from a timed sample; also return its rows by kind."""
    if not batches:
        return 0.0, {}
    order = sorted(batches, key=lambda batch: -batch.padded)
    positions = np.linspace(0, len(order) - 1, min(PROBES, len(order))).round().astype(int)
    timed_batches = [order[position] for position in dict.fromkeys(positions.tolist())]
    kinds = {batch.kind: batch for batch in order}
    answers: dict[str, torch.Tensor] = {}
    sizes, seconds = [], []
    for batch in [
        order[0],
        *timed_batches,
        *kinds.values(),
    ]:  # the first batch warms up and is not counted
        started_at = time.perf_counter()
        with torch.no_grad():
            values = lm.run_rows(batch.query.query, batch.indices).values.cpu()
        answers.setdefault(batch.kind, values)
        sizes.append(batch.padded)
        seconds.append(time.perf_counter() - started_at)
    sizes, seconds = sizes[1:], seconds[1:]
    # A line: the fixed time of a batch, and the time per padded token.
    slope, start = np.polyfit(sizes, seconds, 1) if len(set(sizes)) > 1 else (0.0, np.mean(seconds))
    if slope < 0 or start < 0:  # too few or too noisy batches for a line: proportional to tokens
        slope, start = sum(seconds) / sum(sizes), 0.0
    return float(sum(start + slope * batch.padded for batch in batches)), answers


def _make_stand_in_store(
    store: Store,
    tasks: Mapping[str, Task],
    queries: Mapping[str, tuple[object, dict[int, str]]],
    answers: Mapping[str, torch.Tensor],
) -> Store:
    """A store with a response for every unit: the stored one, else one of the same kind."""
    # A name of its own, because all memory:// stores of a process share one file system.
    stand_in_store = open_store(f"memory://levelhead-estimate-{secrets.token_hex(8)}")
    generator = torch.Generator().manual_seed(0)
    for key, task in tasks.items():
        if key not in queries:
            stand_in_store.put(key, store.get(key))
            continue
        query, dropped = queries[key]
        if query is None:
            stand_in_store.put(key, encode_shard(np.zeros((0, 0)), dropped, 0))
        elif isinstance(query, LocalQuery):
            items = query.query.items
            count = len(query.query.rows) if items is None else max(items) + 1
            template = answers[_kind(task)]
            rows = template[torch.arange(count) % len(template)]
            # Noise makes all responses differ: statistics of tied values cannot be computed.
            rows = rows * (1 + 0.1 * torch.randn(rows.shape, generator=generator).to(rows))
            rows = query.join_columns(rows)
            stand_in_store.put(key, encode_shard(rows.numpy(), dropped, 0))
    return stand_in_store


def _time_inference(
    lm: LM, measure_plans: Sequence[_MeasurePlan], stand_in_store: Store, inference: Inference
) -> tuple[float, tuple[str, ...]]:
    """Estimate the seconds of the statistics from timings with fewer resamples."""
    total, notes = 0.0, []
    for measure_plan in measure_plans:
        try:
            started_at = time.perf_counter()
            responses = [
                collect_responses(*set_and_plan, stand_in_store)
                for set_and_plan in zip(measure_plan.query_sets, measure_plan.plans, strict=True)
            ]
            total += time.perf_counter() - started_at
            timings = []
            for n_resamples, n_permutations in (
                (FEW_RESAMPLES, FEW_RESAMPLES),
                (MORE_RESAMPLES, FEW_RESAMPLES),
                (FEW_RESAMPLES, MORE_RESAMPLES),
            ):
                started_at = time.perf_counter()
                measure_plan.measure.compute_measurement(
                    lm,
                    responses,
                    inference=replace(
                        inference, resamples=n_resamples, permutations=n_permutations
                    ),
                )
                timings.append(time.perf_counter() - started_at)
        except LevelheadError as error:
            notes.append(
                f"the statistics of {measure_plan.measure.name} are not estimated: {error.problem}"
            )
            continue
        extra_seconds = [
            # The timings are noisy: fewer resamples cannot cost more.
            max(seconds - timings[0], 0) / (MORE_RESAMPLES - FEW_RESAMPLES)
            for seconds in timings[1:]
        ]
        total += (
            timings[0]
            + extra_seconds[0] * (inference.resamples - FEW_RESAMPLES)
            + extra_seconds[1] * (inference.permutations - FEW_RESAMPLES)
        )
    return total, tuple(notes)
