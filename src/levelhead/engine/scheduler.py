"""Jobs: tasks, a folder that stores their results, and an executor that computes missing ones.

In addition to results, a folder contains a record of every job that worked in it (`jobs/`) and of
every job that finished there (`finished/`).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import RunContext
from levelhead.engine.events import RunFinished, TaskFailed, TasksPlanned, TaskStored
from levelhead.engine.executors.base import Executor, InProcess, RunCancelledError, TaskResult
from levelhead.engine.locks import exclusive_lock
from levelhead.engine.store import DamagedFileError, NotStoredError, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.files import Url
    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.tasks import Task

JOBS, FINISHED = "jobs", "finished"


class OtherJobError(LevelheadError):
    """The folder holds another job's results."""


class TasksFailedError(LevelheadError):
    """Some tasks of a job gave no result; no substitute is stored."""

    def __init__(self, failures: Sequence[TaskFailed], n_tasks: int) -> None:
        reasons = Counter(failure.reason for failure in failures).most_common()
        reasons_text = "\n".join(f"- {times} tasks: {reason}" for reason, times in reasons[:3])
        more_text = f"\n- and {len(reasons) - 3} other reasons" if len(reasons) > 3 else ""
        super().__init__(
            f"{len(failures)} of {n_tasks} tasks failed:\n{reasons_text}{more_text}",
            hint="fix the cause and run again: stored results are used again",
        )
        self.failures = tuple(failures)


@final
@dataclass(frozen=True)
class Job:
    """A named list of tasks."""

    name: str
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise NotMeasurableError(f"the job {self.name!r} has no tasks", hint="check its inputs")

    @cached_property
    def key(self) -> str:
        """Content hash of the job: of its tasks, not of its name."""
        return content_hash([task.key for task in self.tasks])

    @property
    def description(self) -> bytes:
        """Record of the job that is stored in its folder."""
        return to_canonical_json(
            {"name": self.name, "units": len({task.key for task in self.tasks})}
        )

    def results(self, store: Store) -> Iterator[bytes]:
        """Yield the results in the order of the tasks, with verified checksums."""
        for task in self.tasks:
            yield store.get(task.key)


def run_job(
    job: Job,
    folder: Url,
    *,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
    extend: bool = False,
) -> Store:
    """Compute and store all missing results of a job in a folder.

    If the process is killed and the call repeated, the job continues where it stopped and ends with
    the same bytes.

    Args:
        job: tasks to compute.
        folder: a new or empty folder, or one in which this job has worked.
        executor: computes the tasks; by default this process.
        context: `progress` receives the plan, every stored task with the time left, retries and
            failures; `cancel` stops the job. The folder is the store.
        extend: allow the job to use and extend a folder in which other jobs have worked.
    """
    # Before the lock: its file must not appear in a folder that is no store.
    store = open_store(folder)
    with exclusive_lock(store.url):
        # Inside the lock: two jobs must not register in one folder at the same time.
        _register_job(job, store, extend=extend)
        run_missing(job.tasks, store, executor=executor, context=context)
        # Reached only if no task failed, so this record means a complete job.
        store.put(job.key, job.description, namespace=FINISHED)
    return store


def run_missing(
    tasks: Sequence[Task],
    store: Store,
    *,
    executor: Executor | None = None,
    context: RunContext = RunContext(),
) -> None:
    """Compute and store the tasks whose results are missing. Several callers may share a store.

    Args:
        tasks: tasks whose results are needed.
        store: an open store for the results.
        executor: computes the tasks; by default this process.
        context: `progress` and `cancel` of the run.
    """
    began = time.monotonic()
    # Equal tasks have equal keys, so a task that is listed twice is computed once.
    tasks_by_key = {task.key: task for task in tasks}
    pending, damaged = _find_pending(tasks_by_key, store, context.cancel)
    n_missing, first_stored = len(pending), 0.0
    # A run that was killed while it wrote left a part of a file.
    store.remove_abandoned_files()
    context.progress(TasksPlanned(len(tasks_by_key), len(tasks_by_key) - n_missing, damaged))
    failures: list[TaskFailed] = []
    for outcome in (executor or InProcess()).run(list(pending.values()), cancel=context.cancel):
        if isinstance(outcome, TaskResult | TaskFailed) and not pending.pop(outcome.key, None):
            raise _executor_fault(f"a second result, or one that was not requested: {outcome.key}")
        if isinstance(outcome, TaskResult):
            # Only this process writes: a worker may outlive it (decision 0002).
            store.put(outcome.key, outcome.payload)
            # The pace is measured from the first result: the time before it is mostly start-up.
            first_stored = first_stored or time.monotonic()
            n_computed = n_missing - len(pending) - len(failures)
            pace = (time.monotonic() - first_stored) / (n_computed - 1) if n_computed > 1 else None
            seconds_left = None if pace is None else pace * len(pending)
            context.progress(
                TaskStored(
                    outcome.key, len(tasks_by_key) - len(pending), len(tasks_by_key), seconds_left
                )
            )
            continue
        if isinstance(outcome, TaskFailed):
            failures.append(outcome)
        context.progress(outcome)
    # An executor that loses a task must not look like a run that finished.
    if pending:
        raise _executor_fault(f"no result for {len(pending)} of {n_missing} tasks")
    seconds = time.monotonic() - began
    context.progress(
        RunFinished(len(tasks_by_key), n_missing - len(failures), len(failures), seconds)
    )
    if failures:
        # Sorted, because the order in which tasks fail differs between runs.
        raise TasksFailedError(sorted(failures, key=lambda failure: failure.key), len(tasks_by_key))


def _find_pending(
    tasks_by_key: dict[str, Task], store: Store, cancel: CancelSignal
) -> tuple[dict[str, Task], tuple[str, ...]]:
    """Return the tasks to compute and the damaged files among their results."""
    pending: dict[str, Task] = {}
    damaged: list[str] = []
    for key, task in tasks_by_key.items():
        # Checked here too, because verifying a large store reads every file in full.
        if cancel.is_set():
            raise RunCancelledError
        try:
            if store.has(key):
                continue
        # A damaged result costs a computation, not the run: it is reported and replaced.
        except DamagedFileError:
            damaged.append(store.path(key))
        pending[key] = task
    return pending, tuple(damaged)


def _register_job(job: Job, store: Store, *, extend: bool) -> None:
    """Store the record of the job in the folder; raise an error for a folder of another job."""
    other_keys = [key for key in store.keys(namespace=JOBS) if key != job.key]
    if other_keys and not extend and job.key not in store.keys(namespace=JOBS):
        name = "a damaged record"
        with suppress(DamagedFileError):
            name = store.get(other_keys[0], namespace=JOBS).decode()
        raise OtherJobError(
            f"{store.url} contains another job: {name}",
            hint=f"use another folder for {job.name!r}, or extend=True to share equal results",
        )
    # Reading verifies the record, so one that a power cut damaged is written again.
    try:
        store.get(job.key, namespace=JOBS)
    except (NotStoredError, DamagedFileError):
        store.put(job.key, job.description, namespace=JOBS)


def _executor_fault(problem: str) -> LevelheadError:
    return LevelheadError(
        f"the executor gave {problem}",
        hint="report this: an executor must report every task exactly once",
    )
