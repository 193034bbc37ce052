"""The estimated cost of a run. This module does not import torch, because mining needs none."""

from __future__ import annotations

import resource
import sys
from typing import Annotated

from pydantic import Field

from levelhead.core.results import Record

MB = 2**20


class CostEstimate(Record):
    """The estimated cost of a run."""

    forwards: Annotated[int, Field(ge=0)]
    """Number of batches."""
    tokens: Annotated[int, Field(ge=0)]
    """Number of tokens in them, without padding."""
    seconds: Annotated[float, Field(ge=0)]
    seconds_by_part: dict[str, float]
    """Seconds by part of the run."""
    peak_mb: Annotated[float, Field(ge=0)]
    disk_mb: Annotated[float, Field(ge=0)]
    notes: tuple[str, ...] = ()

    def __add__(self, other: CostEstimate) -> CostEstimate:
        """Total seconds in one process."""
        names = dict.fromkeys([*self.seconds_by_part, *other.seconds_by_part])
        return CostEstimate(
            forwards=self.forwards + other.forwards,
            tokens=self.tokens + other.tokens,
            seconds=self.seconds + other.seconds,
            seconds_by_part={
                name: self.seconds_by_part.get(name, 0) + other.seconds_by_part.get(name, 0)
                for name in names
            },
            peak_mb=max(self.peak_mb, other.peak_mb),
            disk_mb=self.disk_mb + other.disk_mb,
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
        )


def peak_mb() -> float:
    """Peak memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux reports kibibytes, macOS bytes.
    return peak / (MB if sys.platform == "darwin" else 1024)
