"""An immutable mapping of JSON values: settings that cannot change after they were hashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast, final

from levelhead.core.canonical_json import Json, content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError


@final
class FrozenDict(Mapping[str, Json]):
    """A mapping whose values, at every depth, cannot be changed. Hashable by content.

    >>> settings = FrozenDict({"words": ["nurse", "doctor"], "k": 3})
    >>> settings["words"]
    ('nurse', 'doctor')
    >>> settings == FrozenDict({"k": 3, "words": ("nurse", "doctor")})
    True
    """

    __slots__ = ("_items",)
    _items: dict[str, Json]

    def __init__(self, items: Mapping[str, object]) -> None:
        if not isinstance(items, Mapping):
            raise LevelheadError(
                f"{type(items).__name__} is no mapping: {items!r:.80}",
                hint="give a dict of names and values",
            )
        # Raises an error that names the first value without an exact JSON form.
        to_canonical_json(items)
        # `__setattr__` refuses every assignment. Sorted, so that equal mappings iterate alike.
        object.__setattr__(self, "_items", {key: _freeze(items[key]) for key in sorted(items)})

    def __getitem__(self, key: str) -> Json:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(content_hash(self))

    def __eq__(self, other: object) -> bool:
        # Bytes, not values: 1, 1.0 and True are equal in Python but have different hashes.
        return isinstance(other, FrozenDict) and to_canonical_json(self) == to_canonical_json(other)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __reduce__(self) -> tuple[object, ...]:
        # The default would restore the slots with `setattr`, which this class refuses.
        return FrozenDict, (dict(self._items),)

    def __repr__(self) -> str:
        return f"FrozenDict({dict(self._items)!r})"


def _freeze(value: object) -> Json:
    if isinstance(value, Mapping):
        return FrozenDict(value)
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return cast("Json", value)  # to_canonical_json admits only JSON scalars
