"""A job: units, a folder that keeps their results, and a runner that computes what is missing.

Beside the units, a folder holds a card for every job that worked in it (`jobs/`) and another one
for every job that was finished there (`finished/`).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.run_context import RunContext
from levelhead.engine.events import Failed, Finished, Planned, Stored
from levelhead.engine.executors.base import Cancelled, Computed, InProcess, Runner
from levelhead.engine.locks import claimed
from levelhead.engine.store import DamagedFile, NotStored, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.files import Url
    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.tasks import Unit

JOBS, FINISHED = "jobs", "finished"


class OtherJob(LevelheadError):
    """The folder holds another job's results."""


class UnitsFailed(LevelheadError):
    """Some units of a job gave no result; nothing stands in for them."""

    def __init__(self, failures: Sequence[Failed], units: int) -> None:
        reasons = Counter(failed.why for failed in failures).most_common()
        shown = "\n".join(f"- {times} units: {why}" for why, times in reasons[:3])
        more = f"\n- and {len(reasons) - 3} other reasons" if len(reasons) > 3 else ""
        super().__init__(
            f"{len(failures)} of {units} units failed:\n{shown}{more}",
            mend="mend the cause and run again: what was stored is kept",
        )
        self.failures = tuple(failures)


@final
@dataclass(frozen=True)
class Job:
    """A name for people and the units that make it up."""

    name: str
    units: tuple[Unit, ...]

    def __post_init__(self) -> None:
        if not self.units:
            raise NotMeasurable(f"the job {self.name!r} has no units", mend="check its inputs")

    @cached_property
    def key(self) -> str:
        """The content hash of the job: of its units, not of its name."""
        return content_hash([unit.key for unit in self.units])

    @property
    def card(self) -> bytes:
        """What the folder says of the job."""
        return canonical({"name": self.name, "units": len({unit.key for unit in self.units})})

    def results(self, store: Store) -> Iterator[bytes]:
        """The units' results in the job's order, checksums verified."""
        for unit in self.units:
            yield store.get(unit.key)


def run(
    job: Job,
    folder: Url,
    *,
    runner: Runner | None = None,
    context: RunContext = RunContext(),
    extend: bool = False,
) -> Store:
    """Bring a folder to hold every result of a job, computing only what is missing.

    Killed at any moment and called again, it goes on where it stopped and ends with the same bytes.

    Args:
        job: what is wanted.
        folder: a new or empty folder, or one in which this job has worked.
        runner: who computes; by default this process.
        context: its progress is told of the plan, every stored unit with the time left, retries and
            failures; its cancel stops the job. The folder is the store.
        extend: let the job use and add to a folder in which other jobs have worked.
    """
    store = open_store(folder)
    with claimed(store.url):
        _sign(job, store, extend=extend)
        store.sweep()
        complete(job.units, store, runner=runner, context=context)
        store.put(job.key, job.card, room=FINISHED)
    return store


def complete(
    units: Sequence[Unit],
    store: Store,
    *,
    runner: Runner | None = None,
    context: RunContext = RunContext(),
) -> None:
    """Compute and store the units that a store lacks. A store may be shared by several callers.

    Args:
        units: what is wanted.
        store: where results go, opened.
        runner: who computes; by default this process.
        context: its progress and cancel.
    """
    began = time.monotonic()
    wanted = {unit.key: unit for unit in units}  # a unit listed twice is one unit
    pending, damaged = _plan(wanted, store, context.cancel)
    missing, first = len(pending), 0.0
    context.progress(Planned(len(wanted), len(wanted) - missing, damaged))
    failures: list[Failed] = []
    for outcome in (runner or InProcess()).run(list(pending.values()), cancel=context.cancel):
        if isinstance(outcome, Computed | Failed) and not pending.pop(outcome.key, None):
            raise _runner_fault(f"a second result, or one nobody asked for: {outcome.key}")
        if isinstance(outcome, Computed):
            store.put(outcome.key, outcome.payload)
            first = first or time.monotonic()  # what came before it was starting up
            computed = missing - len(pending) - len(failures)
            pace = (time.monotonic() - first) / (computed - 1) if computed > 1 else None
            left = None if pace is None else pace * len(pending)
            context.progress(Stored(outcome.key, len(wanted) - len(pending), len(wanted), left))
            continue
        if isinstance(outcome, Failed):
            failures.append(outcome)
        context.progress(outcome)
    if pending:
        raise _runner_fault(f"no result for {len(pending)} of {missing} units")
    seconds = time.monotonic() - began
    context.progress(Finished(len(wanted), missing - len(failures), len(failures), seconds))
    if failures:
        raise UnitsFailed(sorted(failures, key=lambda failed: failed.key), len(wanted))


def _plan(
    wanted: dict[str, Unit], store: Store, cancel: CancelSignal
) -> tuple[dict[str, Unit], tuple[str, ...]]:
    """The units to compute, and the damaged files among their results."""
    pending: dict[str, Unit] = {}
    damaged: list[str] = []
    for key, unit in wanted.items():
        if cancel.is_set():
            raise Cancelled
        try:
            if store.has(key):
                continue
        except DamagedFile:
            damaged.append(store.path(key))
        pending[key] = unit
    return pending, tuple(damaged)


def _sign(job: Job, store: Store, *, extend: bool) -> None:
    """Leave the job's card in the folder, or refuse a folder with another's."""
    others = [key for key in store.keys(room=JOBS) if key != job.key]
    if others and not extend and job.key not in store.keys(room=JOBS):
        name = "a damaged card"
        with suppress(DamagedFile):
            name = store.get(others[0], room=JOBS).decode()
        raise OtherJob(
            f"{store.url} holds another job: {name}",
            mend=f"use another folder for {job.name!r}, or extend=True to share what fits",
        )
    try:
        store.get(job.key, room=JOBS)
    except (NotStored, DamagedFile):
        store.put(job.key, job.card, room=JOBS)


def _runner_fault(what: str) -> LevelheadError:
    return LevelheadError(
        f"the runner gave {what}",
        mend="report this: a runner must say once of every unit what became of it",
    )
