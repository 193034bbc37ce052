"""Locate heads on another machine: an executor computes the whole map as one task.

Several maps at once are a study (`study.distributed`); one map of one model is the work of one
actor.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal, TypedDict

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.files import absolute_path_str
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import StepFailure
from levelhead.core.run_context import Inference, RunContext
from levelhead.engine.executors.base import TaskResult
from levelhead.engine.tasks import Task
from levelhead.locate.head_map import HeadMap
from levelhead.locate.score_heads import locate
from levelhead.measures.registry import parse_measure
from levelhead.models.loading.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.engine.executors.base import Executor
    from levelhead.locate.head_map import Ablation, Component, LocateMethod, SplitBy
    from levelhead.locate.score_heads import AblateTop
    from levelhead.locate.validation.sign import SignOption
    from levelhead.models.architectures.tensor_parallel import ParallelMode


class LoadOptions(TypedDict, total=False):
    """Arguments of `load` that can be part of a task."""

    revision: str | None
    device: str | None
    dtype: str
    edit: str | None
    allow_pickle: bool
    batch_size: int
    parallel: ParallelMode | None
    recompute: bool


class LocateOptions(TypedDict, total=False):
    """Arguments of `locate` that can be part of a task."""

    method: LocateMethod
    components: Sequence[Component]
    ablation: Ablation
    ablate_top: AblateTop | None
    split: Literal["auto"] | SplitBy
    bias_direction: SignOption


TASK_FUNCTION = "levelhead.locate.distributed:run_locate_task"


def locate_distributed(
    executor: Executor,
    model: str,
    measure: str,
    *,
    load_options: LoadOptions,
    locate_options: LocateOptions,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> HeadMap:
    """Locate heads as `locate` does, in a worker that loads the model itself.

    Args:
        executor: The executor.
        model: A Hub id, or a folder or a file that the worker can read.
        measure: The measure, as on the command line.
        load_options: The other arguments of `load`.
        locate_options: The arguments of `locate`.
        inference: Seed, resamples and level.
        context: Store, which the worker must be able to read, threads and cancellation.
    """
    # Paths are made absolute: a worker may run in another folder.
    edit = load_options.get("edit")
    spec = {
        "model": absolute_path_str(model),
        "measure": measure,
        "source": {**load_options, "edit": edit and absolute_path_str(edit)},
        "how": dict(locate_options),
        "inference": asdict(inference),
        "store": None if context.store is None else os.fspath(context.store),
        "threads": context.threads,
    }
    task = Task(TASK_FUNCTION, FrozenDict(spec), threads=context.threads)
    failure_reason = "no worker took it"
    for outcome in executor.run([task], cancel=context.cancel):
        if isinstance(outcome, TaskResult):
            text = outcome.payload.decode()
            # "Not measurable" is a result of the data and stays its own error; a crash becomes
            # "failed".
            if text.startswith(_NOT_MEASURABLE_PREFIX):
                failure = StepFailure.from_json(text.removeprefix(_NOT_MEASURABLE_PREFIX))
                raise NotMeasurableError(failure.problem, hint=failure.hint)
            return HeadMap.from_json(text)
        failure_reason = outcome.reason
    raise LevelheadError(
        f"locating failed: {failure_reason}", hint="fix the cause, and run it again"
    )


_NOT_MEASURABLE_PREFIX = "not measurable: "


def run_locate_task(spec: FrozenDict) -> bytes:
    """Task of the engine: the map as JSON, or the reason why there is none."""
    settings = json.loads(to_canonical_json(spec))
    lm = load(settings["model"], **settings["source"])
    try:
        head_map = locate(
            lm,
            parse_measure(settings["measure"]),
            inference=Inference(**settings["inference"]),
            context=RunContext(store=settings["store"], threads=settings["threads"]),
            **settings["how"],
        )
    except NotMeasurableError as error:
        return (
            _NOT_MEASURABLE_PREFIX + StepFailure(problem=error.problem, hint=error.hint).to_json()
        ).encode()
    return head_map.to_json().encode()
