"""The gradient of a measure by every head's mask, exact and in bounded memory.

Yang et al. 2025, Eq. 4: b(i, j) = dL / dm(i, j) at m = 1, signed, without normalisation by layer
and without absolute values (both are of Michel et al. 2019). A measure such as SEAT is a ratio over
all words, so gradients of batches do not add up to its gradient. Therefore all items are first read
without a gradient. The metric is differentiated by these responses, and the derivatives
(cotangents) are propagated back through a second forward pass of every batch. Every row of a batch
has separate masks, so that one backward pass gives the exact share of each row; the shares add up
to the score.

Shares must not be resampled if the metric is not linear, because the cotangents change with the
sample. The gradient ranks heads; ablation tests them.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import run_missing
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Task
from levelhead.locate.attribution.answer_index import AnswerIndex, index_answers
from levelhead.measures.metric import require_differentiable
from levelhead.measures.query_kinds import LocalQuery, shard_size
from levelhead.measures.responses import build_query, model_key, register_model, registered_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.locate.head_map import Component
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.lm import LM
    from levelhead.models.sites import Stream

CotangentsFor = Callable[[torch.Tensor], torch.Tensor]
"""Function that returns `[cotangents, answers, r]` of some answers, by index."""
TASK_FUNCTION = "levelhead.locate.attribution.gradient:compute_contributions"
# Part of every task's key: a new number when the stored arrays change, or old ones are reused.
REVISION = 1
STREAM_OF_COMPONENT: dict[Component, Stream] = {
    "heads": "head_out",
    "mlp": "mlp_out",
    "embeddings": "embeddings",
}


@final
@dataclass(frozen=True, eq=False)
class Contributions:
    """Contribution of each item to the derivative by each mask."""

    items: tuple[str, ...]
    by_component: dict[Component, torch.Tensor]
    """`[..., items, layers, heads]` contributions (heads is 1 for other parts), float64."""

    def total(self, component: Component = "heads") -> torch.Tensor:
        """`[..., layers, heads]` scores (Eq. 4)."""
        return self.by_component[component].sum(-3)


def compute_cotangents(
    measure: Measure, responses: Responses, *, detach_attributes: bool = False
) -> torch.Tensor:
    """Derivative of a measure's primary metric by its responses, in the shape of their values.

    Args:
        measure: The measure to differentiate; a step function raises an error.
        responses: Responses at which the derivative is taken.
        detach_attributes: Whether to hold items fixed that the measure does not sample, such as
            SEAT's attribute words. The paper calls them "static"; the exact derivative needs both.
    """
    require_differentiable(measure.primary_metric)
    # The formula is differentiated on all readouts at once: SEAT is a ratio over all words, and the
    # sum of its gradients over batches is not the gradient.
    values = responses.values.clone().requires_grad_()
    metric_value = measure.reduce(replace(responses, values=values))
    (derivative,) = torch.autograd.grad(metric_value, values)
    # A gradient of 0 holds attribute words fixed: only sampled items contribute.
    if detach_attributes:
        is_fixed = [not measure.is_sampled(item) for item in responses.items]
        derivative = derivative.masked_fill(
            torch.tensor(is_fixed).view(-1, *[1] * (derivative.dim() - 1)), 0.0
        )
    return derivative


def compute_gradient(
    lm: LM,
    measure: Measure,
    responses: Responses,
    *,
    value_cotangents: torch.Tensor | None = None,
    components: Sequence[Component] = ("heads",),
    context: RunContext = RunContext(),
) -> Contributions:
    """Compute the contribution of every item from responses that were read before.

    This is the second of two passes.

    Args:
        lm: The model whose responses they are.
        measure: The measure to differentiate.
        responses: Responses of the model.
        value_cotangents: `[..., *values]` cotangents; by default those of the measure. Several
            cotangents, stacked before the first dimension, share every forward pass.
        components: Parts whose masks are differentiated.
        context: Store, threads, progress and cancellation.
    """
    require_differentiable(measure.primary_metric)
    answer_index = index_answers(lm, measure, responses)
    if value_cotangents is None:
        value_cotangents = compute_cotangents(measure, responses)
    require_nonzero_gradient(value_cotangents, measure, "its readouts")
    has_several = value_cotangents.dim() > responses.values.dim()
    stacked = value_cotangents if has_several else value_cotangents[None]
    contributions = backpropagate(
        lm,
        measure,
        answer_index,
        lambda rows: answer_index.answer_cotangents(stacked, rows),
        n_items=len(responses),
        components=components,
        context=context,
    )
    if not has_several:
        contributions = {
            component: component_contributions[0]
            for component, component_contributions in contributions.items()
        }
    return Contributions(tuple(item.id for item in responses.items), contributions)


def backpropagate(
    lm: LM,
    measure: Measure,
    answer_index: AnswerIndex,
    cotangents_for: CotangentsFor,
    *,
    n_items: int,
    components: Sequence[Component] = ("heads",),
    context: RunContext = RunContext(),
) -> dict[Component, torch.Tensor]:
    """`[cotangents, items, layers, heads]` gradients by part, from `[cotangents, answers, r]`.

    All cotangents share every forward pass, and are computed for one shard at a time.
    """
    store = open_store(lm.response_store(context.store))
    tasks, rows_by_task, cotangents_by_key = _plan_tasks(
        lm, answer_index, cotangents_for, tuple(components), context.threads
    )
    with register_model(lm), _register_cotangents(cotangents_by_key):
        run_missing(tasks, store, context=context)
    shapes = {component: gate_shape(lm.layout, component) for component in components}
    sizes = [layers * heads for layers, heads in shapes.values()]
    total: torch.Tensor | None = None
    for task, rows in zip(tasks, rows_by_task, strict=True):
        task_contributions = torch.from_numpy(
            np.load(io.BytesIO(store.get(task.key)), allow_pickle=False)
        )
        if total is None:
            total = torch.zeros(len(task_contributions), n_items, sum(sizes), dtype=torch.float64)
        # Several questions may belong to one item, such as a word's contexts: their shares add up.
        total.index_add_(1, answer_index.item[rows], task_contributions)
    if total is None:
        raise _zero_gradient_error(measure, "its readouts")
    # Each set is checked by itself: a split without a gradient must not hide behind the others.
    for cotangent_total in total:
        require_nonzero_gradient(cotangent_total, measure, "the masks")
    component_totals = total.split(sizes, dim=-1)
    return {
        component: component_total.unflatten(-1, shapes[component])
        for component, component_total in zip(components, component_totals, strict=True)
    }


def gate_shape(layout: ModelLayout, component: Component) -> tuple[int, int]:
    """Numbers of layers and heads of the masks of a part."""
    if component == "embeddings":
        return 1, 1
    return layout.layers, layout.heads if component == "heads" else 1


def make_unit_gates(
    layout: ModelLayout, components: Sequence[Component], n_rows: int
) -> dict[Stream, torch.Tensor]:
    """Masks of 1 that require a gradient, a copy for every row."""
    return {
        STREAM_OF_COMPONENT[component]: torch.ones(
            # A mask of its own for every row: one backward pass then gives each row's share.
            n_rows,
            *gate_shape(layout, component),
            dtype=torch.float64,
            requires_grad=True,
        )
        for component in components
    }


def compute_contributions(spec: FrozenDict) -> bytes:
    """Task of the engine: `[cotangents, queries, masks]` share of each query of one shard."""
    lm = registered_model(str(spec["model"]))
    settings = json.loads(to_canonical_json(spec))
    cotangent_stack = _PENDING_COTANGENTS[settings["cotangents"]]()
    queries = [tuple(row) for row in settings["asks"]]
    local_query, dropped = build_query(lm, settings["verb"], queries, settings["settings"])
    if dropped or not isinstance(local_query, LocalQuery):
        raise LevelheadError(
            "a query that was answered before cannot be built now",
            hint="use the model and the tokenizer that were read",
        )
    contributions = _backward(lm, local_query, cotangent_stack, settings["parts"])
    file = io.BytesIO()
    np.save(file, contributions.numpy(), allow_pickle=False)
    return file.getvalue()


def _backward(
    lm: LM, local_query: LocalQuery, cotangent_stack: torch.Tensor, components: Sequence[Component]
) -> torch.Tensor:
    """One forward pass for every batch and, for each set of cotangents, one backward pass."""
    query = local_query.query
    # A question may need several rows (one per masked token): `[rows]` the question of each.
    query_of_row = torch.tensor(query.items or range(len(query.rows)))
    total = torch.zeros(
        *cotangent_stack.shape[:2], sum(_gate_sizes(lm.layout, components)), dtype=torch.float64
    )

    def backward_batch(indices: Sequence[int]) -> torch.Tensor:
        gates = make_unit_gates(lm.layout, components, len(indices))
        with torch.enable_grad():
            answer = lm.run_rows(query, indices, gates=gates).values.flatten(1)[
                :, : local_query.n_columns
            ]
        query_numbers = query_of_row[list(indices)]
        contributions = []
        for number, cotangent in enumerate(cotangent_stack):
            gradients = torch.autograd.grad(
                answer,
                list(gates.values()),
                cotangent[query_numbers, : answer.shape[1]].to(answer),
                # All cotangents share one forward graph; the last backward pass frees it.
                retain_graph=number + 1 < len(cotangent_stack),
            )
            full_gradients = [
                lm.layout.parallel.sum_gates(gate) if component == "heads" else gate
                for component, gate in zip(components, gradients, strict=True)
            ]
            contributions.append(torch.cat([gate.flatten(1) for gate in full_gradients], dim=1))
        return torch.stack(contributions)

    def backward_shared_batch(indices: Sequence[int]) -> torch.Tensor:
        return lm.layout.parallel.run_across_processes(indices, backward_batch, dim=1)

    for indices, contributions in lm.batching.run_batches(query.rows, backward_shared_batch):
        total.index_add_(1, query_of_row[list(indices)], contributions)
    return total


def _gate_sizes(layout: ModelLayout, components: Sequence[Component]) -> list[int]:
    shapes = [gate_shape(layout, component) for component in components]
    return [layers * heads for layers, heads in shapes]


# Tasks are specified by JSON: a task names its cotangents by hash and finds them here.
_PENDING_COTANGENTS: dict[str, Callable[[], torch.Tensor]] = {}
"""Cotangents that this process propagates back, by hash; computed when they are needed."""


@contextmanager
def _register_cotangents(tensors: dict[str, Callable[[], torch.Tensor]]) -> Iterator[None]:
    _PENDING_COTANGENTS.update(tensors)
    try:
        yield
    finally:
        for key in tensors:
            _PENDING_COTANGENTS.pop(key, None)


def _plan_tasks(
    lm: LM,
    answer_index: AnswerIndex,
    cotangents_for: CotangentsFor,
    components: tuple[Component, ...],
    threads: int,
) -> tuple[list[Task], list[torch.Tensor], dict[str, Callable[[], torch.Tensor]]]:
    """Shards of about as many queries as a shard of responses has, in the order of the items."""
    tasks: list[Task] = []
    rows_by_task: list[torch.Tensor] = []
    cotangents_by_key: dict[str, Callable[[], torch.Tensor]] = {}
    model = model_key(lm)
    for shard_rows in torch.arange(len(answer_index.queries)).split(
        shard_size(lm, answer_index.query_set.query_kind)
    ):
        shard_cotangents = cotangents_for(shard_rows)
        # What has no cotangent at all has no share: items that a formula leaves out.
        is_needed = shard_cotangents.abs().amax(dim=(0, 2)) > 0
        rows = shard_rows[is_needed]
        if not len(rows):
            continue
        # The result depends on the cotangents, so their hash is part of the task and its cache key.
        key = hashlib.sha256(
            shard_cotangents[:, is_needed].contiguous().numpy().tobytes()
        ).hexdigest()
        cotangents_by_key[key] = partial(cotangents_for, rows)
        spec = {
            "model": model,
            "verb": answer_index.query_set.query_kind,
            "settings": answer_index.query_set.settings,
            "asks": [answer_index.queries[i] for i in rows.tolist()],
            "parts": components,
            "cotangents": key,
        }
        tasks.append(Task(TASK_FUNCTION, FrozenDict(spec), revision=REVISION, threads=threads))
        rows_by_task.append(rows)
    return tasks, rows_by_task, cotangents_by_key


def require_nonzero_gradient(derivative: torch.Tensor, measure: Measure, variable: str) -> None:
    """Raise an error if the gradient is 0 everywhere, which would suggest "no biased heads"."""
    if not bool(derivative.isfinite().all()):
        raise NotMeasurableError(
            f"the gradient of {measure.name} by {variable} is not finite",
            hint="load the model with dtype='float32' or 'float64'",
        )
    if not bool(derivative.any()):
        raise _zero_gradient_error(measure, variable)


def _zero_gradient_error(measure: Measure, variable: str) -> NotMeasurableError:
    return NotMeasurableError(
        f"the gradient of {measure.name} by {variable} is zero everywhere",
        hint="check that the measure depends on what the model says: nothing is located",
    )
