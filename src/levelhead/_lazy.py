"""Public names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def attach(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from its `if TYPE_CHECKING` block.

    That block is read as text: the list a type checker sees cannot differ from what is imported.
    """
    sources = public_names(Path(file).read_text(encoding="utf-8"))

    def lazy_getattr(name: str) -> object:
        if name not in sources:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = sources[name]
        # A package of ours, such as `levelhead.edits`: Python sets it on its parent only once it is
        # imported, and asking `levelhead` for it would lead back here.
        if module == package or not hasattr(import_module(module), original):
            return import_module(f"{module}.{original}")
        return getattr(import_module(module), original)

    def lazy_dir() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sources})

    return lazy_getattr, lazy_dir, sorted(sources)


def public_names(source: str) -> dict[str, tuple[str, str]]:
    r"""What a package exports: public name -> module and name there.

    >>> public_names("if TYPE_CHECKING:\n    from a.b import C as C\n    from d import E")
    {'C': ('a.b', 'C')}
    """
    return {
        alias.asname: (statement.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
        if alias.asname
    }
