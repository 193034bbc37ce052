"""The cost of a run before it is run: exact forward passes and tokens, seconds by one timed batch.

The queries are built as in the run and split into the same batches, so the counts are those of the
run. Stored responses cost nothing. The time of the statistics is not estimated.
"""

from __future__ import annotations

import time
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NamedTuple
from uuid import uuid4

import torch
from pydantic import Field
from threadpoolctl import threadpool_limits

from levelhead.core.results import Record
from levelhead.core.run_context import RunContext
from levelhead.data.tasks import example_text, get_task_spec
from levelhead.engine.store import NotStoredError, open_existing_store
from levelhead.measures.query_kinds import LocalQuery
from levelhead.measures.responses import build_query, plan_tasks
from levelhead.measures.utility.glue_task import GlueTask
from levelhead.models.loading.load import load
from levelhead.models.loading.quiet import quiet
from levelhead.models.training.classifier_trainer import (
    BatchDataset,
    compute_classification_loss,
    make_classifier,
)
from levelhead.models.training.finetune import encode_rows, find_classifier_class
from levelhead.models.training.from_scratch import preserve_rng_state
from levelhead.study.planned_steps import list_planned_passes
from levelhead.study.session import StudySession
from levelhead.study.steps.kinds import make_steps
from levelhead.study.steps.measurements import CompareModelsStep, MeasureStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from levelhead.engine.tasks import Task
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM
    from levelhead.models.training.configs import FinetuneConfig
    from levelhead.study.config import StudyConfig

FORWARD, GRADIENT = 2, 6
"""Operations per parameter and token: of a forward pass; of a first pass and a second pass with its
backward pass and frozen weights (2 + 4, Yang et al. 2025, Eq. 4, in two passes)."""
H100_TERAFLOPS, UTILIZATION = 990.0, 0.3
"""Dense bfloat16 peak of an H100, and the share of the peak that large models commonly reach."""


class CostEstimate(Record):
    """Forward passes and tokens of a run, and the seconds that they take."""

    forwards: Annotated[int, Field(ge=0)] = 0
    """Number of batches."""
    tokens: Annotated[int, Field(ge=0)] = 0
    """Number of tokens in them, without padding."""
    seconds: Annotated[float, Field(ge=0)] = 0.0
    """Estimated seconds of the batches, from the time of the largest one."""
    notes: tuple[str, ...] = ()

    def __add__(self, other: CostEstimate) -> CostEstimate:
        """The cost of two runs, one after the other."""
        return CostEstimate(
            forwards=self.forwards + other.forwards,
            tokens=self.tokens + other.tokens,
            seconds=self.seconds + other.seconds,
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )

    def __str__(self) -> str:
        """The counts, the time and the notes, one per line."""
        return "\n".join(
            [
                f"{self.forwards:,} forward passes of {self.tokens:,} tokens",
                f"about {self.seconds:,.1f} s of forward passes, by the time of the largest batch",
                *self.notes,
            ]
        )


class _Batch(NamedTuple):
    """A batch: its tokens, its size with padding, and the function that runs it."""

    tokens: int
    padded_tokens: int
    run: Callable[[], object]


def estimate_cost(
    lm: LM, measures: Sequence[Measure], *, context: RunContext = RunContext()
) -> CostEstimate:
    """Estimate the cost of measuring a model; queries that measures share count once.

    Args:
        lm: the model.
        measures: measures of the run.
        context: store, whose responses are not computed again, and threads.
    """
    with threadpool_limits(context.threads):
        tasks: dict[str, Task] = {}
        for measure in measures:
            measure.check(lm)
            for query_set in measure.queries(lm):
                tasks |= {
                    task.key: task for task in plan_tasks(lm, query_set, context.threads).tasks
                }
        try:
            # Opened without writing: a new store would make a foreign folder of the run's.
            store = open_existing_store(lm.response_store(context.store))
            missing = [task for key, task in tasks.items() if not store.has(key)]
        except NotStoredError:
            missing = list(tasks.values())
        queries = [_build_query(lm, task) for task in missing]
        local_queries = [query for query in queries if isinstance(query, LocalQuery)]
        cost = _cost_of([batch for query in local_queries for batch in _iter_batches(lm, query)])
    n_others = sum(query is not None for query in queries) - len(local_queries)
    notes: list[str] = []
    if n_others:
        notes.append(f"not counted: {n_others} tasks that generate text or query a server")
    if not all(measure.is_utility for measure in measures):
        notes.append("not counted: checks of the model's skill, some hundred texts a measure")
    return cost.model_copy(update={"notes": tuple(notes)})


def estimate_study_cost(
    config: StudyConfig, folder: Path, *, context: RunContext = RunContext()
) -> CostEstimate:
    """Estimate the cost of the measurements and comparisons of a study; other steps are named.

    Args:
        config: the study.
        folder: folder of the study, whose store may hold responses.
        context: its store, if any, holds the responses instead of the folder.
    """
    session = StudySession(config, folder, context)
    measures_by_model: dict[str, dict[str, None]] = {}
    for row in config.rows(MeasureStep).values():
        for model in row.models:
            measures_by_model.setdefault(model, {}).update(dict.fromkeys(row.measures))
    for pair in config.rows(CompareModelsStep).values():
        for model in (pair.first, pair.second):
            measures_by_model.setdefault(model, {}).update(dict.fromkeys(pair.measures))
    total = CostEstimate()
    for model, names in measures_by_model.items():
        if model not in config.trained_models:
            measures = [session.measure(name) for name in names]
            total += estimate_cost(session.model(model), measures, context=session.context)
    uncounted = [
        step.name
        for step in make_steps(session)
        if step.after or step.name.partition(".")[0] not in ("cell", "against")
    ]
    note = f"not counted: {len(uncounted)} other steps: {', '.join(uncounted)}"
    notes = (*_estimate_planned_steps(session), *((note,) if uncounted else ()))
    return total + CostEstimate(notes=notes)


def _estimate_planned_steps(session: StudySession) -> Iterator[str]:
    """Estimate maps, maskings and sweeps: passes over items, of which one is counted exactly."""
    one_pass: dict[tuple[str, str], CostEstimate] = {}
    forwards: dict[str, float] = {}
    seconds = 0.0
    # A store of its own, which is empty: what is stored, also in the memory of this process, says
    # nothing about ablated and edited models.
    context = RunContext(store=f"memory://{uuid4()}", threads=session.context.threads)
    for step, model, measure, passes in list_planned_passes(session):
        if (model, measure) not in one_pass:
            one_pass[model, measure] = estimate_cost(
                session.model(model), [session.measure(measure)], context=context
            )
        cost = one_pass[model, measure]
        forwards[step] = forwards.get(step, 0.0) + passes * cost.forwards
        seconds += passes * cost.seconds
    if forwards:
        steps = ", ".join(f"{step} {number:,.0f}" for step, number in forwards.items())
        yield (
            f"by arithmetic, at most {sum(forwards.values()):,.0f} further forward passes, "
            f"{seconds / 3600:.2g} hours: {steps}"
        )


def estimate_finetuning_cost(
    lm: LM, name: str, config: FinetuneConfig, *, train: str | None = None, dev: str | None = None
) -> CostEstimate:
    """Estimate the cost of `finetune` on a task, with its evaluation on dev.

    Args:
        lm: the base model.
        name: name of a task in TASKS.
        config: training options.
        train: user's file instead of the task's training part.
        dev: user's file instead of the part for evaluation.
    """
    spec = get_task_spec(name)
    rows: Any = [
        (example_text(example), example.label) for example in spec.examples("train", train)
    ]
    if spec.is_regression:
        rows = [(text, float(label)) for text, label in rows]
    examples = encode_rows(lm.tokens, rows, spec.labels, config.max_tokens)
    for example in examples:
        del example["cut"]
    lengths = [len(example["input_ids"]) for example in examples]
    dataset = BatchDataset(examples, lm.tokens.tokenizer, config)
    with quiet(), preserve_rng_state(), threadpool_limits(config.threads):
        torch.manual_seed(config.seed)
        model = make_classifier(lm, find_classifier_class(lm), spec.labels)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)

        def run_step(position: int) -> None:
            batch = dataset.collate([position])
            compute_classification_loss(model, batch, dropout=config.dropout).backward()
            optimizer.step()
            optimizer.zero_grad()

        training = _cost_of(
            [
                _Batch(
                    sum(lengths[i] for i in batch),
                    max(lengths[i] for i in batch) * len(batch),
                    partial(run_step, position),
                )
                for position, batch in enumerate(dataset.order)
            ]
        )
        # The untrained classifier is evaluated by the same forward passes as the trained one.
        with TemporaryDirectory() as folder:
            model.eval().save_pretrained(folder)
            lm.tokens.tokenizer.save_pretrained(folder)
            measure = GlueTask(task=name, file=dev)
            context = RunContext(threads=config.threads)
            return training + estimate_cost(load(folder), [measure], context=context)


def gpu_hours(
    parameters: float,
    tokens: float,
    *,
    heads: int = 0,
    teraflops: float = H100_TERAFLOPS,
    utilization: float = UTILIZATION,
) -> float:
    """Hours of one GPU for the gradient scores of all heads of a model, by arithmetic.

    Args:
        parameters: number of the model's parameters.
        tokens: number of tokens in the queries.
        heads: number of exactly ablated heads; each costs half a forward pass on average, because
            the layers below are not run again.
        teraflops: peak TFLOP/s of one GPU in the dtype of the weights.
        utilization: fraction of the peak that is reached.
    """
    operations = parameters * tokens * (GRADIENT + FORWARD / 2 * heads)
    return operations / (teraflops * 1e12 * utilization) / 3600


def _build_query(lm: LM, task: Task) -> object:
    spec: Mapping[str, Any] = task.spec
    rows = [tuple(row) for row in spec["asks"]]
    return build_query(lm, spec["verb"], rows, spec["settings"])[0]


def _iter_batches(lm: LM, query: LocalQuery) -> Iterator[_Batch]:
    rows = query.query.rows

    def run_batch(indices: Sequence[int]) -> None:
        with torch.no_grad():
            lm.run_rows(query.query, indices)

    for indices, _ in lm.batching.run_batches(rows, lambda indices: True):
        lengths = [len(rows[i].ids) for i in indices]
        padded_tokens = max(lengths) * len(lengths)
        yield _Batch(sum(lengths), padded_tokens, partial(run_batch, tuple(indices)))


def _cost_of(batches: Sequence[_Batch]) -> CostEstimate:
    """Count batches, and time the largest one, which also shows whether memory suffices."""
    if not batches:
        return CostEstimate()
    largest = max(batches, key=lambda batch: batch.padded_tokens)
    largest.run()  # the first run loads and compiles; only the second is timed
    started_at = time.perf_counter()
    largest.run()
    seconds_per_token = (time.perf_counter() - started_at) / largest.padded_tokens
    return CostEstimate(
        forwards=len(batches),
        tokens=sum(batch.tokens for batch in batches),
        seconds=seconds_per_token * sum(batch.padded_tokens for batch in batches),
    )
