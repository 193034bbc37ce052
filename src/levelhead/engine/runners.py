"""Runners compute units; they know nothing of stores.

A runner takes units and yields what became of them, in the order in which they end. Where the
bytes go is the job's business, so one process writes, and it writes what it has whole: there is
nothing a killed worker could leave half done.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.events import Failed, Retried

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from levelhead.engine.units import Unit


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


class Runner(Protocol):
    """Computes units: here, in local processes, on a cluster."""

    def run(self, units: Sequence[Unit], *, cancel: threading.Event) -> Iterator[Outcome]:
        """Yield one `Computed` or `Failed` a unit; raise `Cancelled` soon after `cancel` is set."""
        ...


@final
@dataclass(frozen=True)
class InProcess:
    """One unit after the other in this process: nothing to start, easy to step through."""

    def run(self, units: Sequence[Unit], *, cancel: threading.Event) -> Iterator[Outcome]:
        """Compute the units in their order."""
        for unit in units:
            if cancel.is_set():
                raise Cancelled
            yield outcome_of(unit)


def outcome_of(unit: Unit) -> Computed | Failed:
    """Compute a unit here; whatever it raises becomes a `Failed` that says so."""
    try:
        return Computed(unit.key, unit.compute())
    except LevelheadError as error:
        return Failed(unit.key, str(error))
    except (Exception, SystemExit) as error:  # the others must go on; the job raises at its end
        return Failed(unit.key, "".join(traceback.format_exception(error)).rstrip())
