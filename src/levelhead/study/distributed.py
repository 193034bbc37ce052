"""Run the steps of a study over processes or machines; a step runs after those that it needs.

A worker holds the study's models in memory between steps. Responses and results go into the study's
store, which all workers must access: on several machines a shared disk or an object store. A step
reads the results of earlier steps there. It returns its result to the process that runs the study,
and only that process writes `results/`. (Models that a study trains are in its folder, which then
must be on a shared disk.)
"""

from __future__ import annotations

import math
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.files import absolute_path_str, absolute_url
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import StepFailure
from levelhead.core.run_context import RunContext
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import RunCancelledError, TaskResult
from levelhead.engine.tasks import Task
from levelhead.study.config import StudyConfig
from levelhead.study.results_dir import RESULTS_DIR, parse_result
from levelhead.study.session import StudySession
from levelhead.study.steps.kinds import make_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.results import Record
    from levelhead.engine.executors.base import DependencyExecutor
    from levelhead.study.session import StudyStep
    from levelhead.study.steps.config import StudyConfigBase

TASK_FUNCTION = "levelhead.study.distributed:run_step_in_worker"
OUT_OF_TIME = "the time ran out before this step"
RESUME_HINT = "run the same command again: it resumes where it stopped"


class Deadline(NamedTuple):
    """Times of `time.monotonic` after which no step begins; the first step always may."""

    at: float
    core_steps: frozenset[str] = frozenset()
    """Steps that have more time than the others."""
    core_at: float = math.inf
    """Time after which none of these begins."""

    def of(self, step: str) -> float:
        """Return the time after which a step does not begin."""
        return self.core_at if step in self.core_steps else self.at


def run_steps_distributed(
    session: StudySession,
    steps: Sequence[StudyStep],
    executor: DependencyExecutor,
    *,
    keep_going: bool,
    deadline: Deadline | None,
) -> Iterator[tuple[str, Record]]:
    """Yield the results of all steps by name, in the order in which they end."""
    common = {
        "plan": _with_absolute_paths(session.config).to_json(),
        "folder": str(session.folder.resolve()),
        "store": absolute_url(session.store_url),
        "keep_going": keep_going,
    }
    tasks = {
        step.name: Task(
            TASK_FUNCTION,
            FrozenDict(
                common
                | {
                    "step": step.name,
                    "until": _wall_clock_limit(deadline, step.name) if number else None,
                }
            ),
            threads=session.config.threads,
        )
        for number, step in enumerate(steps)
    }
    names = {task.key: name for name, task in tasks.items()}
    after = {tasks[step.name].key: [tasks[name].key for name in step.after] for step in steps}
    for outcome in executor.run(
        list(tasks.values()), cancel=session.context.cancel, dependencies=after
    ):
        name = names[outcome.key]
        if isinstance(outcome, TaskResult):
            yield name, parse_result(name, outcome.payload, name)
        elif isinstance(outcome, TaskFailed) and keep_going:
            yield (
                name,
                StepFailure(problem=outcome.reason, hint="give it more memory, or run it alone"),
            )
        elif isinstance(outcome, TaskFailed):
            raise LevelheadError(
                f"the step {name} failed: {outcome.reason}",
                hint="correct the cause and run again: stored results are retained",
            )


def _wall_clock_limit(deadline: Deadline | None, step: str) -> float | None:
    """Return the time after which a step does not begin, on clocks that machines have in common."""
    limit = math.inf if deadline is None else deadline.of(step)
    # Monotonic clocks differ between machines, and an infinite time has no JSON form.
    return None if limit == math.inf else time.time() + limit - time.monotonic()


def _with_absolute_paths(config: StudyConfigBase) -> StudyConfigBase:
    """Make the study's paths absolute: a worker could take a relative path for a Hub id."""
    models = {
        name: source.model_copy(
            update={
                "path": absolute_path_str(source.path),
                "edit": None if source.edit is None else absolute_path_str(source.edit),
            }
        )
        for name, source in config.models.items()
    }
    return config.model_copy(update={"models": models})


def run_step_safely(step: StudyStep, *, keep_going: bool, is_late: bool) -> Record:
    """Run a step; return its result or, if it cannot be measured, the reason.

    A step that fails must not lose the results of the others; its numbers stay empty.
    """
    try:
        if is_late:
            raise NotMeasurableError(OUT_OF_TIME, hint=RESUME_HINT)
        return step.make()
    except LevelheadError as error:
        if isinstance(error, RunCancelledError) or not (
            keep_going or isinstance(error, NotMeasurableError)
        ):
            raise
        return StepFailure(problem=error.problem, hint=error.hint)
    except Exception as error:
        if not keep_going:
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        # Only the file's name: results are sent to other people.
        location = f"{Path(last.filename).name}, line {last.lineno}"
        return StepFailure(problem=problem, hint=f"report this: it was raised in {location}")


def run_step_in_worker(spec: Mapping[str, object]) -> bytes:
    """Run a step in a worker."""
    wall_deadline = spec["until"]
    session, steps = _open_session(str(spec["plan"]), str(spec["folder"]), str(spec["store"]))
    is_late = isinstance(wall_deadline, float) and time.time() > wall_deadline
    step, keep_going = steps[str(spec["step"])], bool(spec["keep_going"])
    if not is_late:
        _ensure_results(step, session, steps, keep_going=keep_going)
    return run_step_safely(step, keep_going=keep_going, is_late=is_late).to_json().encode()


def _ensure_results(
    step: StudyStep, session: StudySession, steps: Mapping[str, StudyStep], *, keep_going: bool
) -> None:
    """Load the results that a step needs, or compute them from stored responses."""
    for name in step.after:
        path = session.folder / RESULTS_DIR / f"{name}.json"
        if name in session.results:
            continue
        if path.exists():  # the process that runs the study has written it
            session.results[name] = parse_result(name, path.read_bytes(), str(path))
            continue
        _ensure_results(steps[name], session, steps, keep_going=keep_going)
        session.results[name] = run_step_safely(steps[name], keep_going=keep_going, is_late=False)


# Holds the loaded models; a worker serves one study at a time.
@lru_cache(maxsize=1)
def _open_session(
    config: str, folder: str, store: str
) -> tuple[StudySession, dict[str, StudyStep]]:
    session = StudySession(StudyConfig.from_json(config), Path(folder), RunContext(store=store))
    return session, {step.name: step for step in make_steps(session)}
