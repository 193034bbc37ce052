"""An immutable mapping of JSON values: settings that cannot change after they were hashed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from levelhead.core.canonical_json import Json, canonical, content_hash
from levelhead.core.errors import LevelheadError


@final
class Frozen(Mapping[str, Json]):
    """A mapping whose values, at every depth, cannot be changed. Hashable by content.

    >>> settings = Frozen({"words": ["nurse", "doctor"], "k": 3})
    >>> settings["words"]
    ('nurse', 'doctor')
    >>> settings == Frozen({"k": 3, "words": ("nurse", "doctor")})
    True
    """

    __slots__ = ("_items",)
    _items: dict[str, Json]

    def __init__(self, items: Mapping[str, object]) -> None:
        if not isinstance(items, Mapping):
            raise LevelheadError(
                f"{type(items).__name__} is no mapping: {items!r:.80}", mend="give names to values"
            )
        canonical(items)  # refuses, by name, what has no exact JSON form
        object.__setattr__(self, "_items", {key: _frozen(items[key]) for key in sorted(items)})

    def __getitem__(self, key: str) -> Json:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(content_hash(self))

    def __eq__(self, other: object) -> bool:
        # By bytes, not by value: 1, 1.0 and True are equal in Python and different in a hash.
        return isinstance(other, Frozen) and canonical(self) == canonical(other)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __reduce__(self) -> tuple[object, ...]:
        return Frozen, (dict(self._items),)

    def __repr__(self) -> str:
        return f"Frozen({dict(self._items)!r})"


def _frozen(value: object) -> Json:
    if isinstance(value, Mapping):
        return Frozen(value)
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value  # type: ignore[return-value]  # canonical() has admitted only JSON scalars
