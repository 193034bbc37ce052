"""What a run will cost, before it is run: counts are exact, times come from a few seconds' probe.

Questions are planned as they will be, so that forwards and tokens are those of the run. A few
batches of several sizes are read and timed, the largest among them for its memory; their answers,
repeated, stand in for all the others, so that judging can be timed with fewer draws. What is stored
already costs nothing.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.engine.store import open_store
from levelhead.measures.query_kinds import Question
from levelhead.measures.responses import gathered, packed, planned, questioned
from levelhead.study.cost.estimate import MB, Foreseen, peak_mb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.engine.store import Store
    from levelhead.engine.tasks import Unit
    from levelhead.measures.base import Measure
    from levelhead.measures.items import Asked
    from levelhead.measures.responses import Plan
    from levelhead.models.lm import LM

PROBES = 8
"""Batches that are timed."""
FEW, MORE = 99, 299
"""Draws of the judgements that are timed."""


class _Batch(NamedTuple):
    """Rows that will be read together."""

    question: Question
    indices: tuple[int, ...]
    tokens: int
    padded: int
    kind: str
    """Questions of one kind have answers of one shape."""


@final
@dataclass(frozen=True)
class _Planned:
    """What one measure asks, and what of it is not stored."""

    measure: Measure
    asked: tuple[Asked, ...]
    plans: tuple[Plan, ...]


def foresee(
    lm: LM, measures: Sequence[Measure], *, inference: Inference, context: RunContext = RunContext()
) -> Foreseen:
    """What measuring a model will take, beyond loading it.

    Args:
        lm: the model.
        measures: what is asked.
        inference: resamples and permutations of the run.
        context: store and threads; readouts that the store holds are not read again.
    """
    began = time.perf_counter()
    with threadpool_limits(context.threads):
        every = [_planned(lm, one, context.threads) for one in measures]
        kept = open_store(lm.keeps(context.store))
        units = {unit.key: unit for own in every for plan in own.plans for unit in plan.units}
        missing = {key: unit for key, unit in units.items() if not kept.has(key)}
        questions = {key: _question(lm, unit) for key, unit in missing.items()}
        batches = [
            batch
            for key, (question, _) in questions.items()
            if isinstance(question, Question)
            for batch in _batches(lm, question, _kind(missing[key]))
        ]
        prepared = time.perf_counter() - began
        reading, answers = _probed(lm, batches)
        written = _stand_in(kept, units, questions, answers)
        judging, notes = _judged(lm, every, written, inference)
    asked = [one for one, _ in questions.values() if one is not None]
    unlike = sum(not isinstance(one, Question) for one in asked)
    if unlike:
        notes += (f"{unlike} units write text, or ask a server: their forwards are not foreseen",)
    parts = {"preparing": prepared, "forwards": reading, "judging": judging}
    return Foreseen(
        forwards=len(batches),
        tokens=sum(batch.tokens for batch in batches),
        seconds=sum(parts.values()),
        parts=parts,
        peak_mb=peak_mb(),
        disk_mb=sum(len(written.get(key)) for key in written if key in missing) / MB,
        notes=notes,
    )


def _planned(lm: LM, measure: Measure, threads: int) -> _Planned:
    measure.check(lm)
    asked = measure.asked(lm)
    return _Planned(measure, asked, tuple(planned(lm, one, threads) for one in asked))


def _kind(unit: Unit) -> str:
    return content_hash([unit.spec["verb"], unit.spec["settings"]])


def _question(lm: LM, unit: Unit) -> tuple[object, dict[int, str]]:
    spec = unit.spec
    rows = [tuple(row) for row in spec["asks"]]  # type: ignore[arg-type, union-attr]
    settings: Mapping[str, object] = spec["settings"]  # type: ignore[assignment]
    return questioned(lm, spec["verb"], rows, settings)  # type: ignore[arg-type]


def _batches(lm: LM, question: Question, kind: str) -> Iterator[_Batch]:
    rows = question.reading.rows
    for indices, _ in lm.batching.over(rows, lambda indices: True):
        lengths = [len(rows[i].ids) for i in indices]
        padded = max(lengths) * len(lengths)
        yield _Batch(question, tuple(indices), sum(lengths), padded, kind)


def _probed(lm: LM, batches: Sequence[_Batch]) -> tuple[float, dict[str, torch.Tensor]]:
    """Seconds of all batches by those of a few, and rows that were answered, by kind."""
    if not batches:
        return 0.0, {}
    order = sorted(batches, key=lambda batch: -batch.padded)
    places = np.linspace(0, len(order) - 1, min(PROBES, len(order))).round().astype(int)
    chosen = [order[place] for place in dict.fromkeys(places.tolist())]
    kinds = {batch.kind: batch for batch in order}
    answers: dict[str, torch.Tensor] = {}
    sizes, seconds = [], []
    for batch in [order[0], *chosen, *kinds.values()]:  # the first time is not counted
        began = time.perf_counter()
        with torch.no_grad():
            values = lm.answer(batch.question.reading, batch.indices).values.cpu()
        answers.setdefault(batch.kind, values)
        sizes.append(batch.padded)
        seconds.append(time.perf_counter() - began)
    sizes, seconds = sizes[1:], seconds[1:]
    slope, start = np.polyfit(sizes, seconds, 1) if len(set(sizes)) > 1 else (0.0, np.mean(seconds))
    if slope < 0 or start < 0:  # too few of them, or too noisy: by the token
        slope, start = sum(seconds) / sum(sizes), 0.0
    return float(sum(start + slope * batch.padded for batch in batches)), answers


def _stand_in(
    kept: Store,
    units: Mapping[str, Unit],
    questions: Mapping[str, tuple[object, dict[int, str]]],
    answers: Mapping[str, torch.Tensor],
) -> Store:
    """A store in which every unit has an answer: its own if it is kept, else one of its kind."""
    written = open_store(f"memory://levelhead-foreseen-{secrets.token_hex(8)}")
    chance = torch.Generator().manual_seed(0)
    for key, unit in units.items():
        if key not in questions:
            written.put(key, kept.get(key))
            continue
        question, dropped = questions[key]
        if question is None:
            written.put(key, packed(np.zeros((0, 0)), dropped, 0))
        elif isinstance(question, Question):
            items = question.reading.items
            count = len(question.reading.rows) if items is None else max(items) + 1
            like = answers[_kind(unit)]
            rows = like[torch.arange(count) % len(like)]
            # No two alike: what ties cannot be judged.
            rows = rows * (1 + 0.1 * torch.randn(rows.shape, generator=chance).to(rows))
            rows = question.joined(rows)
            written.put(key, packed(rows.numpy(), dropped, 0))
    return written


def _judged(
    lm: LM, every: Sequence[_Planned], written: Store, inference: Inference
) -> tuple[float, tuple[str, ...]]:
    """Seconds of gathering and judging, by those of fewer draws."""
    total, notes = 0.0, []
    for own in every:
        try:
            began = time.perf_counter()
            found = [gathered(*one, written) for one in zip(own.asked, own.plans, strict=True)]
            total += time.perf_counter() - began
            took = []
            for draws, permutations in ((FEW, FEW), (MORE, FEW), (FEW, MORE)):
                began = time.perf_counter()
                own.measure.measured(
                    lm,
                    found,
                    inference=replace(inference, resamples=draws, permutations=permutations),
                )
                took.append(time.perf_counter() - began)
        except LevelheadError as error:
            notes.append(f"judging {own.measure.name} is not foreseen: {error.what}")
            continue
        each = [max(one - took[0], 0) / (MORE - FEW) for one in took[1:]]
        total += (
            took[0]
            + each[0] * (inference.resamples - FEW)
            + each[1] * (inference.permutations - FEW)
        )
    return total, tuple(notes)
