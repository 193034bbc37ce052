"""Many models by the same measures: one study per model, so that a failure affects no other model.

Costs are in a separate file, because they differ from run to run and the results do not.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import (
    absolute_path_str,
    absolute_url,
    join_url,
    local_path,
    open_filesystem,
    write_atomic,
)
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Measurement, Record, StepFailure
from levelhead.core.run_context import Inference, RunContext
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import InProcess, TaskResult
from levelhead.engine.run_dir import mark_owned
from levelhead.engine.tasks import Task
from levelhead.models.loading.load import compute_model_size
from levelhead.models.serving.addresses import check_key_hosts
from levelhead.study.config import StudyConfig
from levelhead.study.cost import CostEstimate, estimate_study_cost
from levelhead.study.leaderboard_ranks import (
    Leaderboard,
    ModelEntry,
    leaderboard_to_csv,
    rows_to_csv,
    sort_entries,
)
from levelhead.study.run import run_study
from levelhead.study.steps.config import ModelSource, inference_keys
from levelhead.study.steps.measurements import MeasureStep

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.engine.executors.base import Executor

TASK_FUNCTION = "levelhead.study.leaderboard:run_model_study"
MODELS, BOARD, TABLE, COSTS = "models", "leaderboard.json", "leaderboard.csv", "costs.csv"
MODEL, ALL, COST = "model", "all", "cost.json"


class ModelCost(Record):
    """The total cost of a model."""

    seconds: float
    """Seconds of computing, including earlier runs."""
    cpu_seconds: float
    model_bytes: int
    """Bytes of the model's files."""
    stored_bytes: int
    """Bytes of the model's stored responses and results."""


def run_leaderboard(
    models: Sequence[str],
    measures: Sequence[str],
    folder: str | Path,
    *,
    executor: Executor | None = None,
    load_options: Mapping[str, object] | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
    on_model: Callable[[str, int, int], None] = lambda name, done, of: None,
) -> tuple[Leaderboard, dict[str, ModelCost]]:
    """Measure many models; write leaderboard.json, leaderboard.csv and costs.csv.

    Args:
        models: Hub ids, folders or .gguf files; `id@revision` names a revision.
        measures: measures as on the command line.
        folder: folder with one study per model, from which a run resumes.
        executor: executor that runs one model at a time; by default this process.
        load_options: options for loading models: dtype, batch_size.
        inference: seed, resamples and permutations; the level is that of studies.
        context: threads and cancellation; its store, if any, holds the responses instead of the
            folder, with one subfolder per model: a path or URL that all workers can access.
        on_model: callback with the finished model, the number of finished models and their total.
    """
    if len(set(models)) < len(models) or not models or not measures:
        raise LevelheadError(
            f"{len(models)} models, {len(set(models))} different ones, by {len(measures)} measures",
            hint="name each model once, and at least one measure",
        )
    out_dir = local_path(folder)
    mark_owned(out_dir, (MODELS, BOARD, TABLE, COSTS))
    (out_dir / MODELS).mkdir(exist_ok=True)
    tasks = {
        name: _make_task(name, measures, out_dir, load_options or {}, inference, context)
        for name in models
    }
    names = {task.key: name for name, task in tasks.items()}
    entries: dict[str, ModelEntry] = {}
    costs: dict[str, ModelCost] = {}
    for outcome in (executor or InProcess()).run(list(tasks.values()), cancel=context.cancel):
        name = names[outcome.key]
        if isinstance(outcome, TaskResult):
            payload = json.loads(outcome.payload)
            entries[name] = ModelEntry.from_json(payload["entry"])
            costs[name] = ModelCost(**payload["cost"])
        elif isinstance(outcome, TaskFailed):
            model, revision = _split_revision(name)
            reasons = dict.fromkeys(measures, outcome.reason)
            entries[name] = ModelEntry(model=model, revision=revision, missing=reasons)
        else:
            continue
        on_model(name, len(entries), len(models))
    # Tasks end in any order; the board starts from the order of the models.
    board = sort_entries(
        Leaderboard(measures=tuple(measures), entries=tuple(entries[n] for n in models))
    )
    cost_rows = ({"model": name, **cost.model_dump()} for name, cost in sorted(costs.items()))
    write_atomic(str(out_dir / BOARD), board.to_json().encode() + b"\n")
    write_atomic(str(out_dir / TABLE), leaderboard_to_csv(board).encode())
    write_atomic(
        str(out_dir / COSTS), rows_to_csv(["model", *ModelCost.model_fields], cost_rows).encode()
    )
    return board, costs


def run_model_study(spec: Mapping[str, object]) -> bytes:
    """Run a model's study in the current process."""
    config, out_dir = StudyConfig.from_json(str(spec["plan"])), Path(str(spec["folder"]))
    start = time.monotonic(), time.process_time()
    store = None if spec["store"] is None else str(spec["store"])
    results = run_study(config, out_dir, context=RunContext(store=store), keep_going=True)
    source = config.models[MODEL]
    model, revision = _split_revision(str(spec["name"]))
    measurements, missing = {}, {}
    for name, measure in config.measures.items():
        result = results[f"cell.{ALL}.{MODEL}.{name}"]
        if isinstance(result, Measurement):
            measurements[measure] = result
        elif isinstance(result, StepFailure):
            missing[measure] = result.problem
    entry = ModelEntry(model=model, revision=revision, measurements=measurements, missing=missing)
    elapsed = time.monotonic() - start[0], time.process_time() - start[1]
    cost = _total_cost(out_dir, store, source, *elapsed)
    return to_canonical_json({"entry": entry.to_json(), "cost": cost.model_dump()})


def estimate_leaderboard_cost(
    models: Sequence[str],
    measures: Sequence[str],
    folder: str | Path,
    *,
    load_options: Mapping[str, object],
    context: RunContext,
) -> CostEstimate:
    """Estimate the cost of measuring the models one after the other.

    Args:
        models: models, each with an optional revision.
        measures: names of measures.
        folder: folder of the leaderboard, which may hold responses.
        load_options: options for loading the models.
        context: store and threads.
    """
    total = CostEstimate()
    for name in models:
        task = _make_task(name, measures, Path(folder), load_options, Inference(), context)
        config, store = StudyConfig.from_json(str(task.spec["plan"])), task.spec["store"]
        total += estimate_study_cost(
            config,
            Path(str(task.spec["folder"])),
            context=RunContext(store=None if store is None else str(store)),
        )
    return total


def read_models(file: str | os.PathLike[str]) -> list[str]:
    """Read the models of a file: one per line; # begins a comment."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(
            f"cannot read {file}: {error}", hint="give a UTF-8 file with one model per line"
        ) from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    names = [line for line in lines if line]
    check_key_hosts("\n".join(names), str(file))
    return names


def _make_task(
    name: str,
    measures: Sequence[str],
    out_dir: Path,
    load_options: Mapping[str, object],
    inference: Inference,
    context: RunContext,
) -> Task:
    path, revision = _split_revision(name)
    keys = [f"m{number}" for number in range(len(measures))]
    config = StudyConfig.model_validate(
        {
            "format": "levelhead-study-2",
            "name": "one-of-many",
            "threads": context.threads,
            # A board compares the values of many models: texts would repeat in each.
            "record_items": False,
            **inference_keys(inference),
            "models": {
                MODEL: {"path": absolute_path_str(path), "revision": revision, **load_options}
            },
            "measures": dict(zip(keys, measures, strict=True)),
            "measurements": {ALL: MeasureStep(models=(MODEL,), measures=tuple(keys))},
        }
    )
    config.check()
    model_dir = out_dir.resolve() / MODELS / _slug(name)
    store = context.store
    # A subfolder for each model, because costs count its stored bytes.
    model_store = None if store is None else join_url(absolute_url(store), model_dir.name)
    spec = {"name": name, "plan": config.to_json(), "folder": str(model_dir), "store": model_store}
    return Task(TASK_FUNCTION, FrozenDict(spec), threads=context.threads)


def _split_revision(name: str) -> tuple[str, str | None]:
    """Split a model and its revision; the name of a folder may contain an @."""
    path, _, revision = name.partition("@")
    return (name, None) if not revision or Path(name).exists() else (path, revision)


def _slug(name: str) -> str:
    """A unique and readable folder name for a model."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-60:]
    # The hash keeps names apart that read alike, such as a/b and a-b.
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _total_cost(
    out_dir: Path, store: str | None, source: ModelSource, seconds: float, cpu_seconds: float
) -> ModelCost:
    """The cost of this and earlier runs; a model that could not be loaded has no size."""
    try:
        size = compute_model_size(source.path, source.revision)
    except LevelheadError:
        size = 0
    path = out_dir / COST
    if path.exists():
        before = ModelCost.from_json(path.read_bytes())
        seconds, cpu_seconds = seconds + before.seconds, cpu_seconds + before.cpu_seconds
    # Without the file of costs, which differs from run to run.
    stored_bytes = sum(
        file.stat().st_size for file in out_dir.rglob("*") if file.is_file() and file != path
    )
    if store is not None:
        fs, store_path = open_filesystem(store)
        stored_bytes += fs.du(store_path) if fs.exists(store_path) else 0
    cost = ModelCost(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        model_bytes=size,
        stored_bytes=stored_bytes,
    )
    write_atomic(str(path), cost.to_json().encode())
    return cost
