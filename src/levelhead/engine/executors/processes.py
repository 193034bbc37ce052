"""The local runner: spawned processes, each with a pipe of its own.

Not concurrent.futures: its pool breaks as a whole when one process dies, and libraries below us do
abort their process when memory ends. With a pipe each, a death belongs to one unit, which is tried
again in a fresh process and given up after a few deaths, while the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, Literal, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.dependencies import Waiting
from levelhead.engine.events import Failed
from levelhead.engine.executors.base import NOTHING, Cancelled, Computed, Outcome, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.context import SpawnProcess

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.dependencies import After
    from levelhead.engine.tasks import Unit

READY: Final = "ready"
_SPAWN = multiprocessing.get_context("spawn")


@final
@dataclass(frozen=True)
class LocalProcesses:
    """Units over spawned processes of this machine.

    Scripts that use it need the usual `if __name__ == "__main__":`, because a spawned process
    imports the script anew. Units may not start processes of their own.
    """

    workers: int
    attempts: int = 3
    """How many processes may die over one unit before it is given up."""

    def __post_init__(self) -> None:
        if min(self.workers, self.attempts) < 1:
            raise LevelheadError(
                f"{self} cannot compute anything",
                mend="give workers and attempts of 1 or more; InProcess() needs no worker",
            )

    def run(
        self, units: Sequence[Unit], *, cancel: CancelSignal, after: After = NOTHING
    ) -> Iterator[Outcome]:
        """Hand out units as workers become free; yield outcomes as they arrive."""
        todo = Waiting(units, after)
        stillborn = 0
        workers: list[_Worker] = []
        try:
            while todo or any(worker.unit for worker in workers):
                if cancel.is_set():
                    raise Cancelled
                self._hand_out(todo, workers)
                for worker in _that_speak(workers):
                    answer = worker.answer()
                    if answer == READY:
                        stillborn = 0
                    elif answer is not None:
                        yield answer
                        yield from todo.ended(answer.key, failed=isinstance(answer, Failed))
                    else:
                        workers.remove(worker)
                        unit, how = worker.unit, worker.end()
                        if not worker.ready:
                            stillborn = self._stillborn(stillborn + 1, how)
                            if unit:
                                todo.again(unit, first=True)
                        elif unit:
                            why = f"the process died ({how})"
                            yield from todo.died(unit, why, attempts=self.attempts)
        finally:
            for worker in workers:
                worker.end()

    def _hand_out(self, todo: Waiting, workers: list[_Worker]) -> None:
        """Give units to free workers, as long as there are both."""
        while todo and _may_work(workers, self.workers):
            unit = todo.take()
            if unit is None and not any(worker.unit for worker in workers):
                raise todo.stuck()
            if unit is None:
                return
            _free(workers).give(unit)

    def _stillborn(self, times: int, how: str) -> int:
        if times >= self.attempts:
            raise LevelheadError(
                f"the process died ({how}) before it could begin, {times} times in a row",
                mend="run it from a script file whose main part stands under "
                'if __name__ == "__main__": (its own errors are above), or use InProcess()',
            )
        return times


@final
class _Worker:
    """A spawned process, our end of its pipe, and the unit it is at."""

    def __init__(self) -> None:
        self.unit: Unit | None = None
        self.ready = False
        self.pipe, theirs = _SPAWN.Pipe()
        self.process: SpawnProcess = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # so that its death is seen here as the end of the pipe

    def give(self, unit: Unit) -> None:
        self.unit = unit
        with suppress(OSError):  # it died a moment ago; that is seen when it should answer
            self.pipe.send(unit)

    def answer(self) -> Computed | Failed | Literal["ready"] | None:
        """That it is ready, or what became of its unit; None if it died."""
        try:
            said = self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None
        if said == READY:
            self.ready = True
        elif said is not None:
            self.unit = None
        return said

    def end(self) -> str:
        """End the process if it still lives, and say how it ended."""
        self.pipe.close()
        self.process.join(timeout=0.05)  # an idle worker leaves by itself when the pipe closes
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        with suppress(ValueError):
            return signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"signal {-code}"


def _may_work(workers: list[_Worker], most: int) -> bool:
    """Whether fewer workers than may be are at a unit."""
    return sum(worker.unit is not None for worker in workers) < most


def _free(workers: list[_Worker]) -> _Worker:
    """A living worker without a unit, or a new one."""
    for worker in workers:
        if worker.unit is None and worker.process.is_alive():
            return worker
    workers.append(_Worker())
    return workers[-1]


def _that_speak(workers: list[_Worker]) -> list[_Worker]:
    """The workers that have something to say, or died, within a tenth of a second."""
    heard = wait([worker.pipe for worker in workers], timeout=0.1)
    # A child that a worker left behind may hold its pipe open (and its sentinel): ask the system.
    return [w for w in workers if w.pipe in heard or not w.process.is_alive()]


def _serve(pipe: Connection) -> None:
    """In the worker: compute what comes until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the driver, which ends us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the driver closed the pipe, or is gone
        pipe.send(READY)
        while True:
            pipe.send(outcome_of(pipe.recv()))


def _die_with_parent() -> None:
    """A driver that was killed must not leave workers that burn the machine."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
