"""Items cut into shards by the hash of their content, so that nothing else decides the cut.

Not the order of the items, nor the number of workers, nor what was done before. The number of
shards is a power of two, and a shard holds the items whose hash starts with its bits: one item more
changes one shard, until the data have doubled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurable

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
@dataclass(frozen=True)
class Shard:
    """Some of the items, in the order of their ids."""

    index: int
    of: int
    items: tuple[str, ...]
    """Content hashes of the items."""

    @property
    def key(self) -> str:
        """The content hash of the shard: of its items, not of its place among the others."""
        return content_hash(self.items)


def shards(items: Iterable[str], *, size: int) -> tuple[Shard, ...]:
    """Cut content hashes into non-empty shards of about `size` at most.

    >>> from levelhead.core.canonical_json import content_hash
    >>> cut = shards((content_hash(i) for i in range(1000)), size=100)
    >>> cut[0].of, len(cut), sum(len(shard.items) for shard in cut)
    (16, 16, 1000)
    """
    ids = sorted(items)
    _check(ids, size)
    bits = max(len(ids) - 1, 0) // size
    bits = bits.bit_length()
    cut: dict[int, list[str]] = {}
    for item in ids:
        cut.setdefault(int(item[:16], 16) >> (64 - bits), []).append(item)
    return tuple(Shard(index, 2**bits, tuple(some)) for index, some in sorted(cut.items()))


def _check(ids: list[str], size: int) -> None:
    if not ids:
        raise NotMeasurable("there are no items to cut into shards", mend="check the data")
    if size < 1:
        raise LevelheadError(f"a shard of {size} items", mend="give a size of 1 or more")
    for item in ids:
        if len(item) != 64 or not set(item) <= set("0123456789abcdef"):
            raise LevelheadError(
                f"{item!r} is not a content hash", mend="give content_hash(item) for every item"
            )
    twice = [item for item, times in Counter(ids).items() if times > 1]
    if twice:
        raise LevelheadError(
            f"{len(twice)} items are listed twice, the first {twice[0]}",
            mend="drop duplicates before cutting: each item is read once",
        )
