"""Frames that name a group before a target."""

import pytest

from levelhead.core.errors import UnknownName
from levelhead.data.counterfactuals.templates import CARRIES, carried, subject


@pytest.mark.parametrize("sort", CARRIES)
def test_both_words_are_where_they_are_said_to_be(sort):
    for kind, word in (("adjective", "Black"), ("role", "actress"), ("pronoun", "she")):
        found = list(carried(subject(kind, None), word, "engineer", sort=sort))
        assert len(found) == 4
        for one in found:
            assert one.text[slice(*one.group)].lower() == word.lower()
            assert one.text[slice(*one.target)] == "engineer"
            assert one.group < one.target
            assert one.text[0].isupper()
            assert one.text.endswith(".")
            assert "{" not in one.text


def test_a_few_frames_and_articles():
    (one,) = carried("the {word}", "woman", "engineer", sort="thing", frames=1)
    assert one.text == "The woman can be an engineer."


def test_what_is_no_subject():
    assert subject("title", None) is None
    assert subject("pronoun", "possessive determiner") is None
    assert subject("pronoun", "subject") == "{word}"


def test_an_unknown_sort_is_refused():
    with pytest.raises(UnknownName, match="no sort of target named 'verb'"):
        list(carried("the {word}", "woman", "nurse", sort="verb"))
