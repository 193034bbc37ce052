"""A queue of tasks, some of which depend on the results of others."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.events import TaskFailed, TaskRetried

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from levelhead.engine.tasks import Task

    Dependencies = Mapping[str, Collection[str]]
    """Keys of the tasks that each task needs; keys outside the queue count as computed."""


@final
class DependencyQueue:
    """The tasks that an executor has yet to start, with their dependencies."""

    def __init__(self, tasks: Sequence[Task], dependencies: Dependencies) -> None:
        self._queue = deque(tasks)
        keys = {task.key for task in tasks}
        # Dependencies outside this run are already stored, so they never block a task.
        self._unmet = {key: keys.intersection(dependencies.get(key, ())) for key in keys}
        # Deaths are counted per task: one task that crashes its process must not stop the others.
        self._deaths: Counter[str] = Counter()
        self._dependents: dict[str, list[str]] = {}
        for key, needs in self._unmet.items():
            for need in needs:
                self._dependents.setdefault(need, []).append(key)

    def __len__(self) -> int:
        """Return the number of waiting tasks."""
        return len(self._queue)

    def take(self) -> Task | None:
        """Remove and return the first task without open dependencies; None if there is none."""
        # A linear scan keeps the order of the tasks; independent tasks are found at once.
        for index, task in enumerate(self._queue):
            if not self._unmet[task.key]:
                del self._queue[index]
                return task
        return None

    def requeue(self, task: Task, *, first: bool = False) -> None:
        """Put a task back whose worker died; in front if the worker had not started it."""
        (self._queue.appendleft if first else self._queue.append)(task)

    def record_death(
        self, task: Task, reason: str, *, attempts: int
    ) -> Iterator[TaskRetried | TaskFailed]:
        """Record that a worker died during a task; retry the task, or give up after `attempts`."""
        self._deaths[task.key] += 1
        if self._deaths[task.key] < attempts:
            self.requeue(task)
            yield TaskRetried(task.key, reason)
            return
        yield TaskFailed(task.key, f"{reason}, {attempts} times")
        yield from self.record_end(task.key, failed=True)

    def record_end(self, key: str, *, failed: bool) -> Iterator[TaskFailed]:
        """Record the end of a task; if it failed, all tasks that need it fail too."""
        for dependent in self._dependents.pop(key, ()):
            self._unmet[dependent].discard(key)
            blocked = failed and [task for task in self._queue if task.key == dependent]
            if blocked:
                self._queue.remove(blocked[0])
                yield TaskFailed(dependent, "a task that it needs failed")
                # Failures propagate, so that no task waits for a result that never comes.
                yield from self.record_end(dependent, failed=True)

    def deadlock_error(self) -> LevelheadError:
        """Return the error for a state in which no task can start and none is running."""
        return LevelheadError(
            f"{len(self._queue)} tasks wait for each other",
            hint="report this: a task must not depend on itself, directly or indirectly",
        )
