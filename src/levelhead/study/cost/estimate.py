"""What a run will take, as a value. Nothing here needs torch: mining does not, either."""

from __future__ import annotations

import resource
import sys
from typing import Annotated

from pydantic import Field

from levelhead.core.results import Record

MB = 2**20


class Foreseen(Record):
    """What a run will take."""

    forwards: Annotated[int, Field(ge=0)]
    """Batches that are read."""
    tokens: Annotated[int, Field(ge=0)]
    """In them, without padding."""
    seconds: Annotated[float, Field(ge=0)]
    parts: dict[str, float]
    """The same seconds, by what they go into."""
    peak_mb: Annotated[float, Field(ge=0)]
    disk_mb: Annotated[float, Field(ge=0)]
    notes: tuple[str, ...] = ()

    def __add__(self, other: Foreseen) -> Foreseen:
        """One after the other, in one process."""
        names = dict.fromkeys([*self.parts, *other.parts])
        return Foreseen(
            forwards=self.forwards + other.forwards,
            tokens=self.tokens + other.tokens,
            seconds=self.seconds + other.seconds,
            parts={name: self.parts.get(name, 0) + other.parts.get(name, 0) for name in names},
            peak_mb=max(self.peak_mb, other.peak_mb),
            disk_mb=self.disk_mb + other.disk_mb,
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (MB if sys.platform == "darwin" else 1024)
