"""Split items into shards by the hash of their content.

The split does not depend on the order of the items, the number of workers or earlier runs. The
number of shards is a power of two, and a shard contains the items whose hash starts with its bits:
a new item changes only one shard, until the data have doubled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
@dataclass(frozen=True)
class Shard:
    """A part of the items, in the order of their ids."""

    items: tuple[str, ...]
    """Content hashes of the items."""

    @property
    def key(self) -> str:
        """Content hash of the shard."""
        return content_hash(self.items)


def shard_items(items: Iterable[str], *, size: int) -> tuple[Shard, ...]:
    """Split content hashes into non-empty shards of about `size` items at most, in order of hash.

    >>> from levelhead.core.canonical_json import content_hash
    >>> cut = shard_items((content_hash(i) for i in range(1000)), size=100)
    >>> len(cut), sum(len(shard.items) for shard in cut)
    (16, 1000)

    Args:
        items: content hashes of the items.
        size: approximate largest number of items per shard.
    """
    ids = sorted(items)
    _check_items(ids, size)
    # Smallest power of two with at most `size` items per shard on average.
    bits = max(len(ids) - 1, 0) // size
    bits = bits.bit_length()
    buckets: dict[int, list[str]] = {}
    for item in ids:
        # The first 64 bits of SHA-256 are uniform, so their top bits split the items evenly.
        buckets.setdefault(int(item[:16], 16) >> (64 - bits), []).append(item)
    return tuple(Shard(tuple(bucket)) for _, bucket in sorted(buckets.items()))


def _check_items(ids: list[str], size: int) -> None:
    if not ids:
        raise NotMeasurableError("there are no items to split into shards", hint="check the data")
    if size < 1:
        raise LevelheadError(f"a shard of {size} items", hint="give a size of 1 or more")
    for item in ids:
        if len(item) != 64 or not set(item) <= set("0123456789abcdef"):
            raise LevelheadError(
                f"{item!r} is not a content hash", hint="give content_hash(item) for every item"
            )
    duplicates = [item for item, times in Counter(ids).items() if times > 1]
    if duplicates:
        raise LevelheadError(
            f"{len(duplicates)} items are listed twice, the first {duplicates[0]}",
            hint="drop duplicates before the split: each item is queried once",
        )
