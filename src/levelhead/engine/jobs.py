"""A job: units, a folder that keeps their results, and a runner that computes what is missing."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

from levelhead.core.canonical import canonical, content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.files import Url, join, read_bytes, write_atomic
from levelhead.engine.claim import claimed
from levelhead.engine.events import Event, Failed, Finished, Planned, Stored
from levelhead.engine.runners import Computed, InProcess, Runner
from levelhead.engine.store import DamagedFile, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.engine.units import Unit


class OtherJob(LevelheadError):
    """The folder holds another job's results."""


class UnitsFailed(LevelheadError):
    """Some units of a job gave no result; nothing stands in for them."""

    def __init__(self, failures: Sequence[Failed], units: int) -> None:
        shown = "\n".join(f"  {failed.key[:12]}: {failed.why}" for failed in failures[:5])
        more = f"\n  and {len(failures) - 5} more" if len(failures) > 5 else ""
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
        """The content hash of the job."""
        return content_hash([unit.key for unit in self.units])

    def results(self, store: Store) -> Iterator[bytes]:
        """The units' results in the job's order, checksums verified."""
        for unit in self.units:
            yield store.get(unit.key)


def run(
    job: Job,
    folder: Url,
    *,
    runner: Runner | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
    extend: bool = False,
) -> Store:
    """Bring a folder to hold every result of a job, computing only what is missing.

    Killed at any moment and called again, it goes on where it stopped and ends with the same bytes.

    Args:
        job: what is wanted.
        folder: a new or empty folder, or this job's own.
        runner: who computes; by default this process.
        on_event: is told of the plan, every stored unit with the time left, retries and failures.
        cancel: set it, from another thread or a signal handler, to stop.
        extend: let the job use and add to a folder in which another job has worked.
    """
    store = open_store(folder)
    with claimed(folder):
        _sign(job, folder, extend=extend)
        store.sweep()
        complete(job.units, store, runner=runner, on_event=on_event, cancel=cancel)
    return store


def complete(
    units: Sequence[Unit],
    store: Store,
    *,
    runner: Runner | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
) -> None:
    """Compute and store the units that a store lacks. A store may be shared by several callers."""
    began = time.monotonic()
    wanted = {unit.key: unit for unit in units}  # a unit listed twice is one unit
    missing, damaged = _plan(wanted, store)
    on_event(Planned(len(wanted), len(wanted) - len(missing), damaged))
    computed, first = 0, 0.0
    failures: list[Failed] = []
    for outcome in (runner or InProcess()).run(missing, cancel=cancel or threading.Event()):
        if isinstance(outcome, Computed):
            store.put(outcome.key, outcome.payload)
            computed += 1
            first = first or time.monotonic()  # what came before it was starting up
            pace = (time.monotonic() - first) / (computed - 1) if computed > 1 else None
            left = len(missing) - computed - len(failures)
            seconds = None if pace is None else pace * left
            on_event(Stored(outcome.key, len(wanted) - left, len(wanted), seconds))
            continue
        if isinstance(outcome, Failed):
            failures.append(outcome)
        on_event(outcome)
    on_event(Finished(len(wanted), computed, len(failures), time.monotonic() - began))
    if failures:
        raise UnitsFailed(sorted(failures, key=lambda failed: failed.key), len(wanted))
    if computed != len(missing):
        raise LevelheadError(
            f"the runner gave {computed} results for {len(missing)} units",
            mend="report this: a runner must say of every unit what became of it",
        )


def _plan(wanted: dict[str, Unit], store: Store) -> tuple[list[Unit], tuple[str, ...]]:
    """The units to compute, and the damaged files among their results."""
    missing: list[Unit] = []
    damaged: list[str] = []
    for key, unit in wanted.items():
        try:
            if store.has(key):
                continue
        except DamagedFile:
            damaged.append(store.path(key))
        missing.append(unit)
    return missing, tuple(damaged)


def _sign(job: Job, folder: Url, *, extend: bool) -> None:
    """Write the job's name into the folder, or refuse one that bears another's."""
    card = join(folder, "job.json")
    signature = canonical({"job": job.key, "name": job.name, "units": len(job.units)})
    try:
        found = read_bytes(card)
    except FileNotFoundError:
        found = signature
    if found != signature and not extend:
        raise OtherJob(
            f"{folder} holds another job: {found[:200].decode(errors='replace')}",
            mend=f"use another folder for {job.name!r}, or extend=True to share what fits",
        )
    write_atomic(card, signature, scratch=join(folder, "tmp"))
