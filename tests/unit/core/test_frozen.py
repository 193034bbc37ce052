import pickle

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict


def test_it_is_frozen_at_every_depth():
    inner = {"words": ["a"]}
    frozen = FrozenDict({"inner": inner})
    inner["words"].append("b")
    assert frozen["inner"]["words"] == ("a",)
    with pytest.raises(TypeError):
        frozen["inner"]["words"] = ()
    with pytest.raises(AttributeError, match="FrozenDict is frozen"):
        frozen.other = 1
    with pytest.raises(AttributeError, match="FrozenDict is frozen"):
        frozen._items = {}


def test_equality_and_hash_are_by_bytes():
    assert FrozenDict({"a": 1, "b": (2,)}) == FrozenDict({"b": [2], "a": 1})
    assert hash(FrozenDict({"a": 1, "b": (2,)})) == hash(FrozenDict({"b": [2], "a": 1}))
    assert FrozenDict({"a": 1}) != FrozenDict({"a": 1.0})
    assert FrozenDict({"a": 1}) != {"a": 1}


def test_it_survives_pickling():
    frozen = FrozenDict({"a": {"b": [1, {"c": None}]}})
    assert pickle.loads(pickle.dumps(frozen)) == frozen  # noqa: S301  # our own bytes


@pytest.mark.parametrize("value", [[], "", [1], 3, None])
def test_only_mappings_are_mappings(value):
    with pytest.raises(LevelheadError, match="is no mapping"):
        FrozenDict(value)


def test_what_json_cannot_say_is_refused():
    with pytest.raises(LevelheadError, match=r"value\['a'\] has no exact JSON form: float nan"):
        FrozenDict({"a": float("nan")})
