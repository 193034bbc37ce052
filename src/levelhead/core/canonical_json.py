"""Canonical JSON and content hashes: equal values always give the same bytes.

Keys are sorted, separators have no blanks, text is UTF-8, and floats are written in the shortest
form that reads back exactly. Values without an exact JSON form raise an error: NaN and infinities,
keys that are not text, numpy numbers (their width would be lost), sets (they have no order).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping

from levelhead.core.errors import LevelheadError

HINT = "use text, whole numbers, finite floats, true, false, null, lists and mappings of these"

Json = str | int | float | bool | None | tuple["Json", ...] | Mapping[str, "Json"]
"""A frozen JSON value: lists are tuples."""


def to_canonical_json(value: object) -> bytes:
    """Return the canonical JSON form of a value, as UTF-8.

    >>> to_canonical_json({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1.0}'
    """
    try:
        text = json.dumps(
            _to_json_types(value, "value"),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
        )
    # Integers of thousands of digits raise ValueError, values that contain themselves recurse.
    except (ValueError, RecursionError) as error:
        raise LevelheadError(f"the value is too large for JSON: {error}", hint=HINT) from None
    return text.encode()


def content_hash(value: object) -> str:
    """Return the SHA-256 of the canonical form, in hexadecimal.

    >>> content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(to_canonical_json(value)).hexdigest()


def _to_json_types(value: object, path: str) -> object:
    """Convert a value to the types that json writes; the error names the path of a bad value."""
    # type() instead of isinstance: an Enum may be a str, and numpy.float64 is a float.
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is str:
        return _check_text(value, path)
    if isinstance(value, list | tuple):
        return [_to_json_types(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            _check_text(key, path): _to_json_types(item, f"{path}[{key!r}]")
            for key, item in value.items()
        }
    raise _not_json_error(path, value)


def _check_text(value: object, path: str) -> str:
    if type(value) is not str:
        raise _not_json_error(f"a key of {path}", value)
    try:
        value.encode()
    # A lone surrogate is a valid str but has no UTF-8 form.
    except UnicodeEncodeError:
        raise _not_json_error(path, value) from None
    return value


def _not_json_error(path: str, value: object) -> LevelheadError:
    return LevelheadError(
        f"{path} has no exact JSON form: {type(value).__name__} {value!r}",
        hint=HINT,
    )
