"""How a run is carried out, and how its numbers are inferred: two values handed on everywhere.

`RunContext` decides nothing about a result but its last bits (threads). `Inference` decides every
interval and p-value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from levelhead.core.files import Url


class CancelSignal(Protocol):
    """What stops a run when it is set, from another thread or a signal handler.

    A `threading.Event` is one.
    """

    def is_set(self) -> bool:
        """Whether the run is to stop."""
        ...


class NeverCancelled:
    """A signal that nobody sets."""

    def is_set(self) -> bool:
        """Whether the run is to stop: never."""
        return False


def ignore_progress(event: object) -> None:
    """Do nothing with an event."""


@final
@dataclass(frozen=True)
class RunContext:
    """Where results are kept, how many threads compute, who is told, and what stops the run."""

    store: Url | None = None
    """A folder or URL that keeps what was computed; by default memory, or the run's folder."""
    threads: int = 1
    """Of numpy and torch; part of what a readout depends on, in its last bits."""
    progress: Callable[[Any], None] = ignore_progress
    """Called with every `levelhead.engine.events.Event`: the plan, each stored unit, failures."""
    cancel: CancelSignal = NeverCancelled()
    """Set it to stop; what was stored is kept."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise LevelheadError(
                f"{self.threads} threads", mend="give a whole number of at least 1"
            )


@final
@dataclass(frozen=True)
class Inference:
    """Seed, resamples, permutations and level: of every interval and every p-value."""

    seed: int = 0
    resamples: int = 1999
    permutations: int = 9999
    level: float = 0.95

    def __post_init__(self) -> None:
        few = self.resamples < 99 or self.permutations < 99
        if self.seed < 0 or few or not 0 < self.level < 1:
            raise LevelheadError(
                f"chance cannot be judged with {self}",
                mend="give a seed of 0 or more, at least 99 resamples and permutations, and a "
                "level such as 0.95",
            )

    def rng(self, *names: str) -> np.random.Generator:
        """A generator for one number, whatever else is computed beside it."""
        # Imported here: the command line makes these values without waiting for numpy.
        import numpy as np

        words = [int.from_bytes(name.encode(), "little") for name in names]
        return np.random.default_rng([self.seed, *words])
