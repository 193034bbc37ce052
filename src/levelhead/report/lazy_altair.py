"""Lazy import of altair with the first chart: it is an optional extra and slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from levelhead.core.errors import MissingExtraError

__all__ = ["alt", "vl_convert"]


@final
class _LazyModule:
    """A module that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        try:
            module = import_module(self._name)
        except ImportError:
            raise MissingExtraError("drawing charts", "report") from None
        return getattr(module, name)


if TYPE_CHECKING:
    import altair as alt
    import vl_convert
else:
    alt = _LazyModule("altair")
    vl_convert = _LazyModule("vl_convert")
