"""What a job tells while it runs. Frozen values; whoever listens draws the bar.

Times are of this run alone and go nowhere near a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Planned:
    """What there is to do."""

    units: int
    stored: int
    """Units found stored and whole: they are not computed again."""
    damaged: tuple[str, ...]
    """Files found damaged: named here, computed anew."""


@final
@dataclass(frozen=True)
class Stored:
    """A unit was computed and stored."""

    key: str
    done: int
    units: int
    seconds_left: float | None
    """At the pace of this run so far; None before there is one."""


@final
@dataclass(frozen=True)
class Retried:
    """The process that computed a unit died; it is tried again."""

    key: str
    why: str


@final
@dataclass(frozen=True)
class Failed:
    """A unit was given up; the others go on, and the job ends in an error."""

    key: str
    why: str


@final
@dataclass(frozen=True)
class Finished:
    """Nothing is left to do."""

    units: int
    computed: int
    failed: int
    seconds: float


Event = Planned | Stored | Retried | Failed | Finished
