"""The gradient of a measure by every head's mask, exact and in bounded memory.

Yang et al. 2025, Eq. 4: b(i, j) = dL / dm(i, j) at m = 1, signed, without normalisation by layer
and without absolute values (both are Michel et al. 2019's). A measure such as SEAT is a ratio over
all words, so that gradients of batches do not add up to it. What does: read all items without a
gradient, differentiate the formula by their readouts, and push these derivatives (cotangents) back
through a second forward of every batch. Every row of a batch has masks of its own, so that one
backward gives each row's exact share; shares add up to the score.

Shares must not be resampled where the formula is not linear: the cotangents move with the sample.
The gradient ranks; ablation infers.
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

from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import complete
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Unit
from levelhead.locate.attribution.answer_index import Uses, uses
from levelhead.measures.metric import refuse_step
from levelhead.measures.query_kinds import Question, shard_size
from levelhead.measures.responses import borrowed, lent, model_key, questioned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.locate.head_map import Part
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.architectures.model_layout import Anatomy
    from levelhead.models.lm import LM
    from levelhead.models.sites import Stream

Wanted = Callable[[torch.Tensor], torch.Tensor]
"""`[cotangents, uses, r]` of some uses, by number."""
WORK = "levelhead.locate.attribution.gradient:shares"
REVISION = 1
STREAM: dict[Part, Stream] = {"heads": "head_out", "mlp": "mlp_out", "embeddings": "embeddings"}


@final
@dataclass(frozen=True, eq=False)
class Contributions:
    """What each item adds to the derivative by each mask."""

    items: tuple[str, ...]
    shares: dict[Part, torch.Tensor]
    """`[..., items, layers, heads]` (heads 1 for other parts), float64."""

    def total(self, part: Part = "heads") -> torch.Tensor:
        """`[..., layers, heads]`: the scores (Eq. 4)."""
        return self.shares[part].sum(-3)


def cotangents(
    measure: Measure, readouts: Readouts, *, detach_attributes: bool = False
) -> torch.Tensor:
    """The derivative of a measure's headline by its readouts, shaped like these.

    Args:
        measure: what is differentiated; a step function is refused.
        readouts: where.
        detach_attributes: hold fixed what the measure does not sample, such as SEAT's attribute
            words. The paper calls them "static"; the exact derivative needs both.
    """
    refuse_step(measure.headline)
    values = readouts.values.clone().requires_grad_()
    level = measure.reduce(replace(readouts, values=values))
    (found,) = torch.autograd.grad(level, values)
    if detach_attributes:
        fixed = [not measure.samples(item) for item in readouts.items]
        found = found.masked_fill(torch.tensor(fixed).view(-1, *[1] * (found.dim() - 1)), 0.0)
    return found


def gradient(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    *,
    of_values: torch.Tensor | None = None,
    parts: Sequence[Part] = ("heads",),
    context: RunContext = RunContext(),
) -> Contributions:
    """The second of two passes: shares of every item, of readouts that were read before.

    Args:
        lm: the model that was read.
        measure: what is differentiated.
        readouts: what it said.
        of_values: `[..., *values]` cotangents; by default the measure's own. Several, stacked
            before the first dimension, share every forward.
        parts: whose masks.
        context: store, threads, progress and cancellation.
    """
    refuse_step(measure.headline)
    asked = uses(lm, measure, readouts)
    if of_values is None:
        of_values = cotangents(measure, readouts)
    refuse_flat(of_values, measure, "its readouts")
    several = of_values.dim() > readouts.values.dim()
    each = of_values if several else of_values[None]
    found = pushed_back(
        lm,
        measure,
        asked,
        lambda some: asked.cotangents(each, some),
        items=len(readouts),
        parts=parts,
        context=context,
    )
    if not several:
        found = {part: own[0] for part, own in found.items()}
    return Contributions(tuple(item.id for item in readouts.items), found)


def pushed_back(
    lm: LM,
    measure: Measure,
    asked: Uses,
    wanted: Wanted,
    *,
    items: int,
    parts: Sequence[Part] = ("heads",),
    context: RunContext = RunContext(),
) -> dict[Part, torch.Tensor]:
    """`[cotangents, items, layers, heads]` by part: `[cotangents, uses, r]` pushed back to masks.

    All cotangents share every forward, and are made for one shard at a time.
    """
    kept = open_store(lm.keeps(context.store))
    units, places, handed = _planned(lm, asked, wanted, tuple(parts), context.threads)
    with lent(lm), _handed(handed):
        complete(units, kept, context=context)
    shapes = {part: gate_shape(lm.anatomy, part) for part in parts}
    sizes = [layers * heads for layers, heads in shapes.values()]
    total: torch.Tensor | None = None
    for unit, rows in zip(units, places, strict=True):
        own = torch.from_numpy(np.load(io.BytesIO(kept.get(unit.key)), allow_pickle=False))
        if total is None:
            total = torch.zeros(len(own), items, sum(sizes), dtype=torch.float64)
        total.index_add_(1, asked.item[rows], own)
    if total is None:
        raise _flat(measure, "its readouts")
    for one in total:
        refuse_flat(one, measure, "the masks")
    split = total.split(sizes, dim=-1)
    return {part: own.unflatten(-1, shapes[part]) for part, own in zip(parts, split, strict=True)}


def gate_shape(anatomy: Anatomy, part: Part) -> tuple[int, int]:
    """Layers and heads of a part's masks."""
    if part == "embeddings":
        return 1, 1
    return anatomy.layers, anatomy.heads if part == "heads" else 1


def ones(anatomy: Anatomy, parts: Sequence[Part], rows: int) -> dict[Stream, torch.Tensor]:
    """Masks of 1, a copy for every row, that want a gradient."""
    return {
        STREAM[part]: torch.ones(
            rows, *gate_shape(anatomy, part), dtype=torch.float64, requires_grad=True
        )
        for part in parts
    }


def shares(spec: Frozen) -> bytes:
    """The unit of work: `[cotangents, asks, masks]`, each ask's share, for one shard of asks."""
    lm = borrowed(str(spec["model"]))
    plain = json.loads(canonical(spec))
    wanted = _HANDED[plain["cotangents"]]()
    asks = [tuple(row) for row in plain["asks"]]
    asked, dropped = questioned(lm, plain["verb"], asks, plain["settings"])
    if dropped or not isinstance(asked, Question):
        raise LevelheadError(
            "a question that was answered before cannot be asked now",
            mend="use the model and the tokenizer that were read",
        )
    found = _backward(lm, asked, wanted, plain["parts"])
    file = io.BytesIO()
    np.save(file, found.numpy(), allow_pickle=False)
    return file.getvalue()


def _backward(lm: LM, asked: Question, wanted: torch.Tensor, parts: Sequence[Part]) -> torch.Tensor:
    """One forward and, for each set of cotangents, one backward for every batch."""
    reading = asked.reading
    of_row = torch.tensor(reading.items or range(len(reading.rows)))
    total = torch.zeros(*wanted.shape[:2], sum(_sizes(lm.anatomy, parts)), dtype=torch.float64)

    def once(indices: Sequence[int]) -> torch.Tensor:
        gates = ones(lm.anatomy, parts, len(indices))
        with torch.enable_grad():
            answer = lm.answer(reading, indices, gates=gates).values.flatten(1)[:, : asked.width]
        own = of_row[list(indices)]
        back = []
        for number, one in enumerate(wanted):
            found = torch.autograd.grad(
                answer,
                list(gates.values()),
                one[own, : answer.shape[1]].to(answer),
                retain_graph=number + 1 < len(wanted),
            )
            every = [
                lm.anatomy.ranks.summed(gate) if part == "heads" else gate
                for part, gate in zip(parts, found, strict=True)
            ]
            back.append(torch.cat([gate.flatten(1) for gate in every], dim=1))
        return torch.stack(back)

    def shared(indices: Sequence[int]) -> torch.Tensor:
        return lm.anatomy.ranks.over(indices, once, dim=1)

    for indices, back in lm.batching.over(reading.rows, shared):
        total.index_add_(1, of_row[list(indices)], back)
    return total


def _sizes(anatomy: Anatomy, parts: Sequence[Part]) -> list[int]:
    shapes = [gate_shape(anatomy, part) for part in parts]
    return [layers * heads for layers, heads in shapes]


_HANDED: dict[str, Callable[[], torch.Tensor]] = {}
"""The cotangents of this process that are being pushed back, by hash; made when they are needed."""


@contextmanager
def _handed(tensors: dict[str, Callable[[], torch.Tensor]]) -> Iterator[None]:
    _HANDED.update(tensors)
    try:
        yield
    finally:
        for key in tensors:
            _HANDED.pop(key, None)


def _planned(
    lm: LM, asked: Uses, wanted: Wanted, parts: tuple[Part, ...], threads: int
) -> tuple[list[Unit], list[torch.Tensor], dict[str, Callable[[], torch.Tensor]]]:
    """Units of about as many asks as a shard of readouts has, in the order of the items."""
    units: list[Unit] = []
    places: list[torch.Tensor] = []
    handed: dict[str, Callable[[], torch.Tensor]] = {}
    for some in torch.arange(len(asked.asks)).split(shard_size(lm, asked.asked.verb)):
        own = wanted(some)
        # What has no cotangent at all has no share: items that a formula leaves out.
        needed = own.abs().amax(dim=(0, 2)) > 0
        rows = some[needed]
        if not len(rows):
            continue
        key = hashlib.sha256(own[:, needed].contiguous().numpy().tobytes()).hexdigest()
        handed[key] = partial(wanted, rows)
        spec = {
            "model": model_key(lm),
            "verb": asked.asked.verb,
            "settings": asked.asked.settings,
            "asks": [asked.asks[i] for i in rows.tolist()],
            "parts": parts,
            "cotangents": key,
        }
        units.append(Unit(WORK, Frozen(spec), revision=REVISION, threads=threads))
        places.append(rows)
    return units, places, handed


def refuse_flat(found: torch.Tensor, measure: Measure, by: str) -> None:
    """A gradient of 0 everywhere would read as "no biased heads"."""
    if not bool(found.isfinite().all()):
        raise NotMeasurable(
            f"the gradient of {measure.name} by {by} is not finite",
            mend="load the model with dtype='float32' or 'float64'",
        )
    if not bool(found.any()):
        raise _flat(measure, by)


def _flat(measure: Measure, by: str) -> NotMeasurable:
    return NotMeasurable(
        f"the gradient of {measure.name} by {by} is zero everywhere",
        mend="check that the measure depends on what the model says: nothing is located",
    )
