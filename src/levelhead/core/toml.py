"""TOML of others: everything that is wrong with a file is one kind of error."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from levelhead.core.errors import LevelheadError

_STRING = re.compile(r"\"[^\"\\\n]*\"|'[^'\n]*'")
_LONG_KEY = re.compile(r"(?:\.[ \t]*[\w-]*[ \t]*){200}")
"""A dotted key of 200 parts; strings are left out, which may hold such texts."""


def parse_toml(text: str, name: object, *, hint: str = "correct that line") -> dict[str, Any]:
    """Parse a TOML document.

    Args:
        text: the document.
        name: name of the file, for the error.
        hint: how to correct it.
    """
    # The parser takes the square of a key's parts: 20,000 of them are twelve seconds.
    if _LONG_KEY.search(_STRING.sub("", text)):
        raise LevelheadError(f"{name} is not valid TOML: a key has too many parts", hint=hint)
    try:
        return tomllib.loads(text)
    # ValueError: numbers of thousands of digits. RecursionError: brackets without end.
    except (ValueError, RecursionError) as error:
        raise LevelheadError(f"{name} is not valid TOML: {error}", hint=hint) from None
