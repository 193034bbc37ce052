"""Tasks: a pure function by name, with everything that its result depends on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, final

from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.core.versions import installed_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    TaskFunction = Callable[[Mapping[str, object]], object]


@final
@dataclass(frozen=True)
class Task:
    """A call of a pure function that gives the same bytes on every machine and at every time.

    >>> unit = Task("levelhead.engine.tasks:echo", FrozenDict({"say": "hello"}))
    >>> unit.compute()
    b'{"say":"hello"}'
    """

    work: str
    """`package.module:function`, importable by every worker; it takes `spec` and returns bytes.

    Its module must import numpy or torch at the top, so that `threads` applies to them.
    """
    spec: FrozenDict
    revision: int = 1
    """Increased by the author of `work` when its results change, so old ones are not reused."""
    threads: int = 1
    """Threads of numpy and torch during the call: sums depend on it in their last bits."""

    def __post_init__(self) -> None:
        if not isinstance(self.spec, FrozenDict):
            raise LevelheadError(
                f"the specification of {self.work} is mutable and could change after it was hashed",
                hint="wrap it: Task(work, FrozenDict({...}))",
            )

    @cached_property
    def key(self) -> str:
        """Content hash of everything the result depends on, including installed versions.

        Versions are included because provenance states them: a result of an older torch must not be
        reported as a result of the newer one.
        """
        return content_hash(
            {
                "work": self.work,
                "spec": self.spec,
                "revision": self.revision,
                "threads": self.threads,
                "versions": installed_versions(),
            }
        )

    def compute(self) -> bytes:
        """Call the function in this process and return its bytes."""
        function = _import_function(self.work)
        # threadpool_limits applies only to libraries that are loaded, so the import comes first.
        with threadpool_limits(self.threads):
            result = function(self.spec)
        if not isinstance(result, bytes):
            raise LevelheadError(
                f"{self.work} returned {type(result).__name__}, not bytes",
                hint="encode the result, for example with canonical_json.to_canonical_json",
            )
        return result


def _import_function(work: str) -> TaskFunction:
    module, _, name = work.partition(":")
    try:
        function: TaskFunction = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LevelheadError(
            f"no function {work!r} can be imported: {error}",
            hint="name a top-level function as package.module:function",
        ) from error
    return function


def echo(spec: Mapping[str, object]) -> bytes:
    """Return the specification itself, to test an executor or a store.

    Args:
        spec: specification of the task.
    """
    return to_canonical_json(spec)
