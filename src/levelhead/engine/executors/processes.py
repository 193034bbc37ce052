"""The local executor: spawned processes with one pipe each.

It does not use concurrent.futures, whose pool breaks completely when one process dies; libraries
that levelhead uses abort their process when memory runs out. With one pipe per process, a death
affects one task, which is retried in a new process and given up after a few deaths, while the other
tasks continue (decision 0002).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, Literal, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.dependencies import DependencyQueue
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import (
    NO_DEPENDENCIES,
    Outcome,
    RunCancelledError,
    TaskResult,
    run_task,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.context import SpawnProcess
    from multiprocessing.process import BaseProcess

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.dependencies import Dependencies
    from levelhead.engine.tasks import Task

READY: Final = "ready"
PR_SET_PDEATHSIG: Final = 1
"""Option of Linux's prctl: the signal that a process gets when its parent's thread ends."""
# fork would copy locks of torch's and BLAS's threads in an undefined state.
_SPAWN = multiprocessing.get_context("spawn")


@final
@dataclass(frozen=True)
class LocalProcesses:
    """Computes tasks in spawned processes of this machine.

    Scripts that use it need the usual `if __name__ == "__main__":`, because a spawned process
    imports the script again. Tasks must not start processes.
    """

    workers: int
    attempts: int = 3
    """Number of processes that may die during one task before the task fails."""

    def __post_init__(self) -> None:
        if min(self.workers, self.attempts) < 1:
            raise LevelheadError(
                f"{self} cannot compute anything",
                hint="give workers and attempts of at least 1; InProcess() needs no worker",
            )

    def run(
        self,
        tasks: Sequence[Task],
        *,
        cancel: CancelSignal,
        dependencies: Dependencies = NO_DEPENDENCIES,
    ) -> Iterator[Outcome]:
        """Submit tasks to free workers and yield outcomes as they arrive.

        Args:
            tasks: tasks to compute.
            cancel: signal that stops the run.
            dependencies: keys of the tasks that each task needs.
        """
        queue = DependencyQueue(tasks, dependencies)
        failed_starts = 0
        workers: list[_Worker] = []
        try:
            while queue or any(worker.task for worker in workers):
                if cancel.is_set():
                    raise RunCancelledError
                self._hand_out(queue, workers)
                for worker in _readable_workers(workers):
                    message = worker.receive()
                    # One process that starts shows that the script can be imported by a worker.
                    if message == READY:
                        failed_starts = 0
                    elif message is not None:
                        yield message
                        yield from queue.record_end(
                            message.key, failed=isinstance(message, TaskFailed)
                        )
                    else:
                        workers.remove(worker)
                        task, exit_text = worker.task, worker.end()
                        # Such a process died before it read its task, so the death is not the
                        # task's.
                        if not worker.ready:
                            failed_starts = self._check_failed_starts(failed_starts + 1, exit_text)
                            if task:
                                queue.requeue(task, first=True)
                        elif task:
                            reason = f"the process died ({exit_text})"
                            yield from queue.record_death(task, reason, attempts=self.attempts)
        finally:
            # Also reached by Ctrl-C and when the caller stops iterating: no worker may outlive the
            # run.
            for worker in workers:
                worker.end()

    def _hand_out(self, queue: DependencyQueue, workers: list[_Worker]) -> None:
        """Submit tasks to free workers while both are available."""
        while queue and _has_capacity(workers, self.workers):
            task = queue.take()
            if task is None and not any(worker.task for worker in workers):
                raise queue.deadlock_error()
            if task is None:
                return
            _idle_worker(workers).submit(task)

    def _check_failed_starts(self, times: int, exit_text: str) -> int:
        if times >= self.attempts:
            raise LevelheadError(
                f"the process died ({exit_text}) before it could start, {times} times in a row",
                hint="run it from a script file whose main part is under "
                'if __name__ == "__main__": (its errors are above), or use InProcess()',
            )
        return times


@final
class _Worker:
    """A spawned process, the driver's end of its pipe, and its current task."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self.ready = False
        self.pipe, child_pipe = _SPAWN.Pipe()
        # daemon: multiprocessing ends it when the driver exits in the normal way.
        self.process: SpawnProcess = _SPAWN.Process(target=_serve, args=(child_pipe,), daemon=True)
        self.process.start()
        # Close the copy of the child's end, so that its death ends the pipe.
        child_pipe.close()

    def submit(self, task: Task) -> None:
        self.task = task
        # If the process has just died, `receive` reports it.
        with suppress(OSError):
            self.pipe.send(task)

    def receive(self) -> TaskResult | TaskFailed | Literal["ready"] | None:
        """Return "ready" or the outcome of the task; None if the process died."""
        try:
            # The pipe of a dead worker may be open in a child process of it, where recv would
            # block.
            message = self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None
        if message == READY:
            self.ready = True
        elif message is not None:
            self.task = None
        return message

    def end(self) -> str:
        """End the process if it is still running, and return how it ended."""
        self.pipe.close()
        # An idle worker exits when the pipe closes; a busy one is killed after this time.
        self.process.join(timeout=0.05)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        # Real-time signals have no name in `signal.Signals`.
        with suppress(ValueError):
            return signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"signal {-code}"


def _has_capacity(workers: list[_Worker], max_workers: int) -> bool:
    """Return whether fewer than `max_workers` workers are busy."""
    return sum(worker.task is not None for worker in workers) < max_workers


def _idle_worker(workers: list[_Worker]) -> _Worker:
    """Return a running worker without a task, or a new one."""
    for worker in workers:
        if worker.task is None and worker.process.is_alive():
            return worker
    workers.append(_Worker())
    return workers[-1]


def _readable_workers(workers: list[_Worker]) -> list[_Worker]:
    """Wait up to 0.1 s and return the workers that sent a message or died."""
    readable = wait([worker.pipe for worker in workers], timeout=0.1)
    # A child process of a dead worker may keep its pipe and sentinel open, so is_alive is checked.
    return [w for w in workers if w.pipe in readable or not w.process.is_alive()]


def _serve(pipe: Connection) -> None:
    """Compute received tasks in the worker until the pipe closes."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        _watch_driver(driver)
        _request_death_signal(driver)
    # Ctrl-C reaches the driver, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The driver closed the pipe or has ended.
    with suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            pipe.send(run_task(pipe.recv()))


def _watch_driver(driver: BaseProcess) -> None:
    """End this process soon after its driver, so that a killed driver leaves no busy workers.

    The sentinel is a pipe (a handle on Windows) whose other end the driver alone holds open.
    """

    def wait_for_end() -> None:
        wait([driver.sentinel])
        # Not sys.exit, which would end only this thread.
        os._exit(1)

    # A thread, because the main thread may be inside a task for hours.
    threading.Thread(target=wait_for_end, daemon=True).start()


def _request_death_signal(driver: BaseProcess) -> None:
    """Let Linux kill this process with its driver.

    The thread of `_watch_driver` cannot run while a library computes without releasing the
    interpreter's lock; the kernel's signal comes anyway.
    """
    # A process that a fork server started is no child of the driver.
    if sys.platform == "linux" and os.getppid() == driver.pid:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A driver that ended before the call sends no signal.
        if os.getppid() != driver.pid:
            os._exit(1)
