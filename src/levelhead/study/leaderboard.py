"""Many models by the same rulers: a study each, so that what fails with one costs no other.

Models are ordered by the first ruler, nearest to parity first, and every rank is a range: models
whose intervals overlap are not told apart. What it cost stands in a file of its own, because it
differs from run to run, and the results do not.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import mark_of
from levelhead.core.canonical_json import canonical
from levelhead.core.errors import LevelheadError
from levelhead.core.files import absolute, join, located, on_disk, whole_path, write_atomic
from levelhead.core.frozen import Frozen
from levelhead.core.results import Inconclusive, Measurement, Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.core.verdicts import measure_verdict
from levelhead.engine.events import Failed
from levelhead.engine.executors.base import Computed, InProcess
from levelhead.engine.run_dir import own
from levelhead.engine.tasks import Unit
from levelhead.models.loading.load import bytes_of
from levelhead.study.config import Plan
from levelhead.study.run import run
from levelhead.study.steps.config import Source, inference_keys
from levelhead.study.steps.measurements import Cells

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.engine.executors.base import Runner

WORK = "levelhead.study.leaderboard:one_model"
MODELS, BOARD, TABLE, COSTS = "models", "leaderboard.json", "leaderboard.csv", "costs.csv"
MODEL, ALL, COST = "model", "all", "cost.json"
COLUMNS = (
    *("model", "revision", "measure", "value", "low", "high", "parity", "p", "n", "dropped"),
    *("first_rank", "last_rank", "mark", "missing", "verdict", "skill"),
)


class Cost(Record):
    """What a model took, all in all."""

    seconds: float
    """Of computing; what was computed before is counted."""
    cpu_seconds: float
    model_bytes: int
    """Of its files."""
    kept_bytes: int
    """Of what is kept of it: readings and results."""


class Entrant(Record):
    """One model, by every ruler."""

    model: str
    revision: str | None = None
    measured: dict[str, Measurement] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
    """Why there is no number, by ruler."""

    @property
    def name(self) -> str:
        """As it was given: two revisions of one model are two."""
        return f"{self.model}@{self.revision}" if self.revision else self.model


class Leaderboard(Record):
    """Models in their order, by rulers in theirs."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)]
    entrants: Annotated[tuple[Entrant, ...], Field(min_length=1)]

    def ranks(self, measure: str) -> dict[str, tuple[int, int]]:
        """First and last rank that a model may have, by name: nearest to parity is first.

        None at all where values may not be compared, or where the ruler has no parity. A model of
        which the ruler is inconclusive has none: one that lacks the skill would be the first.
        """
        found = {one.name: own for one in self.entrants if (own := one.measured.get(measure))}
        if len({own.comparable for own in found.values()}) != 1:
            return {}
        far = {
            name: _distances(own)
            for name, own in found.items()
            if own.parity is not None and _is_ranked(own)
        }
        return {
            name: (
                1 + sum(other[1] < own[0] for other in far.values()),
                len(far) - sum(other[0] > own[1] for other in far.values()),
            )
            for name, own in far.items()
        }


def leaderboard(
    models: Sequence[str],
    measures: Sequence[str],
    folder: str | Path,
    *,
    runner: Runner | None = None,
    source: Mapping[str, object] | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
    on_model: Callable[[str, int, int], None] = lambda name, done, of: None,
) -> tuple[Leaderboard, dict[str, Cost]]:
    """Measure many models; write leaderboard.json, leaderboard.csv and costs.csv.

    Args:
        models: Hub ids, folders or .gguf files; `id@revision` names a revision.
        measures: as the command line names them.
        folder: a study of every model is kept here, to resume from.
        runner: who computes, a model at a time; by default this process.
        source: how models are loaded: dtype, batch_size.
        inference: seed, resamples and permutations; the level is a study's.
        context: threads and cancellation; its store is where readings are kept, a folder a model,
            if not in the folder: a path or URL that all workers see.
        on_model: is told the model that has ended, how many have, and of how many.
    """
    if len(set(models)) < len(models) or not models or not measures:
        raise LevelheadError(
            f"{len(models)} models, {len(set(models))} different ones, by {len(measures)} rulers",
            mend="name each model once, and at least one ruler",
        )
    place = on_disk(folder)
    own(place, (MODELS, BOARD, TABLE, COSTS))
    (place / MODELS).mkdir(exist_ok=True)
    units = {
        name: _unit(name, measures, place, source or {}, inference, context) for name in models
    }
    names = {unit.key: name for name, unit in units.items()}
    found: dict[str, Entrant] = {}
    costs: dict[str, Cost] = {}
    for outcome in (runner or InProcess()).run(list(units.values()), cancel=context.cancel):
        name = names[outcome.key]
        if isinstance(outcome, Computed):
            told = json.loads(outcome.payload)
            found[name], costs[name] = Entrant.from_json(told["entrant"]), Cost(**told["cost"])
        elif isinstance(outcome, Failed):
            model, revision = _parted(name)
            why = dict.fromkeys(measures, outcome.why)
            found[name] = Entrant(model=model, revision=revision, missing=why)
        else:
            continue
        on_model(name, len(found), len(models))
    board = ordered(Leaderboard(measures=tuple(measures), entrants=tuple(found[n] for n in models)))
    write_atomic(str(place / BOARD), board.to_json().encode() + b"\n")
    write_atomic(str(place / TABLE), to_csv(board).encode())
    write_atomic(str(place / COSTS), _costs(costs).encode())
    return board, costs


def one_model(spec: Mapping[str, object]) -> bytes:
    """A model's study, in whatever process."""
    plan, place = Plan.from_json(str(spec["plan"])), Path(str(spec["folder"]))
    began = time.monotonic(), time.process_time()
    store = None if spec["store"] is None else str(spec["store"])
    results = run(plan, place, context=RunContext(store=store), keep_going=True)
    source = plan.models[MODEL]
    model, revision = _parted(str(spec["name"]))
    measured, missing = {}, {}
    for name, measure in plan.measures.items():
        result = results[f"cell.{ALL}.{MODEL}.{name}"]
        if isinstance(result, Measurement):
            measured[measure] = result
        elif isinstance(result, Inconclusive):
            missing[measure] = result.what
    entrant = Entrant(model=model, revision=revision, measured=measured, missing=missing)
    spent = time.monotonic() - began[0], time.process_time() - began[1]
    cost = _cost(place, store, source, *spent)
    return canonical({"entrant": entrant.to_json(), "cost": cost.model_dump()})


def to_csv(board: Leaderboard) -> str:
    """A row for every model and ruler."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for measure in board.measures:
        ranks = board.ranks(measure)
        for one in board.entrants:
            begin = [one.model, one.revision or "", measure]
            own = one.measured.get(measure)
            if own is None:
                missing = one.missing.get(measure, "")
                writer.writerow([*begin, *[""] * 10, missing, "not measured", ""])
                continue
            p = "" if own.p is None else own.p.value
            parity = "" if own.parity is None else own.parity
            numbers = [own.value, own.interval.low, own.interval.high, parity, p, own.n]
            rank = ranks.get(one.name, ("", ""))
            said = [str(measure_verdict(own)), "" if own.skill is None else str(own.skill)]
            writer.writerow([*begin, *numbers, len(own.dropped), *rank, mark_of(own), "", *said])
    return file.getvalue()


def read_models(file: str | os.PathLike[str]) -> list[str]:
    """The models that a file names: one a line, after # a remark."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(
            f"cannot read {file}: {error}", mend="give a UTF-8 file with a model a line"
        ) from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _unit(
    name: str,
    measures: Sequence[str],
    place: Path,
    source: Mapping[str, object],
    inference: Inference,
    context: RunContext,
) -> Unit:
    path, revision = _parted(name)
    keys = [f"m{number}" for number in range(len(measures))]
    plan = Plan.model_validate(
        {
            "format": "levelhead-study-1",
            "name": "one-of-many",
            "threads": context.threads,
            **inference_keys(inference),
            "models": {MODEL: {"path": whole_path(path), "revision": revision, **source}},
            "measures": dict(zip(keys, measures, strict=True)),
            "cells": {ALL: Cells(models=(MODEL,), measures=tuple(keys))},
        }
    )
    plan.check()
    own = place.resolve() / MODELS / _slug(name)
    store = context.store
    readings = None if store is None else join(absolute(store), own.name)
    told = {"name": name, "plan": plan.to_json(), "folder": str(own), "store": readings}
    return Unit(WORK, Frozen(told), threads=context.threads)


def _parted(name: str) -> tuple[str, str | None]:
    """A model and its revision; a folder may have an @ in its name."""
    path, _, revision = name.partition("@")
    return (name, None) if not revision or Path(name).exists() else (path, revision)


def _slug(name: str) -> str:
    """A name for a folder: people know it again, and no two models share one."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-60:]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _cost(
    place: Path, store: str | None, source: Source, seconds: float, cpu_seconds: float
) -> Cost:
    """What was spent now and before; a model that could not be had takes no room."""
    try:
        size = bytes_of(source.path, source.revision)
    except LevelheadError:
        size = 0
    path = place / COST
    before = Cost.from_json(path.read_bytes()) if path.exists() else None
    kept = sum(one.stat().st_size for one in place.rglob("*") if one.is_file() and one != path)
    if store is not None:
        fs, elsewhere = located(store)
        kept += fs.du(elsewhere) if fs.exists(elsewhere) else 0
    cost = Cost(
        seconds=seconds + (before.seconds if before else 0),
        cpu_seconds=cpu_seconds + (before.cpu_seconds if before else 0),
        model_bytes=size,
        kept_bytes=kept,
    )
    write_atomic(str(path), cost.to_json().encode())
    return cost


def _costs(costs: Mapping[str, Cost]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["model", *Cost.model_fields])
    for name, cost in sorted(costs.items()):
        writer.writerow([name, *cost.model_dump().values()])
    return file.getvalue()


def _distances(own: Measurement) -> tuple[float, float]:
    """How near to parity and how far from it a value may be."""
    _, low, high = own.effect or (0.0, own.interval.low, own.interval.high)
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return nearest, max(abs(low), abs(high))


def _is_ranked(own: Measurement) -> bool:
    """Whether the ruler can say anything of the model."""
    lacks_skill = own.skill is not None and not own.skill.is_shown
    return not lacks_skill and measure_verdict(own).status != "inconclusive"


def ordered(board: Leaderboard) -> Leaderboard:
    """By the distance of the first ruler's value from parity; without one, at the end.

    Before those without a value, models of which the ruler is inconclusive.
    """
    measure = board.measures[0]
    if not board.ranks(measure):
        return board

    def far(one: Entrant) -> tuple[bool, bool, float]:
        own = one.measured.get(measure)
        if own is None:
            return True, True, 0.0
        return False, not _is_ranked(own), abs((own.effect or (own.value,))[0])

    return board.model_copy(update={"entrants": tuple(sorted(board.entrants, key=far))})
