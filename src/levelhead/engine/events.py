"""Progress events of a job, as frozen values; the listener displays them.

Times refer only to this run and are never part of a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class TasksPlanned:
    """The plan of a run: how many tasks there are and how many are already stored."""

    n_tasks: int
    n_stored: int
    """Tasks with an intact stored result, which are not computed again."""
    damaged: tuple[str, ...]
    """Damaged files; their tasks are computed again."""


@final
@dataclass(frozen=True)
class TaskStored:
    """A task was computed and its result stored."""

    key: str
    n_done: int
    n_tasks: int
    seconds_left: float | None
    """Estimate from the pace of this run; None before there is a pace."""


@final
@dataclass(frozen=True)
class TaskRetried:
    """The process of a task died; the task is tried again."""

    key: str
    reason: str


@final
@dataclass(frozen=True)
class TaskFailed:
    """A task failed; the others continue, and the job ends with an error."""

    key: str
    reason: str


@final
@dataclass(frozen=True)
class RunFinished:
    """The run has ended: every task has a result or failed."""

    n_tasks: int
    n_computed: int
    n_failed: int
    seconds: float


Event = TasksPlanned | TaskStored | TaskRetried | TaskFailed | RunFinished
