import enum
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


def shuffled(value):
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_it_reads_back_exactly_and_writes_the_same_bytes(value):
    read = json.loads(to_canonical_json(value))
    assert repr(shuffled(shuffled(read))) == repr(read)
    assert to_canonical_json(read) == to_canonical_json(value) == to_canonical_json(shuffled(value))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(x):
    back = json.loads(to_canonical_json(x))
    assert back == x
    assert math.copysign(1, back) == math.copysign(1, x)


def test_whole_numbers_and_floats_are_told_apart():
    assert len({content_hash(1), content_hash(1.0), content_hash(True), content_hash("1")}) == 4


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (math.nan, "value has no exact JSON form: float nan"),
        ({"a": [1.0, math.inf]}, "value['a'][1] has no exact JSON form: float inf"),
        ({1: "a"}, "a key of value has no exact JSON form: int 1"),
        ({"a": {1, 2}}, "value['a'] has no exact JSON form: set {1, 2}"),
        (np.float64(0.5), "value has no exact JSON form: float64 np.float64(0.5)"),
        (np.int64(3), "value has no exact JSON form: int64 np.int64(3)"),
        (Colour.RED, "value has no exact JSON form: Colour <Colour.RED: 'red'>"),
        ("\ud800", r"value has no exact JSON form: str '\ud800'"),
        (b"bytes", "value has no exact JSON form: bytes b'bytes'"),
    ],
)
def test_what_has_no_exact_form_is_refused_by_place(value, what):
    with pytest.raises(LevelheadError) as error:
        to_canonical_json(value)
    assert error.value.problem == what


def test_what_is_too_large_is_refused():
    loop = []
    loop.append(loop)
    for value in (10**5000, loop):
        with pytest.raises(LevelheadError, match="too large for JSON"):
            to_canonical_json(value)


def test_the_hash_is_that_of_the_bytes():
    # By sha256sum of the bytes {"a":null,"b":[1,2.5,"ü"]}: stores on disk depend on it.
    assert content_hash({"b": [1, 2.5, "ü"], "a": None}) == (
        "3ca4eda1ebfd02e4296104981a1e65d4e87e99084ac993fafbc515a8f6a8ad84"
    )
