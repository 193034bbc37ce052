"""Variants: the same questions asked of a model and of many copies with some parts changed.

One worker for ablation, greedy selection, random controls and amplification. What variants have in
common is computed once (`models.sweep`). Row 0 is the model as it is, in the same batches, so that
differences are paired.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import complete
from levelhead.engine.sharding import shards
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Unit
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.answer_index import uses
from levelhead.measures.query_kinds import Question, shard_size
from levelhead.measures.responses import borrowed, lent, model_key, questioned
from levelhead.models.forward.edit_sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import Ask
    from levelhead.measures.responses import Readouts
    from levelhead.models.forward.edit_sweep import Edits
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

WORK = "levelhead.locate.attribution.variants:answers"
REVISION = 3
TOGETHER = 80
"""Variants in a unit, at most: what it returns must stay small."""


class Cell(NamedTuple):
    """An item's questions, or those of its contexts that lie in one block."""

    item: int
    block: int
    asks: tuple[Ask, ...]


@final
@dataclass(frozen=True, eq=False)
class Variants:
    """What the model and its variants said."""

    readouts: Readouts
    """Of the model as it is, as they were read before."""
    cells: tuple[Cell, ...]
    variants: tuple[Variant, ...]
    answers: np.ndarray[tuple[int, ...], np.dtype[np.floating]]
    """`[1 + variants, cells(, asks), r]`; averaged over a cell's contexts where items are."""

    def of(self, number: int | None, blocks: frozenset[int] | None = None) -> Readouts:
        """The readouts of a variant (None: of the model as it is), of some blocks of contexts."""
        row = 0 if number is None else number + 1
        answers = torch.from_numpy(self.answers[row]).double()
        # What single contexts of the model as it is gave is no part of a variant.
        empty = self.readouts.answers[:0]
        bare = replace(self.readouts, answers=empty, owner=(), asks=())
        if not self.readouts.owner:
            return replace(bare, values=answers)
        kept = [i for i, cell in enumerate(self.cells) if blocks is None or cell.block in blocks]
        held = sorted({self.cells[i].item for i in kept})
        place = {item: i for i, item in enumerate(held)}
        item = torch.tensor([place[self.cells[i].item] for i in kept])
        count = torch.tensor([len(self.cells[i].asks) for i in kept], dtype=torch.float64)
        total = torch.zeros(len(held), answers.shape[1], dtype=torch.float64)
        total = total.index_add(0, item, answers[kept] * count[:, None])
        number_of = torch.zeros(len(held), dtype=torch.float64).index_add(0, item, count)
        of_items = bare
        if len(held) < len(of_items):
            wanted = {of_items.items[i].id for i in held}
            of_items = of_items.some(lambda one: one.id in wanted)
        return replace(of_items, values=total / number_of[:, None])


def vary(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    variants: Sequence[Variant],
    *,
    blocks: Callable[[Ask], int] | None = None,
    means: Mapping[Site, torch.Tensor] | None = None,
    context: RunContext = RunContext(),
) -> Variants:
    """Ask a model and its variants what a measure asks.

    Args:
        lm: the model.
        measure: what asks.
        readouts: the items; what could not be read is not asked again.
        variants: what is changed.
        blocks: the block of a context, where contexts are to be told apart.
        means: for mean ablation, each site's mean.
        context: store, threads, progress and cancellation.
    """
    if not variants:
        raise LevelheadError("there is no variant to ask", mend="name the parts to be changed")
    for variant in variants:
        lm.edited(variant.edit(means or {}))  # refuses sites that the model has not
    cells = _cells(lm, measure, readouts, blocks)
    kept = open_store(lm.keeps(context.store))
    groups = [variants[i : i + TOGETHER] for i in range(0, len(variants), TOGETHER)]
    planned = [
        _planned(lm, measure, readouts, cells, group, means, context.threads) for group in groups
    ]
    every = [unit for units, _ in planned for unit in units]
    _HANDED.update({_hash(means): means} if means else {})
    try:
        with lent(lm):
            complete(every, kept, context=context)
    finally:
        _HANDED.clear()
    parts = []
    for number, (units, places) in enumerate(planned):
        whole: np.ndarray[tuple[int, ...], np.dtype[np.floating]] | None = None
        for unit, place in zip(units, places, strict=True):
            own = np.load(io.BytesIO(kept.get(unit.key)), allow_pickle=False)
            if whole is None:
                whole = np.zeros((len(own), len(cells), *own.shape[2:]), dtype=own.dtype)
            whole[:, place] = own
        assert whole is not None  # noqa: S101  # there is a cell, and a variant
        parts.append(whole if number == 0 else whole[1:])
    return Variants(readouts, cells, tuple(variants), np.concatenate(parts))


def answers(spec: Frozen) -> bytes:
    """The unit of work: `[1 + variants, cells(, asks), r]` for one shard of cells."""
    lm = borrowed(str(spec["model"]))
    plain = json.loads(canonical(spec))
    cells = [[tuple(ask) for ask in cell] for cell in plain["cells"]]
    asks = [ask for cell in cells for ask in cell]
    question, dropped = questioned(lm, plain["verb"], asks, plain["settings"])
    if dropped or not isinstance(question, Question):
        raise LevelheadError(
            "a question that was answered before cannot be asked now",
            mend="use the model and the tokenizer that were read",
        )
    means = _HANDED.get(plain["means"], {})
    edits = [Variant.of(one) for one in plain["variants"]]
    said = _asked_all(lm, question, [(), *((variant.edit(means),) for variant in edits)])
    if plain["averaged"]:
        owner = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
        start = np.searchsorted(owner, np.arange(len(cells)))
        count = np.diff([*start, len(owner)])[:, None]
        wide = np.add.reduceat(said.astype(np.float64), start, axis=1) / count
        found = wide.astype(said.dtype)
    else:
        found = said.reshape(len(said), len(cells), -1, said.shape[-1])
    file = io.BytesIO()
    np.save(file, found, allow_pickle=False)
    return file.getvalue()


_HANDED: dict[str, Mapping[Site, torch.Tensor]] = {}
"""The means of this process that are being used, by hash."""


def _asked_all(
    lm: LM, question: Question, edit_sets: Sequence[Edits]
) -> np.ndarray[tuple[int, int, int], np.dtype[np.floating]]:
    """`[edit sets, asks, r]`."""
    found = sweep(lm, question.reading, edit_sets)
    return np.stack([question.joined(one).numpy() for one in found])


def _cells(
    lm: LM, measure: Measure, readouts: Readouts, blocks: Callable[[Ask], int] | None
) -> tuple[Cell, ...]:
    asked = uses(lm, measure, readouts)
    found: dict[tuple[int, int], list[Ask]] = {}
    for item, ask in zip(asked.item.tolist(), asked.asks, strict=True):
        block = blocks(ask) if blocks and asked.asked.averaged else 0
        found.setdefault((item, block), []).append(ask)
    return tuple(Cell(item, block, tuple(asks)) for (item, block), asks in found.items())


def _planned(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    cells: Sequence[Cell],
    variants: Sequence[Variant],
    means: Mapping[Site, torch.Tensor] | None,
    threads: int,
) -> tuple[list[Unit], list[list[int]]]:
    """Shards of cells, of about as many questions as a shard of readouts has."""
    asked = measure.asked(lm)[0]
    number: dict[str, list[int]] = {}
    for i, cell in enumerate(cells):
        number.setdefault(content_hash([list(cell.asks)]), []).append(i)
    each = max(1, round(sum(len(cell.asks) for cell in cells) / len(cells)))
    units, places = [], []
    for shard in shards(number, size=max(1, shard_size(lm, asked.verb) // each)):
        place = [i for key in shard.items for i in number[key]]
        spec = {
            "model": model_key(lm),
            "verb": asked.verb,
            "settings": asked.settings,
            "averaged": asked.averaged,
            "cells": [cells[i].asks for i in place],
            "variants": [variant.plain for variant in variants],
            "means": _hash(means) if means else None,
        }
        units.append(Unit(WORK, Frozen(spec), revision=REVISION, threads=threads))
        places.append(place)
    return units, places


def _hash(means: Mapping[Site, torch.Tensor]) -> str:
    return content_hash(
        {
            str(site): hashlib.sha256(mean.numpy().tobytes()).hexdigest()
            for site, mean in means.items()
        }
    )
