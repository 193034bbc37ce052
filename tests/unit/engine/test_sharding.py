import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.engine.sharding import shard_items

ITEMS = [content_hash(i) for i in range(3000)]


@given(st.permutations(ITEMS[:40]), st.integers(1, 50))
def test_the_order_of_the_items_does_not_matter(items, size):
    cut = shard_items(items, size=size)
    assert cut == shard_items(ITEMS[:40], size=size)
    assert sorted(item for shard in cut for item in shard.items) == sorted(items)


def test_one_item_more_changes_one_shard():
    before = {shard.key for shard in shard_items(ITEMS[:2900], size=100)}
    after = {shard.key for shard in shard_items(ITEMS[:2901], size=100)}
    assert len(before) == 32
    assert len(before & after) == 31


def test_shards_are_about_as_large_as_asked():
    sizes = [len(shard.items) for shard in shard_items(ITEMS, size=100)]
    assert max(sizes) < 150
    assert sum(sizes) == 3000
    assert len(shard_items(ITEMS, size=3000)) == 1


@pytest.mark.parametrize(
    ("items", "size", "kind", "what"),
    [
        ([], 10, NotMeasurableError, "no items"),
        (ITEMS[:2], 0, LevelheadError, "a shard of 0 items"),
        (["nurse"], 10, LevelheadError, "'nurse' is not a content hash"),
        ([*ITEMS[:3], ITEMS[0]], 10, LevelheadError, "1 items are listed twice"),
    ],
)
def test_what_cannot_be_cut_is_refused(items, size, kind, what):
    with pytest.raises(kind, match=what):
        shard_items(items, size=size)
