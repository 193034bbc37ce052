"""Runners compute units; they know nothing of stores.

A runner takes units and yields what became of them, in the order in which they end. Where the
bytes go is the job's business, so one process writes, and it writes what it has whole: there is
nothing a killed worker could leave half done.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.dependencies import Waiting
from levelhead.engine.events import Failed, Retried

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.dependencies import After
    from levelhead.engine.tasks import Unit


class Cancelled(LevelheadError):
    """The run was stopped on request; what was stored stays."""

    def __init__(self) -> None:
        super().__init__(
            "the run was cancelled", mend="run the same command again: it goes on where it stopped"
        )


@final
@dataclass(frozen=True)
class Computed:
    """A unit's result."""

    key: str
    payload: bytes


Outcome = Computed | Retried | Failed
NOTHING: After = MappingProxyType({})
"""No unit needs another."""


class Runner(Protocol):
    """Computes units: here, in local processes, on a cluster."""

    def run(self, units: Sequence[Unit], *, cancel: CancelSignal) -> Iterator[Outcome]:
        """Yield one `Computed` or `Failed` a unit; raise `Cancelled` soon after `cancel` is set."""
        ...


class OrderedRunner(Protocol):
    """Computes units of which some need others."""

    def run(
        self, units: Sequence[Unit], *, cancel: CancelSignal, after: After = NOTHING
    ) -> Iterator[Outcome]:
        """As `Runner.run`, but no unit begins before whoever listens was told of all it needs.

        If one of those failed, it fails without being begun.
        """
        ...


@final
@dataclass(frozen=True)
class InProcess:
    """One unit after the other in this process: nothing to start, easy to step through."""

    def run(
        self, units: Sequence[Unit], *, cancel: CancelSignal, after: After = NOTHING
    ) -> Iterator[Outcome]:
        """Compute the units in their order, those that wait for others later."""
        waiting = Waiting(units, after)
        while waiting:
            if cancel.is_set():
                raise Cancelled
            unit = waiting.take()
            if unit is None:
                raise waiting.stuck()
            outcome = outcome_of(unit)
            yield outcome
            yield from waiting.ended(unit.key, failed=isinstance(outcome, Failed))


def outcome_of(unit: Unit) -> Computed | Failed:
    """Compute a unit here; whatever it raises becomes a `Failed` that says so."""
    try:
        return Computed(unit.key, unit.compute())
    except LevelheadError as error:
        return Failed(unit.key, str(error))
    except (Exception, SystemExit) as error:  # the others must go on; the job raises at its end
        return Failed(unit.key, "".join(traceback.format_exception(error)).rstrip())
