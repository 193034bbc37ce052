"""A unit of work: a pure function by name and everything its result depends on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, final

from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import canonical, content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import Frozen
from levelhead.core.versions import installed_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@final
@dataclass(frozen=True)
class Unit:
    """A call that gives the same bytes wherever and whenever it is made.

    >>> unit = Unit("levelhead.engine.tasks:echo", Frozen({"say": "hello"}))
    >>> unit.compute()
    b'{"say":"hello"}'
    """

    work: str
    """`package.module:function`, importable by every worker; it takes `spec` and returns bytes.

    Its module imports numpy or torch at its top, so that `threads` reaches them.
    """
    spec: Frozen
    revision: int = 1
    """Raised by the author of `work` when its results change, so old ones are not taken for new."""
    threads: int = 1
    """Threads of numpy and torch while it is computed: sums depend on it in their last bits."""

    def __post_init__(self) -> None:
        if not isinstance(self.spec, Frozen):
            raise LevelheadError(
                f"the specification of {self.work} could change after it was hashed",
                mend="wrap it: Unit(work, Frozen({...}))",
            )

    @cached_property
    def key(self) -> str:
        """The content hash of all the result depends on, the installed versions included.

        Versions are in it because provenance names them: a result computed with an older torch is
        not found under the newer one's key, instead of being passed off as computed with it.
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
        """Call the function in this process."""
        function = _function(self.work)
        with threadpool_limits(self.threads):  # reaches the libraries that the import has loaded
            result = function(self.spec)
        if not isinstance(result, bytes):
            raise LevelheadError(
                f"{self.work} returned {type(result).__name__}, not bytes",
                mend="encode the result, for example with levelhead.core.canonical_json.canonical",
            )
        return result


def _function(work: str) -> Callable[[Mapping[str, object]], object]:
    module, _, name = work.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LevelheadError(
            f"no function {work!r} can be imported: {error}",
            mend="name a top-level function as package.module:function",
        ) from error
    return function  # type: ignore[no-any-return]


def echo(spec: Mapping[str, object]) -> bytes:
    """The unit's own specification: for trying out a runner or a store."""
    return canonical(spec)
