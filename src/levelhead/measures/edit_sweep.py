"""Many edited models read together: the same questions of each, what they share computed once.

Answers are kept one model and one shard at a time, each under the hash of its own model, edits and
questions. So a grid can be added to, and what was killed goes on without asking anything twice.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.engine.events import Failed
from levelhead.engine.executors.base import Cancelled, Computed
from levelhead.engine.scheduler import complete
from levelhead.engine.store import open_store
from levelhead.measures.query_kinds import Question
from levelhead.measures.responses import (
    gathered,
    model_key,
    packed,
    planned,
    questioned,
    shrinking,
)
from levelhead.models.forward.edit_sweep import can_act, sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.executors.base import Outcome
    from levelhead.engine.tasks import Unit
    from levelhead.measures.items import Asked
    from levelhead.measures.responses import Readouts
    from levelhead.models.forward.edit_sweep import Edits
    from levelhead.models.lm import LM

WORK = "levelhead.measures.edit_sweep:answers"
TOGETHER = 80
"""Models asked in one go, at most: what they answer to a shard must fit in memory."""


def read_each(
    lm: LM, asked: Asked, edit_sets: Sequence[Edits], *, context: RunContext = RunContext()
) -> list[Readouts | None]:
    """What `lm.edited(*edits)` says to the questions of a measure, for every edit set.

    None where no edit of a set can change an answer: it acts behind all that is read.

    Args:
        lm: the model; edits come after those it has.
        asked: the questions.
        edit_sets: the edits of each model; an empty one asks the model as it is.
        context: store, threads, progress and cancellation.
    """
    models = {edits: lm.edited(*edits) for edits in _acting(lm, asked, edit_sets)}
    plans = {
        edits: planned(model, asked, context.threads, work=WORK) for edits, model in models.items()
    }
    keys = {model_key(model): edits for edits, model in models.items()}
    kept = open_store(lm.keeps(context.store))
    units = [unit for plan in plans.values() for unit in plan.units]
    if units:
        complete(units, kept, runner=Together(lm, keys), context=context)
    return [gathered(asked, plans[edits], kept) if edits in plans else None for edits in edit_sets]


@final
@dataclass(frozen=True)
class Together:
    """Answers the same shard for all models that want it."""

    lm: LM
    edits: Mapping[str, Edits]
    """By the key of the edited model."""

    def run(self, units: Sequence[Unit], *, cancel: CancelSignal) -> Iterator[Outcome]:
        """Shard by shard."""
        groups: dict[str, list[Unit]] = {}
        for unit in units:
            told = {name: value for name, value in unit.spec.items() if name != "model"}
            groups.setdefault(content_hash(told), []).append(unit)
        for group in groups.values():
            for start in range(0, len(group), TOGETHER):
                if cancel.is_set():
                    raise Cancelled
                yield from self._answered(group[start : start + TOGETHER])

    def _answered(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        try:
            payloads = self._payloads(units)
        except LevelheadError as error:
            yield from (Failed(unit.key, str(error)) for unit in units)
        except Exception as error:  # the others must go on; the job raises
            why = "".join(traceback.format_exception(error)).rstrip()
            yield from (Failed(unit.key, why) for unit in units)
        else:
            for unit, payload in zip(units, payloads, strict=True):
                yield Computed(unit.key, payload)

    def _payloads(self, units: Sequence[Unit]) -> list[bytes]:
        plain = json.loads(canonical(units[0].spec))
        rows = [tuple(row) for row in plain["asks"]]
        question, dropped = questioned(self.lm, plain["verb"], rows, plain["settings"])
        edit_sets = [self.edits[str(unit.spec["model"])] for unit in units]
        with threadpool_limits(units[0].threads), shrinking(self.lm) as least:
            values: Iterable[np.ndarray[tuple[int, ...], np.dtype[np.floating]]]
            if question is None:
                values = [np.zeros((0, 0))] * len(units)
            elif isinstance(question, Question):
                # What acts on no question of this shard acts on one of another.
                found = sweep(self.lm, question.reading, edit_sets, refuse=False)
                values = [question.joined(one).numpy() for one in found]
            else:  # what is written next depends on what was written: nothing is shared
                answered = (question.answered(self.lm.edited(*edits)) for edits in edit_sets)
                values = [one.numpy() for one in answered]
        return [packed(own, dropped, least()) for own in values]


def _acting(lm: LM, asked: Asked, edit_sets: Sequence[Edits]) -> list[Edits]:
    """The edit sets that can change the answer to any question, each once."""
    asks = [ask for item in asked.items for ask in item.asks]
    question = questioned(lm, asked.verb, asks, asked.settings)[0] if asks else None
    if not isinstance(question, Question):  # written text: an edit may change all of it
        return list(dict.fromkeys(edit_sets))
    reading = question.reading
    return [edits for edits in dict.fromkeys(edit_sets) if not edits or can_act(reading, lm, edits)]
