"""Responses of a model with patched activations, computed in stored tasks like all responses."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import run_missing
from levelhead.engine.sharding import shard_items
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Task
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import (
    STREAM_OF_COMPONENT,
    compute_cotangents,
    gate_shape,
    require_nonzero_gradient,
)
from levelhead.locate.patching.interchange import Patch, compute_attributions, run_interchanges
from levelhead.locate.patching.twins import build_twin_queries
from levelhead.measures.query_kinds import shard_size
from levelhead.measures.responses import model_key, register_model, registered_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.head_map import Component
    from levelhead.locate.patching.interchange import TokenChoice
    from levelhead.locate.patching.twins import TwinItems
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

PATCH_FUNCTION = "levelhead.locate.patching.read_patches:compute_patched_answers"
ATTRIBUTION_FUNCTION = "levelhead.locate.patching.read_patches:compute_answer_attributions"
REVISION = 1
# Sums of float32 log-probabilities differ by about 1e-7 of their size between equal forward passes
# of other batches; an effect of that size would be tested as if it were a change of the model.
ROUNDING = 1e-6
"""Relative change of answers up to which an exchange counts as none."""
MAX_PATCHES_PER_TASK = 80
"""Maximum number of patches in a shard: its result must stay small."""


@final
@dataclass(frozen=True, eq=False)
class PatchedResponses:
    """Responses of the model, to the twins, and of the model with each patch."""

    responses: Responses
    patches: tuple[Patch, ...]
    values: torch.Tensor
    """`[2 + patches, items, queries, r]`: texts, twins, patches; float64."""

    @property
    def twins(self) -> Responses:
        """The responses to the twins."""
        return self._with_values(1)

    def responses_of(self, number: int | None) -> Responses:
        """The responses with a patch; None: without any."""
        return self._with_values(0 if number is None else number + 2)

    def has_change(self, number: int) -> bool:
        """Whether some answer with a patch differs from the text's by more than rounding."""
        difference = (self.values[2 + number] - self.values[0]).abs().max()
        return bool(difference > ROUNDING * self.values[0].abs().max())

    def _with_values(self, row: int) -> Responses:
        return replace(self.responses, values=self.values[row])


def read_patches(
    lm: LM,
    twins: TwinItems,
    responses: Responses,
    patches: Sequence[Patch],
    *,
    tokens: TokenChoice = "all",
    context: RunContext = RunContext(),
) -> PatchedResponses:
    """Run the queries of some items with every patch.

    Args:
        lm: The model.
        twins: The items and their twins.
        responses: Responses of the model to items that have a twin.
        patches: The sites that are exchanged together.
        tokens: The tokens whose activations are exchanged.
        context: Store, threads, progress and cancellation.
    """
    store = open_store(lm.response_store(context.store))
    queries_per_item = max(len(item.queries) for item in responses.items)
    items_per_shard = max(1, shard_size(lm, twins.query_set.query_kind) // queries_per_item)
    # By content, not by position: an added item changes one shard, not all.
    row_of_item: dict[str, list[int]] = {}
    for row, item in enumerate(responses.items):
        row_of_item.setdefault(content_hash([list(item.queries)]), []).append(row)
    groups = [
        patches[i : i + MAX_PATCHES_PER_TASK] for i in range(0, len(patches), MAX_PATCHES_PER_TASK)
    ] or [()]
    plan: list[tuple[int, Task, list[int]]] = []
    model = model_key(lm)
    for shard in shard_items(row_of_item, size=items_per_shard):
        rows = [row for key in shard.items for row in row_of_item[key]]
        for number, group in enumerate(groups):
            spec = _describe_queries(twins, responses, rows) | {
                "model": model,
                "patches": [patch.as_json for patch in group],
                "tokens": tokens,
            }
            task = Task(
                PATCH_FUNCTION, FrozenDict(spec), revision=REVISION, threads=context.threads
            )
            plan.append((number, task, rows))
    with register_model(lm):
        run_missing([task for _, task, _ in plan], store, context=context)
    values = responses.values.new_zeros(2 + len(patches), *responses.values.shape)
    for number, task, rows in plan:
        stored = torch.from_numpy(np.load(io.BytesIO(store.get(task.key)), allow_pickle=False))
        answers = stored.double().unflatten(1, (len(rows), -1))
        start = 2 + number * MAX_PATCHES_PER_TASK
        # Every group repeats texts and twins as its first two rows.
        values[:2, rows] = answers[:2]
        values[start : start + len(answers) - 2, rows] = answers[2:]
    return PatchedResponses(responses, tuple(patches), values)


def compute_patched_answers(spec: FrozenDict) -> bytes:
    """Task of the engine: `[2 + patches, queries, r]` for one shard of items."""
    lm = registered_model(str(spec["model"]))
    settings = json.loads(to_canonical_json(spec))
    query, twin = build_twin_queries(
        lm,
        settings["verb"],
        [tuple(row) for row in settings["asks"]],
        [tuple(row) for row in settings["twins"]],
        settings["settings"],
    )
    patches = [Patch.from_json(values) for values in settings["patches"]]
    answers = run_interchanges(lm, query.query, twin, patches, tokens=settings["tokens"])
    return _to_bytes(np.stack([query.join_columns(values).numpy() for values in answers]))


def attribute_patches(
    lm: LM,
    measure: Measure,
    twins: TwinItems,
    responses: Responses,
    *,
    components: Sequence[Component] = ("heads",),
    tokens: TokenChoice = "all",
    context: RunContext = RunContext(),
) -> dict[Component, torch.Tensor]:
    """Approximate the effect of every exchange on the measure: `[items, layers, heads]` by part.

    The measure is differentiated by the responses, which were read before; these cotangents are
    propagated back to every site, and multiplied there by the difference of the twins. The shares
    of all items add up to the approximate effect.

    Args:
        lm: The model.
        measure: The measure; a step function raises an error.
        twins: The items and their twins.
        responses: Responses of the model to items that have a twin.
        components: Parts whose sites are attributed.
        tokens: The tokens whose activations are exchanged.
        context: Store, threads, progress and cancellation.
    """
    index = index_answers(lm, measure, responses)
    cotangents = compute_cotangents(measure, responses)
    require_nonzero_gradient(cotangents, measure, "its readouts")
    by_answer = index.answer_cotangents(cotangents[None])[0]
    store = open_store(lm.response_store(context.store))
    tasks, rows_by_task = [], []
    model = model_key(lm)
    rows_per_shard = shard_size(lm, index.query_set.query_kind)
    for rows in torch.arange(len(index.queries)).split(rows_per_shard):
        queries = [index.queries[i] for i in rows.tolist()]
        spec = {
            "model": model,
            "verb": index.query_set.query_kind,
            "settings": index.query_set.settings,
            "asks": queries,
            "twins": twins.twins(queries),
            "tokens": tokens,
            "parts": tuple(components),
            "cotangents": _hash(by_answer[rows]),
        }
        _COTANGENTS[str(spec["cotangents"])] = by_answer[rows]
        task = Task(
            ATTRIBUTION_FUNCTION, FrozenDict(spec), revision=REVISION, threads=context.threads
        )
        tasks.append(task)
        rows_by_task.append(rows)
    try:
        with register_model(lm):
            run_missing(tasks, store, context=context)
    finally:
        _COTANGENTS.clear()
    shapes = [gate_shape(lm.layout, component) for component in components]
    sizes = [layers * heads for layers, heads in shapes]
    total = torch.zeros(len(responses), sum(sizes), dtype=torch.float64)
    for task, rows in zip(tasks, rows_by_task, strict=True):
        stored = torch.from_numpy(np.load(io.BytesIO(store.get(task.key)), allow_pickle=False))
        total.index_add_(0, index.item[rows], stored)
    return {
        component: part.unflatten(-1, shape)
        for component, part, shape in zip(
            components, total.split(sizes, dim=-1), shapes, strict=True
        )
    }


def compute_answer_attributions(spec: FrozenDict) -> bytes:
    """Task of the engine: `[queries, masks]` attributions for one shard of queries."""
    lm = registered_model(str(spec["model"]))
    settings = json.loads(to_canonical_json(spec))
    local_query, twin = build_twin_queries(
        lm,
        settings["verb"],
        [tuple(row) for row in settings["asks"]],
        [tuple(row) for row in settings["twins"]],
        settings["settings"],
    )
    query = local_query.query
    # A query may need several rows (one per masked token): `[rows]` the query of each.
    query_of_row = torch.tensor(query.items or range(len(query.rows)))
    cotangents = _COTANGENTS[settings["cotangents"]]
    shapes = {
        STREAM_OF_COMPONENT[component]: gate_shape(lm.layout, component)
        for component in settings["parts"]
    }
    by_row = compute_attributions(
        lm,
        query,
        twin,
        cotangents[query_of_row][:, : local_query.n_columns],
        shapes,
        tokens=settings["tokens"],
    )
    total = torch.zeros(len(cotangents), by_row.shape[1], dtype=torch.float64)
    return _to_bytes(total.index_add(0, query_of_row, by_row).numpy())


# Tasks are specified by JSON, and tensors do not fit there: a task names cotangents by their hash.
_COTANGENTS: dict[str, torch.Tensor] = {}
"""Cotangents that this process propagates back, by hash."""


def _describe_queries(
    twins: TwinItems, responses: Responses, rows: Sequence[int]
) -> dict[str, object]:
    queries = [query for row in rows for query in responses.items[row].queries]
    return {
        "verb": twins.query_set.query_kind,
        "settings": twins.query_set.settings,
        "asks": queries,
        "twins": twins.twins(queries),
    }


def _hash(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def _to_bytes(values: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()
