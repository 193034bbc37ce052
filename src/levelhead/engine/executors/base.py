"""Interfaces of executors, which compute tasks and do not access stores.

An executor receives tasks and yields their outcomes in the order in which they end. Only the job
writes results, in one process and atomically, so a worker that is killed leaves nothing unfinished
(decision 0002).
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.dependencies import DependencyQueue
from levelhead.engine.events import TaskFailed, TaskRetried

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.dependencies import Dependencies
    from levelhead.engine.tasks import Task


class RunCancelledError(LevelheadError):
    """The run was stopped on request; stored results remain."""

    def __init__(self) -> None:
        super().__init__(
            "the run was cancelled", hint="run the same command again to continue the run"
        )


@final
@dataclass(frozen=True)
class TaskResult:
    """Result of a task."""

    key: str
    payload: bytes


Outcome = TaskResult | TaskRetried | TaskFailed
NO_DEPENDENCIES: Dependencies = MappingProxyType({})
"""No task depends on another."""


class Executor(Protocol):
    """Computes tasks: in this process, in local processes or on a cluster."""

    def run(self, tasks: Sequence[Task], *, cancel: CancelSignal) -> Iterator[Outcome]:
        """Yield a result or failure of each task; raise `RunCancelledError` soon after `cancel`."""
        ...


class DependencyExecutor(Protocol):
    """Computes tasks that may depend on each other."""

    def run(
        self,
        tasks: Sequence[Task],
        *,
        cancel: CancelSignal,
        dependencies: Dependencies = NO_DEPENDENCIES,
    ) -> Iterator[Outcome]:
        """Like `Executor.run`, but a task starts only after the results it needs were yielded.

        If one of these tasks failed, the dependent task fails without being started.
        """
        ...


@final
@dataclass(frozen=True)
class InProcess:
    """Computes one task after the other in this process: no start-up time, easy to debug."""

    def run(
        self,
        tasks: Sequence[Task],
        *,
        cancel: CancelSignal,
        dependencies: Dependencies = NO_DEPENDENCIES,
    ) -> Iterator[Outcome]:
        """Compute the tasks in order; those with open dependencies come later."""
        queue = DependencyQueue(tasks, dependencies)
        while queue:
            if cancel.is_set():
                raise RunCancelledError
            task = queue.take()
            if task is None:
                raise queue.deadlock_error()
            # Cancellation is checked between tasks: a task in this process cannot be interrupted.
            outcome = run_task(task)
            yield outcome
            yield from queue.record_end(task.key, failed=isinstance(outcome, TaskFailed))


def run_task(task: Task) -> TaskResult | TaskFailed:
    """Compute a task in this process; every exception becomes a `TaskFailed` with its text."""
    try:
        return TaskResult(task.key, task.compute())
    except LevelheadError as error:
        # levelhead's errors are for users and need no traceback.
        return TaskFailed(task.key, str(error))
    # One failure must not stop the other tasks: the job raises an error at its end.
    # SystemExit too, because a library may call sys.exit. KeyboardInterrupt ends the run.
    except (Exception, SystemExit) as error:
        return TaskFailed(task.key, "".join(traceback.format_exception(error)).rstrip())
