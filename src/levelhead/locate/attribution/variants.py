"""Run the same queries on a model and on many variants with some parts changed.

Ablation, greedy selection, random controls and amplification all use it. Layers that variants share
are computed once (`models.forward.edit_sweep`). Row 0 is the unedited model, in the same batches,
so that differences are paired.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import run_missing
from levelhead.engine.sharding import shard_items
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Task
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.measures.query_kinds import LocalQuery, shard_size
from levelhead.measures.responses import build_query, model_key, register_model, registered_model
from levelhead.models.forward.edit_sweep import run_edit_sets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses
    from levelhead.models.forward.edit_sweep import EditSet
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

TASK_FUNCTION = "levelhead.locate.attribution.variants:compute_variant_answers"
REVISION = 3
MAX_VARIANTS_PER_TASK = 80
"""Maximum number of variants in a shard: its result must stay small."""


class QueryCell(NamedTuple):
    """The queries of an item, or those of its contexts that lie in one block."""

    item: int
    block: int
    queries: tuple[QueryArgs, ...]


@final
@dataclass(frozen=True, eq=False)
class AblationResponses:
    """Responses of the model and its variants."""

    responses: Responses
    """Responses of the unedited model, as they were read before."""
    cells: tuple[QueryCell, ...]
    variants: tuple[AblationVariant, ...]
    answers: np.ndarray[tuple[int, ...], np.dtype[np.floating]]
    """`[1 + variants, cells(, queries), r]` values; averaged over the contexts of a cell if the
    answers of items are averaged."""

    def responses_of(self, number: int | None, blocks: frozenset[int] | None = None) -> Responses:
        """The responses of a variant (None: of the unedited model), for some blocks of contexts."""
        row = 0 if number is None else number + 1
        answers = torch.from_numpy(self.answers[row]).double()
        # What single contexts of the unedited model gave is no part of a variant.
        empty = self.responses.answers[:0]
        without_contexts = replace(self.responses, answers=empty, owner=(), queries=())
        if not self.responses.owner:
            return replace(without_contexts, values=answers)
        cell_numbers = [
            i for i, cell in enumerate(self.cells) if blocks is None or cell.block in blocks
        ]
        item_numbers = sorted({self.cells[i].item for i in cell_numbers})
        row_of_item = {item: i for i, item in enumerate(item_numbers)}
        item = torch.tensor([row_of_item[self.cells[i].item] for i in cell_numbers])
        count = torch.tensor(
            [len(self.cells[i].queries) for i in cell_numbers], dtype=torch.float64
        )
        total = torch.zeros(len(item_numbers), answers.shape[1], dtype=torch.float64)
        # Cells are means over their contexts: weighted by the number of contexts, they give the
        # mean over all contexts of the chosen blocks.
        total = total.index_add(0, item, answers[cell_numbers] * count[:, None])
        n_contexts = torch.zeros(len(item_numbers), dtype=torch.float64).index_add(0, item, count)
        selected = without_contexts
        if len(item_numbers) < len(selected):
            item_ids = {selected.items[i].id for i in item_numbers}
            selected = selected.select(lambda query_item: query_item.id in item_ids)
        return replace(selected, values=total / n_contexts[:, None])


def read_variants(
    lm: LM,
    measure: Measure,
    responses: Responses,
    variants: Sequence[AblationVariant],
    *,
    block_of: Callable[[QueryArgs], int] | None = None,
    means: Mapping[Site, torch.Tensor] | None = None,
    context: RunContext = RunContext(),
) -> AblationResponses:
    """Run the queries of a measure on a model and its variants.

    Args:
        lm: The model.
        measure: The measure.
        responses: Responses of the model; queries without an answer are not run again.
        variants: The changes of the model.
        block_of: The block of a context, if contexts must be distinguished.
        means: Mean of each site, for mean ablation.
        context: Store, threads, progress and cancellation.
    """
    if not variants:
        raise LevelheadError("there is no variant to ask", hint="name the parts to be changed")
    for variant in variants:
        lm.edited(variant.make_edit(means or {}))  # refuses sites that the model has not
    cells = _make_cells(lm, measure, responses, block_of)
    store = open_store(lm.response_store(context.store))
    groups = [
        variants[i : i + MAX_VARIANTS_PER_TASK]
        for i in range(0, len(variants), MAX_VARIANTS_PER_TASK)
    ]
    plans = [
        _plan_tasks(lm, measure, responses, cells, group, means, context.threads)
        for group in groups
    ]
    all_tasks = [task for tasks, _ in plans for task in tasks]
    _MEANS_BY_HASH.update({_hash_means(means): means} if means else {})
    try:
        with register_model(lm):
            run_missing(all_tasks, store, context=context)
    finally:
        _MEANS_BY_HASH.clear()
    answers_by_group = []
    for number, (tasks, cells_by_task) in enumerate(plans):
        group_answers: np.ndarray[tuple[int, ...], np.dtype[np.floating]] | None = None
        for task, cell_numbers in zip(tasks, cells_by_task, strict=True):
            task_answers = np.load(io.BytesIO(store.get(task.key)), allow_pickle=False)
            if group_answers is None:
                group_answers = np.zeros(
                    (len(task_answers), len(cells), *task_answers.shape[2:]),
                    dtype=task_answers.dtype,
                )
            group_answers[:, cell_numbers] = task_answers
        assert group_answers is not None  # noqa: S101  # there is a cell, and a variant
        # Every group repeats the unedited model as its row 0; one copy stays.
        answers_by_group.append(group_answers if number == 0 else group_answers[1:])
    return AblationResponses(responses, cells, tuple(variants), np.concatenate(answers_by_group))


def compute_variant_answers(spec: FrozenDict) -> bytes:
    """Task of the engine: `[1 + variants, cells(, queries), r]` for one shard of cells."""
    lm = registered_model(str(spec["model"]))
    settings = json.loads(to_canonical_json(spec))
    cells = [[tuple(query) for query in cell] for cell in settings["cells"]]
    queries = [query for cell in cells for query in cell]
    local_query, dropped = build_query(lm, settings["verb"], queries, settings["settings"])
    if dropped or not isinstance(local_query, LocalQuery):
        raise LevelheadError(
            "a query that was answered before cannot be built now",
            hint="use the model and the tokenizer that were read",
        )
    means = _MEANS_BY_HASH.get(settings["means"], {})
    edits = [AblationVariant.from_json(variant_json) for variant_json in settings["variants"]]
    answer_values = _answer_all(
        lm, local_query, [(), *((variant.make_edit(means),) for variant in edits)]
    )
    if settings["averaged"]:
        owner = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
        start = np.searchsorted(owner, np.arange(len(cells)))
        count = np.diff([*start, len(owner)])[:, None]
        # Summed in float64, so that a mean over many contexts loses no digits of the answers.
        averaged = np.add.reduceat(answer_values.astype(np.float64), start, axis=1) / count
        cell_answers = averaged.astype(answer_values.dtype)
    else:
        cell_answers = answer_values.reshape(
            len(answer_values), len(cells), -1, answer_values.shape[-1]
        )
    file = io.BytesIO()
    np.save(file, cell_answers, allow_pickle=False)
    return file.getvalue()


# Tasks are specified by JSON, and tensors do not fit there: a task names means by their hash.
_MEANS_BY_HASH: dict[str, Mapping[Site, torch.Tensor]] = {}
"""Means that this process uses, by hash."""


def _answer_all(
    lm: LM, local_query: LocalQuery, edit_sets: Sequence[EditSet]
) -> np.ndarray[tuple[int, int, int], np.dtype[np.floating]]:
    """`[edit sets, queries, r]` answers."""
    swept = run_edit_sets(lm, local_query.query, edit_sets)
    return np.stack([local_query.join_columns(edit_answers).numpy() for edit_answers in swept])


def _make_cells(
    lm: LM, measure: Measure, responses: Responses, block_of: Callable[[QueryArgs], int] | None
) -> tuple[QueryCell, ...]:
    answer_index = index_answers(lm, measure, responses)
    queries_by_cell: dict[tuple[int, int], list[QueryArgs]] = {}
    for item, query in zip(answer_index.item.tolist(), answer_index.queries, strict=True):
        # Only averaged contexts can be split; other items keep their questions together.
        block = block_of(query) if block_of and answer_index.query_set.average_answers else 0
        queries_by_cell.setdefault((item, block), []).append(query)
    return tuple(
        QueryCell(item, block, tuple(queries)) for (item, block), queries in queries_by_cell.items()
    )


def _plan_tasks(
    lm: LM,
    measure: Measure,
    responses: Responses,
    cells: Sequence[QueryCell],
    variants: Sequence[AblationVariant],
    means: Mapping[Site, torch.Tensor] | None,
    threads: int,
) -> tuple[list[Task], list[list[int]]]:
    """Shards of cells, with about as many queries as a shard of responses has."""
    query_set = measure.queries(lm)[0]
    # Sharded by content, not by position: an added item changes one shard, not all.
    cells_by_query_hash: dict[str, list[int]] = {}
    for i, cell in enumerate(cells):
        cells_by_query_hash.setdefault(content_hash([list(cell.queries)]), []).append(i)
    queries_per_cell = max(1, round(sum(len(cell.queries) for cell in cells) / len(cells)))
    tasks, cells_by_task = [], []
    model = model_key(lm)
    for shard in shard_items(
        cells_by_query_hash, size=max(1, shard_size(lm, query_set.query_kind) // queries_per_cell)
    ):
        cell_numbers = [i for key in shard.items for i in cells_by_query_hash[key]]
        spec = {
            "model": model,
            "verb": query_set.query_kind,
            "settings": query_set.settings,
            "averaged": query_set.average_answers,
            "cells": [cells[i].queries for i in cell_numbers],
            "variants": [variant.as_json for variant in variants],
            "means": _hash_means(means) if means else None,
        }
        tasks.append(Task(TASK_FUNCTION, FrozenDict(spec), revision=REVISION, threads=threads))
        cells_by_task.append(cell_numbers)
    return tasks, cells_by_task


def _hash_means(means: Mapping[Site, torch.Tensor]) -> str:
    return content_hash(
        {
            str(site): hashlib.sha256(mean.numpy().tobytes()).hexdigest()
            for site, mean in means.items()
        }
    )
