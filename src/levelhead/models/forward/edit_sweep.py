"""One reading of many edited models: whatever two of them have in common is computed once.

Edit sets form a tree ordered by depth: two models part at the first layer whose result an edit of
only one of them changes. Each node's layer inputs are computed once and resumed from, so that 75
settings in the last two of 12 layers cost 21 layers, not 900; models that differ behind the last
layer cost next to nothing. Where few tokens are all that is read of the last layer, it is run for
them alone (`read_tokens`). What a model answers does not depend on which others are asked beside
it, to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.forward.forward_pass import acting_below, is_below
from levelhead.models.forward.last_layer_cache import Memory, read_of, suffices
from levelhead.models.queries.edit_scope import acting, behind
from levelhead.models.queries.query import Readout
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.models.edits.base import Edit
    from levelhead.models.forward.forward_pass import Prefix
    from levelhead.models.forward.last_layer_cache import Pair
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Reading

Edits = tuple["Edit", ...]


def sweep(
    lm: LM, reading: Reading, edit_sets: Sequence[Edits], *, refuse: bool = True
) -> torch.Tensor:
    """`[edit sets, items, ...]`: what `lm.edited(*edits).run(reading)` gives for each.

    Args:
        lm: the model; edits come after those it has.
        reading: what is asked.
        edit_sets: the edits of each model; an empty one asks the model as it is.
        refuse: edits none of which can change an answer; if not, the model as it is answers.
    """
    if not edit_sets:
        raise LevelheadError("there is no edit set to ask", mend="give at least one, () is none")
    asked = [acting(lm, reading, edits) for edits in edit_sets]
    for edits, kept in zip(edit_sets, asked, strict=True):
        if refuse and edits and not kept:
            raise behind(edits)
    number = {edits: i for i, edits in enumerate(dict.fromkeys(asked))}
    models = [lm.edited(*edits) for edits in number]
    tree = _tree(list(enumerate(models)), reading)
    order: list[int] = []
    parts = []
    done, total = 0, len(reading.rows)
    products: dict[str, Pair] = {}

    def once(indices: Sequence[int]) -> torch.Tensor:
        batch = lm.padded(reading, indices)
        asking = _Asking(reading, batch, Memory(read_of(reading, batch), products))
        with torch.no_grad():
            found = dict(_answers(tree, asking, None))
        return torch.stack([found[i] for i in range(len(models))])

    for indices, values in lm.batching.over(reading.rows, once):
        order.extend(indices)
        parts.append(values)
        done += len(indices)
        if lm.progress is not None:
            lm.progress(done, total)
    rows = torch.cat(parts, dim=1)[:, torch.tensor(order).argsort()]
    if reading.items is not None:
        shape = (len(rows), max(reading.items) + 1, *rows.shape[2:])
        whole = torch.zeros(shape, dtype=rows.dtype)
        rows = whole.index_add(1, torch.tensor(reading.items), rows)
    return rows[[number[edits] for edits in asked]]


def can_act(reading: Reading, lm: LM, edits: Edits) -> bool:
    """Whether any of some edits can change what is read."""
    return bool(acting(lm, reading, edits))


class Node(NamedTuple):
    """A model, the layers it hands on, and the models that go on from there."""

    number: int
    lm: LM
    alone: bool
    """Whether its last layer is run for the tokens alone that are read."""
    keep: frozenset[int]
    groups: tuple[tuple[int, Node], ...]
    """Deepest first: what they start from is needed no more when the next are asked."""


def _tree(models: Sequence[tuple[int, LM]], reading: Reading, begin: int = 0) -> Node:
    """Models that share all layers below `begin`."""
    (number, first), *others = models
    layers = first.anatomy.layers
    alone = suffices(first.anatomy, reading) and not _needs_all(first, reading)
    groups: dict[int, list[tuple[int, LM]]] = {}
    highest = _highest(first, reading)
    for i, model in others:
        groups.setdefault(_parting(first, model, highest), []).append((i, model))
    keep = {layer for layer in groups if layer > begin}
    if alone and begin < layers - 1:
        keep.add(layers - 1)
    below = (
        (layer, _tree(groups[layer], reading, layer)) for layer in sorted(groups, reverse=True)
    )
    return Node(number, first, alone, frozenset(keep), tuple(below))


class _Asking(NamedTuple):
    reading: Reading
    batch: Batch
    memory: Memory


def _answers(
    node: Node, asking: _Asking, start: Prefix | None
) -> Iterator[tuple[int, torch.Tensor]]:
    """What a model and those that part from it answer, by number."""
    answer = node.lm.answer(
        asking.reading,
        asking.batch.indices,
        keep=node.keep,
        start=start,
        memory=asking.memory if node.alone else None,
        batch=asking.batch,
    )
    yield node.number, answer.values.cpu()
    for layer, below in node.groups:
        yield from _answers(below, asking, answer.prefixes.get(layer, start))


def _highest(lm: LM, reading: Reading) -> int:
    """The last layer that a forward can be resumed at without passing over what is read."""
    readout, layers = reading.readout, lm.anatomy.layers
    if type(readout).attends is not Readout.attends:  # attention is wanted of every layer
        return 0
    top = layers if readout.part == "hidden" else lm.anatomy.highest
    passed = (
        layer
        for layer in range(1, top + 1)
        if any(is_below(Site(*where), layer) for where in readout.watch)
    )
    return min(passed, default=top + 1) - 1


def _parting(first: LM, second: LM, highest: int) -> int:
    """The highest layer that forwards of both models can be resumed at alike."""
    for layer in range(highest, 0, -1):
        if acting_below(first.edits, layer) == acting_below(second.edits, layer):
            return layer
    return 0


def _needs_all(lm: LM, reading: Reading) -> bool:
    """Whether an edit inside the last layer needs more tokens than are read of it.

    Keys and values are remembered, not made there; what acts on first tokens must see them first.
    """
    last = lm.anatomy.layers - 1
    return any(
        site.stream in ("key", "value")
        or (reading.readout.part == "hidden" and edit.settings.get("tokens", "all") != "all")
        for edit in lm.edits
        for site in edit.at
        if site.layer == last and site.stream not in ("block_out", "embeddings", "pooled")
    )
