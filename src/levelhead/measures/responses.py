"""Readouts: what a model says to each item, read once and kept under the hash of what was asked.

Questions are cut into shards by their content. A shard is one unit of the engine: its batches are
formed inside it, with a fixed number of threads, so that neither interruption nor order nor runner
can change a bit of what it gives. A measure that asks what another has asked finds it stored.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.core.frozen import Frozen
from levelhead.core.run_context import RunContext
from levelhead.engine.scheduler import complete
from levelhead.engine.sharding import shards
from levelhead.engine.store import open_store
from levelhead.engine.tasks import Unit
from levelhead.measures.query_kinds import VERBS, shard_size
from levelhead.models.inputs.tokenizer import NotReadable
from levelhead.stats.designs import crossed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from levelhead.engine.store import Store
    from levelhead.measures.items import Ask, Asked, Item, Verb
    from levelhead.measures.query_kinds import Distant, Question, Writing
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design

WORK = "levelhead.measures.responses:answers"
REVISION = 4
"""Raised when the numbers of a shard change, so that stored ones are not taken for new."""
NO_FACTS = Frozen({})


@final
@dataclass(frozen=True, eq=False)
class Readouts:
    """What a model said to the items that could be read."""

    items: tuple[Item, ...]
    values: torch.Tensor
    """`[items, asks, r]`, or `[items, r]` where answers are averaged; float64."""
    factors: tuple[str, ...]
    dropped: tuple[tuple[Item, str], ...]
    """The others, and why."""
    answers: torch.Tensor
    """`[answers, r]` one by one, where they are averaged; in the precision they were read in."""
    owner: tuple[int, ...]
    """The item each of these belongs to."""
    asks: tuple[Ask, ...]
    """And what was asked."""
    lost: tuple[tuple[str, int], ...] = ()
    """Why single questions of averaged items could not be read, and how many."""
    facts: Frozen = NO_FACTS
    """What the formulas must know, as it was asked."""
    notes: tuple[str, ...] = ()
    shrunk_to: int | None = None
    """The least batch that memory allowed, where it was less than asked for."""
    population: int | None = None
    """Items that the data set holds, asked or not; None where that is not known."""

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def groups(self) -> dict[str, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        """The items of each side of the comparison."""
        names = [item.group for item in self.items]
        return {
            name: np.flatnonzero([own == name for own in names]) for name in dict.fromkeys(names)
        }

    def group(self, name: str) -> torch.Tensor:
        """The values of one side."""
        if name not in self.groups:
            raise NotMeasurable(
                f"no item of {name!r} could be read",
                mend="look at what was dropped, and why; give more items",
            )
        return self.values[torch.from_numpy(self.groups[name])]

    def design(self, factors: Sequence[str] | None = None, *, grouped: bool = False) -> Design:
        """What was sampled: the units of each factor, within the groups if these are compared."""
        for name in factors or ():
            if name not in self.factors:
                raise UnknownName("factor", name, self.factors)
        labels = {
            name: [item.units[i] for item in self.items]
            for i, name in enumerate(self.factors)
            if factors is None or name in factors
        }
        within = [item.group for item in self.items] if grouped else None
        return crossed(labels, within=within)

    def some(self, keep: Callable[[Item], bool]) -> Readouts:
        """Those items for which something holds."""
        kept = [i for i, item in enumerate(self.items) if keep(item)]
        if not kept:
            raise NotMeasurable("no item is left", mend="look at which items were wanted")
        number = {old: new for new, old in enumerate(kept)}
        rows = [i for i, own in enumerate(self.owner) if own in number]
        return replace(
            self,
            items=tuple(self.items[i] for i in kept),
            values=self.values[torch.tensor(kept)],
            answers=self.answers[rows] if rows else self.answers[:0],
            owner=tuple(number[self.owner[i]] for i in rows),
            asks=tuple(self.asks[i] for i in rows),
        )


def read(lm: LM, asked: Sequence[Asked], *, context: RunContext = RunContext()) -> list[Readouts]:
    """Ask a model everything that is not stored yet; what several ask alike is asked once.

    Args:
        lm: the model.
        asked: what is wanted; the result has one Readouts for each.
        context: store, threads, progress and cancellation.
    """
    plans = [planned(lm, one, context.threads) for one in asked]
    kept = open_store(lm.keeps(context.store))
    units = [unit for plan in plans for unit in plan.units]
    with lent(lm):
        complete(units, kept, context=context)
    return [gathered(one, plan, kept) for one, plan in zip(asked, plans, strict=True)]


def answers(spec: Frozen) -> bytes:
    """The unit of work: one shard's questions, answered by a model that this process holds."""
    lm, verb = borrowed(str(spec["model"])), spec["verb"]
    plain = json.loads(canonical(spec))
    rows = [tuple(row) for row in plain["asks"]]
    question, dropped = questioned(lm, verb, rows, plain["settings"])  # type: ignore[arg-type]
    with shrinking(lm) as least:
        values = question.answered(lm).numpy() if question else np.zeros((0, 0))
    return packed(values, dropped, least())


@contextmanager
def shrinking(lm: LM) -> Iterator[Callable[[], int]]:
    """The least batch that memory allowed in here; 0 if none had to shrink."""
    before, lm.batching.smallest = lm.batching.smallest, 0
    try:
        yield lambda: found
    finally:
        found = lm.batching.smallest
        lm.batching.smallest = before or found


def packed(
    values: np.ndarray[tuple[int, ...], np.dtype[np.floating]],
    dropped: Mapping[int, str],
    shrunk: int,
) -> bytes:
    """A shard's answers, as they are kept."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    head = {"dropped": {str(i): why for i, why in dropped.items()}, "shrunk_to": shrunk or None}
    return canonical(head) + b"\n" + file.getvalue()


class Plan(NamedTuple):
    """The units that answer what is asked, and where the answers are."""

    units: tuple[Unit, ...]
    place: dict[str, tuple[int, int]]
    """Where the answer to a question (by its hash) is: which unit, which row."""
    hashes: tuple[tuple[str, ...], ...]
    """The questions of each item."""


_LENT: dict[str, LM] = {}
"""The models of this process that are being read, by key."""


def model_key(lm: LM) -> str:
    """What the answers of a model depend on, in one hash."""
    settings = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
    return content_hash({"model": lm.content_hash, "settings": settings})


@contextmanager
def lent(lm: LM) -> Iterator[None]:
    """Let the units of this process find the model by its key."""
    key = model_key(lm)
    _LENT[key] = lm
    try:
        yield
    finally:
        _LENT.pop(key, None)


def borrowed(key: str) -> LM:
    """The model that a unit of this process is about."""
    if key not in _LENT:
        raise LevelheadError(
            "this process does not hold the model that is asked",
            mend="read in the process that loaded it",
        )
    return _LENT[key]


def planned(lm: LM, asked: Asked, threads: int, *, work: str = WORK) -> Plan:
    """Cut what is asked into units of some work."""
    if not any(item.asks for item in asked.items):
        why = Counter(item.cannot for item in asked.items).most_common(3)
        told = "; ".join(f"{count} x {reason}" for reason, count in why)
        raise NotMeasurable(
            f"there is nothing to ask: {told or 'the data are empty'}",
            mend="check the data, the words and the corpus",
        )
    twice = [name for name, n in Counter(item.id for item in asked.items).items() if n > 1]
    if twice:
        raise LevelheadError(
            f"{len(twice)} items have the same id as another, such as {twice[0]!r}",
            mend="give every item an id of its own",
        )
    content: dict[str, Ask] = {}
    hashes = []
    for item in asked.items:
        own = tuple(content_hash(ask) for ask in item.asks)
        content.update(zip(own, item.asks, strict=True))
        hashes.append(own)
    units: list[Unit] = []
    place: dict[str, tuple[int, int]] = {}
    for number, shard in enumerate(shards(content, size=shard_size(lm, asked.verb))):
        spec = {
            "model": model_key(lm),
            "verb": asked.verb,
            "settings": asked.settings,
            "asks": [content[key] for key in shard.items],
        }
        units.append(Unit(work, Frozen(spec), revision=REVISION, threads=threads))
        place |= {key: (number, row) for row, key in enumerate(shard.items)}
    return Plan(tuple(units), place, tuple(hashes))


def questioned(
    lm: LM, verb: Verb, rows: Sequence[Ask], settings: Mapping[str, object]
) -> tuple[Question | Distant | Writing | None, dict[int, str]]:
    """The question, without the rows that the model cannot be asked, and why it cannot."""
    ask = VERBS[verb]
    try:
        return ask(lm, rows, settings), {}
    except NotReadable:
        dropped: dict[int, str] = {}
        for i, row in enumerate(rows):
            try:
                ask(lm, [row], settings)
            except NotReadable as error:
                dropped[i] = _reason(error)
    kept = [row for i, row in enumerate(rows) if i not in dropped]
    return (ask(lm, kept, settings) if kept else None), dropped


def _reason(error: NotReadable) -> str:
    # Alone, every text is text 0.
    return error.what.replace("text 0", "the text")


def gathered(asked: Asked, plan: Plan, kept: Store) -> Readouts:
    """What was answered, item by item."""
    rows, why, shrunk = _collected(plan, kept)
    values: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    dropped: list[tuple[Item, str]] = []
    items: list[Item] = []
    used: list[int] = []
    owner: list[int] = []
    asks: list[Ask] = []
    lost: Counter[str] = Counter()
    last = 0
    for item in asked.items:
        own = range(last, last := last + len(item.asks))
        missing = [why[i] for i in own if i in why]
        found = [i for i in own if i not in why]
        if not found or (missing and not asked.averaged):
            dropped.append((item, item.cannot or missing[0]))
            continue
        lost.update(missing)
        stacked = rows[found].astype(np.float64)
        if asked.averaged:
            used += found
            owner += [len(items)] * len(found)
            asks += [item.asks[i - own.start] for i in found]
            stacked = stacked.mean(axis=0)
        items.append(item)
        values.append(stacked)
    if not items and not asked.optional:
        raise NotMeasurable(
            f"none of {len(asked.items)} items could be read: {dropped[-1][1]}",
            mend="check that the data fit the model; nothing stands in for a missing number",
        )
    if asked.averaged and len(used) < len(rows):
        rows = rows[used]
    return Readouts(
        items=tuple(items),
        values=torch.from_numpy(np.stack(values)) if items else torch.zeros(0, 0),
        factors=asked.factors,
        dropped=tuple(dropped),
        answers=torch.from_numpy(rows) if used else torch.zeros(0, 0),
        owner=tuple(owner),
        asks=tuple(asks),
        lost=tuple(sorted(lost.items())),
        facts=asked.facts,
        notes=asked.notes,
        shrunk_to=shrunk,
        population=asked.population,
    )


def _collected(
    plan: Plan, kept: Store
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.floating]], dict[int, str], int | None]:
    """The answer to every question of every item, one below the other, as it was stored.

    And why some are missing, and the least batch. Shard by shard, so that what is held beside the
    answers themselves does not grow with them.
    """
    of_unit: dict[int, list[tuple[int, int]]] = {}
    for i, key in enumerate(key for own in plan.hashes for key in own):
        unit, row = plan.place[key]
        of_unit.setdefault(unit, []).append((i, row))
    total = sum(map(len, of_unit.values()))
    rows: np.ndarray[tuple[int, int], np.dtype[np.floating]] = np.zeros((total, 0))
    why: dict[int, str] = {}
    shrunk: list[int] = []
    for unit, places in of_unit.items():
        shard = _decoded(kept.get(plan.units[unit].key))
        if shard.shrunk_to:
            shrunk.append(shard.shrunk_to)
        if not rows.shape[1] and shard.values.size:
            rows = np.zeros((total, shard.values.shape[1]), dtype=shard.values.dtype)
        for i, place in places:
            answer = shard.row(place)
            if isinstance(answer, str):
                why[i] = answer
            else:
                rows[i] = answer
    return rows, why, min(shrunk, default=None)


class _Shard(NamedTuple):
    values: np.ndarray[tuple[int, int], np.dtype[np.floating]]
    at: tuple[int | str, ...]
    """For every question, the row of its answer, or why there is none."""
    shrunk_to: int | None

    def row(self, question: int) -> np.ndarray[tuple[int], np.dtype[np.floating]] | str:
        place = self.at[question]
        return place if isinstance(place, str) else self.values[place]


def _decoded(payload: bytes) -> _Shard:
    head, _, body = payload.partition(b"\n")
    told = json.loads(head)
    dropped = {int(i): str(why) for i, why in told["dropped"].items()}
    values = np.load(io.BytesIO(body), allow_pickle=False)
    at: tuple[int | str, ...] = tuple(
        dropped.get(question, question - sum(i < question for i in dropped))
        for question in range(len(values) + len(dropped))
    )
    return _Shard(values, at, told["shrunk_to"])
