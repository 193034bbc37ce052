"""Frames that name a group before a target."""

import pytest

from levelhead.core.errors import UnknownNameError
from levelhead.data.counterfactuals.templates import (
    CARRIER_FRAMES,
    fill_carrier_frames,
    subject_phrase,
)


@pytest.mark.parametrize("sort", CARRIER_FRAMES)
def test_both_words_are_where_they_are_said_to_be(sort):
    for kind, word in (("adjective", "Black"), ("role", "actress"), ("pronoun", "she")):
        result = list(
            fill_carrier_frames(subject_phrase(kind, None), word, "engineer", carrier_kind=sort)
        )
        assert len(result) == 4
        for item in result:
            assert item.text[slice(*item.group)].lower() == word.lower()
            assert item.text[slice(*item.target)] == "engineer"
            assert item.group < item.target
            assert item.text[0].isupper()
            assert item.text.endswith(".")
            assert "{" not in item.text


def test_a_few_frames_and_articles():
    (single,) = fill_carrier_frames(
        "the {word}", "woman", "engineer", carrier_kind="thing", max_frames=1
    )
    assert single.text == "The woman can be an engineer."


def test_what_is_no_subject():
    assert subject_phrase("title", None) is None
    assert subject_phrase("pronoun", "possessive determiner") is None
    assert subject_phrase("pronoun", "subject") == "{word}"


def test_an_unknown_sort_is_refused():
    with pytest.raises(UnknownNameError, match="no kind of target named 'verb'"):
        list(fill_carrier_frames("the {word}", "woman", "nurse", carrier_kind="verb"))
