"""Edit sweep: run one query on many edited models, and compute what they share only once.

Edit sets form a tree ordered by depth: two models branch at the first layer whose output an edit of
only one of them changes. The layer inputs of each node are computed once and resumed from. Thus 75
settings in the last two of 12 layers cost 21 layers instead of 900; models that differ only after
the last layer cost almost nothing. If only few tokens of the last layer are read, it runs only for
these tokens (`last_layer_cache`). The result of a model does not depend on the other models of the
sweep, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.forward.forward_pass import edits_below, precedes
from levelhead.models.forward.last_layer_cache import (
    LastLayerCache,
    can_restrict_tokens,
    tokens_read,
)
from levelhead.models.queries.edit_scope import edits_that_reach, no_effect_error
from levelhead.models.queries.query import Readout
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.models.edits.base import Edit
    from levelhead.models.forward.forward_pass import CachedLayerInput
    from levelhead.models.forward.last_layer_cache import KeysAndValues
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Query

EditSet = tuple["Edit", ...]


def run_edit_sets(
    lm: LM, query: Query, edit_sets: Sequence[EditSet], *, raise_on_no_effect: bool = True
) -> torch.Tensor:
    """Compute `lm.edited(*edits).run(query)` for each edit set: `[edit sets, items, ...]`.

    Args:
        lm: Model; the edits are applied after those that it has.
        query: Rows and readout.
        edit_sets: Edits of each model; an empty set is the unchanged model.
        raise_on_no_effect: Raise if no edit of a set can change the result; otherwise the set gives
            the result of the unchanged model.
    """
    if not edit_sets:
        raise LevelheadError(
            "the list of edit sets is empty", hint="give at least one; () is the unchanged model"
        )
    effective_sets = [edits_that_reach(lm.layout, query, edits) for edits in edit_sets]
    for edits, effective in zip(edit_sets, effective_sets, strict=True):
        if raise_on_no_effect and edits and not effective:
            raise no_effect_error(edits)
    # Sets that differ only in edits without effect are one model.
    index_of = {edits: i for i, edits in enumerate(dict.fromkeys(effective_sets))}
    models = [lm.edited(*edits) for edits in index_of]
    tree = _build_edit_tree(list(enumerate(models)), query)
    order: list[int] = []
    batch_values = []
    done, total = 0, len(query.rows)
    # Shared by all batches: they depend on edits and weights only.
    products: dict[str, KeysAndValues] = {}

    def run_batch(indices: Sequence[int]) -> torch.Tensor:
        batch = lm.make_batch(query, indices)
        sweep_batch = _SweepBatch(query, batch, LastLayerCache(tokens_read(query, batch), products))
        with torch.no_grad():
            values_by_model = dict(_run_node(tree, sweep_batch, None))
        # Shape [models, rows of the batch, ...].
        return torch.stack([values_by_model[i] for i in range(len(models))])

    for indices, values in lm.batching.run_batches(query.rows, run_batch):
        order.extend(indices)
        batch_values.append(values)
        done += len(indices)
        if lm.progress is not None:
            lm.progress(done, total)
    # Batches come longest rows first: restore the order of the query.
    rows = torch.cat(batch_values, dim=1)[:, torch.tensor(order).argsort()]
    if query.items is not None:
        shape = (len(rows), max(query.items) + 1, *rows.shape[2:])
        totals = torch.zeros(shape, dtype=rows.dtype)
        rows = totals.index_add(1, torch.tensor(query.items), rows)
    return rows[[index_of[edits] for edits in effective_sets]]


def can_have_effect(query: Query, lm: LM, edits: EditSet) -> bool:
    """Whether at least one of the edits can change the result of a query."""
    return bool(edits_that_reach(lm.layout, query, edits))


class EditTreeNode(NamedTuple):
    """A model, the layer inputs that it caches, and the models that resume from them."""

    position: int
    lm: LM
    is_token_restricted: bool
    """Whether its last layer runs only for the tokens that are read."""
    cache_layers: frozenset[int]
    branches: tuple[tuple[int, EditTreeNode], ...]
    """Deepest first: their starting point is no longer needed when the next branch runs."""


def _build_edit_tree(
    models: Sequence[tuple[int, LM]], query: Query, first_layer: int = 0
) -> EditTreeNode:
    """Build the tree of models that share all layers below `first_layer`."""
    (index, first), *rest = models
    layers = first.layout.layers
    is_token_restricted = can_restrict_tokens(first.layout, query) and not _needs_all_tokens(
        first, query
    )
    groups: dict[int, list[tuple[int, LM]]] = {}
    last_resumable = _last_resumable_layer(first, query)
    for i, model in rest:
        groups.setdefault(_last_common_layer(first, model, last_resumable), []).append((i, model))
    cache_layers = {layer for layer in groups if layer > first_layer}
    # The cached input of the last layer gives keys and values of all tokens.
    if is_token_restricted and first_layer < layers - 1:
        cache_layers.add(layers - 1)
    branches = (
        (layer, _build_edit_tree(groups[layer], query, layer))
        for layer in sorted(groups, reverse=True)
    )
    return EditTreeNode(index, first, is_token_restricted, frozenset(cache_layers), tuple(branches))


class _SweepBatch(NamedTuple):
    query: Query
    batch: Batch
    last_layer_cache: LastLayerCache


def _run_node(
    node: EditTreeNode, sweep_batch: _SweepBatch, resume_from: CachedLayerInput | None
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the number and the result of a model, and of all models that branch from it."""
    output = node.lm.run_rows(
        sweep_batch.query,
        sweep_batch.batch.indices,
        cache_layers=node.cache_layers,
        resume_from=resume_from,
        last_layer_cache=sweep_batch.last_layer_cache if node.is_token_restricted else None,
        batch=sweep_batch.batch,
    )
    # On the CPU: the results of all models would otherwise stay in the device's memory.
    yield node.position, output.values.cpu()
    for layer, branch in node.branches:
        # A branch at the layer where this model resumed itself resumes from the same input.
        yield from _run_node(branch, sweep_batch, output.layer_inputs.get(layer, resume_from))


def _last_resumable_layer(lm: LM, query: Query) -> int:
    """Return the last layer where a forward pass can resume without skipping what is read."""
    readout, layers = query.readout, lm.layout.layers
    # Readouts that override this method read the attention of every layer.
    if type(readout).attention_query_weights is not Readout.attention_query_weights:
        return 0
    top = layers if readout.output_stage == "hidden" else lm.layout.last_resumable_layer
    preceding = (
        layer
        for layer in range(1, top + 1)
        if any(precedes(Site(*stream_layer), layer) for stream_layer in readout.capture_sites)
    )
    return min(preceding, default=top + 1) - 1


def _last_common_layer(first: LM, second: LM, last_resumable: int) -> int:
    """Return the highest layer where forward passes of both models can resume from one cache."""
    # From above: the higher the layer, the more is shared.
    for layer in range(last_resumable, 0, -1):
        if edits_below(first.edits, layer) == edits_below(second.edits, layer):
            return layer
    return 0


def _needs_all_tokens(lm: LM, query: Query) -> bool:
    """Whether an edit inside the last layer needs more tokens than are read.

    Keys and values are cached there and not computed; an edit of the first token must find it at
    the first position.
    """
    last = lm.layout.layers - 1
    return any(
        site.stream in ("key", "value")
        or (query.readout.output_stage == "hidden" and edit.settings.get("tokens", "all") != "all")
        for edit in lm.edits
        for site in edit.sites
        if site.layer == last and site.stream not in ("block_out", "embeddings", "pooled")
    )
