"""Settings of a run (`RunContext`) and of its statistical inference (`Inference`).

`RunContext` changes only the last bits of a result (by `threads`). `Inference` determines every
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
    """A signal that stops a run when another thread or a signal handler sets it.

    A `threading.Event` implements this protocol.
    """

    def is_set(self) -> bool:
        """Return whether the run must stop."""
        ...


class NeverCancelled:
    """A signal that is never set."""

    def is_set(self) -> bool:
        """Return False: the run never stops."""
        return False


def ignore_progress(event: object) -> None:
    """Discard a progress event."""


@final
@dataclass(frozen=True)
class RunContext:
    """Store, threads, progress callback and cancel signal of a run, and what results record."""

    store: Url | None = None
    """Folder or URL that stores results; by default memory, or the run's folder."""
    threads: int = 1
    """Threads of numpy and torch; responses depend on this number in their last bits."""
    progress: Callable[[Any], None] = ignore_progress
    """Called with every `levelhead.engine.events.Event`: the plan, each stored task, failures."""
    cancel: CancelSignal = NeverCancelled()
    """Signal that stops the run when it is set; stored results remain."""
    record_items: bool = True
    """Whether measurements contain the texts of their items; False keeps confidential texts out of
    results. The store holds the queries either way."""
    token_budget: object | None = None
    """A `TokenBudget` that all served models of the run share; None: no limit."""
    executor: object | None = None
    """An executor of `levelhead.engine.executors` whose workers load the model and answer its
    queries; None: this process. Gradients and sweeps of edits are computed by this process."""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise LevelheadError(
                f"{self.threads} threads", hint="give a number of threads of at least 1"
            )


@final
@dataclass(frozen=True)
class Inference:
    """Seed, numbers of resamples and permutations, and level of all intervals and p-values."""

    seed: int = 0
    resamples: int = 1999
    permutations: int = 9999
    level: float = 0.95

    def __post_init__(self) -> None:
        # Percentiles and p-values of fewer than 99 resamples have steps of more than 0.01.
        has_too_few = self.resamples < 99 or self.permutations < 99
        if self.seed < 0 or has_too_few or not 0 < self.level < 1:
            raise LevelheadError(
                f"no interval or p-value can be computed with {self}",
                hint="give a seed of 0 or more, at least 99 resamples and permutations, and a "
                "level such as 0.95",
            )

    def rng(self, *names: str) -> np.random.Generator:
        """Return the random generator of one number, independent of what else is computed.

        Args:
            names: names that identify the number; they are part of the seed.
        """
        # Imported here, because the command line creates these values before it needs numpy.
        import numpy as np

        # Seeds by name: a number stays the same when other numbers are added or removed.
        # numpy seeds are integers. Not `hash`: Python's hash of text differs between processes.
        words = [int.from_bytes(name.encode(), "little") for name in names]
        return np.random.default_rng([self.seed, *words])
