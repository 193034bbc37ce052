"""A unit of work: a pure function by name and everything its result depends on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, final

from levelhead.core.canonical import canonical, content_hash
from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from levelhead.core.frozen import Frozen


@final
@dataclass(frozen=True)
class Unit:
    """A call that gives the same bytes wherever and whenever it is made.

    >>> from levelhead.core.frozen import Frozen
    >>> unit = Unit("levelhead.engine.units:echo", Frozen({"say": "hello"}))
    >>> unit.compute()
    b'{"say":"hello"}'
    """

    work: str
    """`package.module:function`, importable by every worker; it takes `spec` and returns bytes."""
    spec: Frozen
    revision: int = 1
    """Raised by the author of `work` when its results change, so old ones are not taken for new."""

    @cached_property
    def key(self) -> str:
        """The content hash under which the result is stored."""
        return content_hash({"work": self.work, "spec": self.spec, "revision": self.revision})

    def compute(self) -> bytes:
        """Call the function in this process."""
        result = _function(self.work)(self.spec)
        if not isinstance(result, bytes):
            raise LevelheadError(
                f"{self.work} returned {type(result).__name__}, not bytes",
                mend="encode the result, for example with levelhead.core.canonical.canonical",
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
