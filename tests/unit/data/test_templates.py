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
        found = list(
            fill_carrier_frames(subject_phrase(kind, None), word, "engineer", carrier_kind=sort)
        )
        assert len(found) == 4
        for one in found:
            assert one.text[slice(*one.group)].lower() == word.lower()
            assert one.text[slice(*one.target)] == "engineer"
            assert one.group < one.target
            assert one.text[0].isupper()
            assert one.text.endswith(".")
            assert "{" not in one.text


def test_a_few_frames_and_articles():
    (one,) = fill_carrier_frames(
        "the {word}", "woman", "engineer", carrier_kind="thing", max_frames=1
    )
    assert one.text == "The woman can be an engineer."


def test_what_is_no_subject():
    assert subject_phrase("title", None) is None
    assert subject_phrase("pronoun", "possessive determiner") is None
    assert subject_phrase("pronoun", "subject") == "{word}"


def test_an_unknown_sort_is_refused():
    with pytest.raises(UnknownNameError, match="no kind of target named 'verb'"):
        list(fill_carrier_frames("the {word}", "woman", "nurse", carrier_kind="verb"))
