"""A share of what a measure asks: the same part every time, and nothing else changes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulers import made, model

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import Frozen
from levelhead.measure.asked import Asked, Item
from levelhead.measure.share import kept, part_of


def asked(words, per=2):
    items = tuple(
        Item(f"{word} {i}", ((word, i),), (word, str(i)), "X") for word in words for i in range(per)
    )
    return Asked("embed", Frozen({}), ("words", "frames"), items)


WORDS = tuple(f"word {i}" for i in range(200))


@given(share=st.floats(0.01, 1))
def test_a_smaller_share_lies_within_a_larger_one(share):
    whole = {word for word in WORDS if kept(word, share)}
    assert {word for word in WORDS if kept(word, share / 2)} <= whole


def test_a_share_keeps_whole_units_whatever_their_order():
    found = part_of(asked(WORDS), 0.25, lambda item: True)
    words = {item.units[0] for item in found.items}
    assert 30 <= len(words) <= 70  # 50 of 200, within 3.3 deviations
    assert len(found.items) == 2 * len(words)
    assert found.notes == (f"a part was asked: {len(words)} of 200 words",)
    backwards = part_of(asked(WORDS[::-1]), 0.25, lambda item: True)
    assert set(backwards.items) == set(found.items)


def test_what_is_not_sampled_is_asked_whole():
    found = part_of(asked(WORDS), 0.25, lambda item: item.units[0] < "word 2")
    assert {item.units[0] for item in found.items} >= {word for word in WORDS if word >= "word 2"}


def test_what_is_said_of_a_unit_goes_with_it():
    """An occupation's prompts with knowledge are not sampled, and are about it."""
    found = part_of(asked(WORDS), 0.25, lambda item: item.units[1] == "0")
    words = {item.units[0] for item in found.items}
    assert 30 <= len(words) <= 70
    assert len(found.items) == 2 * len(words)


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(LevelheadError, match="share"):
        part_of(asked(WORDS), share, lambda item: True)


def test_a_share_is_told_and_makes_another_measure():
    lm, whole = model("seat"), made("seat")
    part = replace(whole, share=0.5)
    assert "share" not in whole.settings
    assert part.settings["share"] == 0.5
    some, every = part.asked(lm)[0], whole.asked(lm)[0]
    assert set(some.items) < set(every.items)
    assert any("a part was asked" in note for note in some.notes)
    assert not any("a part was asked" in note for note in every.notes)
