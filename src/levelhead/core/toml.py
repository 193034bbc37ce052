"""TOML of others: everything that is wrong with a file is one kind of error."""

from __future__ import annotations

import tomllib
from typing import Any

from levelhead.core.errors import LevelheadError


def parse_toml(text: str, name: object, *, hint: str = "correct that line") -> dict[str, Any]:
    """Parse a TOML document.

    Args:
        text: the document.
        name: name of the file, for the error.
        hint: how to correct it.
    """
    try:
        return tomllib.loads(text)
    # ValueError: numbers of thousands of digits. RecursionError: brackets without end.
    except (ValueError, RecursionError) as error:
        raise LevelheadError(f"{name} is not valid TOML: {error}", hint=hint) from None
