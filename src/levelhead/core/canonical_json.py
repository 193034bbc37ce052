"""One value, one sequence of bytes: canonical JSON and the hashes made from it.

Keys are sorted, separators carry no blanks, text is UTF-8, floats are written in the shortest form
that reads back exactly. What JSON cannot say exactly is refused: NaN and infinities, keys that are
not text, numpy numbers (whose width would be lost), sets (which have no order).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping

from levelhead.core.errors import LevelheadError

MEND = "use text, whole numbers, finite floats, true, false, null, lists and mappings of these"

Json = str | int | float | bool | None | tuple["Json", ...] | Mapping[str, "Json"]
"""A frozen JSON value: lists are tuples."""


def canonical(value: object) -> bytes:
    """The one canonical JSON form of a value, as UTF-8.

    >>> canonical({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1.0}'
    """
    try:
        text = json.dumps(
            _plain(value, "value"), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits; loops
        raise LevelheadError(f"the value is too large for JSON: {error}", mend=MEND) from None
    return text.encode()


def content_hash(value: object) -> str:
    """SHA-256 of the canonical form, in hexadecimal.

    >>> content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(canonical(value)).hexdigest()


def _plain(value: object, where: str) -> object:
    """The same value in the types json writes, or an error that names the place."""
    # Exact types: an Enum may be a str, and a numpy float is a float of lost width.
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is str:
        return _text(value, where)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_text(key, where): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise _no_json(where, value)


def _text(value: object, where: str) -> str:
    if type(value) is not str:
        raise _no_json(f"a key of {where}", value)
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        raise _no_json(where, value) from None
    return value


def _no_json(where: str, value: object) -> LevelheadError:
    return LevelheadError(
        f"{where} has no exact JSON form: {type(value).__name__} {value!r}",
        mend=MEND,
    )
