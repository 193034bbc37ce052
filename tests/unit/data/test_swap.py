"""Swaps: by hand, by property, and never by guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError
from levelhead.data.counterfactuals.swap import swap, swap_within_groups
from levelhead.data.lexicons.lexicon import lexicon

GENDER = lexicon("gender-en")
WORDS = sorted({word for group in ("female", "male") for word in GENDER.words(group)})


@pytest.mark.parametrize(
    ("text", "twin"),
    [
        ("She is here.", "He is here."),
        ("SHE SAID SO", "HE SAID SO"),
        ("The woman's hat", "The man's hat"),
        ("she's late, and she'll say he'd known", "he's late, and he'll say she'd known"),
        ("Women\u2019s rights", "Men\u2019s rights"),
        ("Mr. Smith met Mrs. Jones.", "Ms. Smith met Mr. Jones."),
        ("Mr Smith", "Ms Smith"),
        ("Miss Marple will miss you.", "Mr Marple will miss you."),
        ("I saw her.", "I saw him."),
        ("I saw her yesterday.", "I saw him yesterday."),
        ("I saw her brother.", "I saw his sister."),
        ("The mother walked into her kitchen.", "The father walked into his kitchen."),
        ("He is a friend of his.", "She is a friend of hers."),
        ("The choice was his.", "The choice was hers."),
        ("His dog bit him.", "Her dog bit her."),
        ("Her mother-in-law is a businesswoman.", "His father-in-law is a businessman."),
        ("He is a poet.", "She is a poet."),
        ("The poetess and the countess", "The poet and the count"),
        ("They count the votes.", "They count the votes."),
        ("Everyone called her ma'am.", "Everyone called him sir."),
        ("king, queen; prince", "queen, king; princess"),
        ("the goat and his_id", "the goat and his_id"),
        ("his or her book", "her or his book"),
        ("Mr. and Mrs. Smith", "Ms. and Mr. Smith"),
        ("I MISS HER", "I MISS HIM"),
        ("The king's brothers-in-law", "The queen's sisters-in-law"),
        ("his ex-wife", "her ex-husband"),
        ("It was his alone.", "It was hers alone."),
        ("", ""),
    ],
)
def test_by_hand(text, twin):
    assert swap(text, GENDER).text == twin


def test_spans_are_those_of_both_texts():
    swapped = swap("My mother saw her brothers.", GENDER)
    assert swapped.counterfactual == "My father saw his sisters."
    for change in swapped.changes:
        assert swapped.original[change.start : change.end] == change.old
        assert swapped.counterfactual[change.new_start : change.new_end] == change.new
    assert [change.old for change in swapped.changes] == ["mother", "her", "brothers"]


def test_what_cannot_be_decided_is_refused_with_a_reason():
    swapped = swap("Her normally refers to women.", GENDER)
    assert swapped.counterfactual is None
    assert swapped.refusals[0].word == "Her"
    with pytest.raises(LevelheadError, match="does not show whether it is an object") as error:
        swapped.text  # noqa: B018
    assert "dropped" in error.value.hint


def test_other_groups_are_swapped_when_named():
    assert swap("She is a woman.", GENDER, groups=("female", "nonbinary")).counterfactual == (
        "They are a person."
    )
    race = lexicon("race-en")
    assert (
        swap("Black and Asian", race, groups=("black", "asian")).counterfactual == "Asian and Black"
    )
    with pytest.raises(LevelheadError, match="no group named 'women'"):
        swap("x", GENDER, groups=("women", "men"))
    with pytest.raises(LevelheadError, match="female is given twice"):
        swap("x", GENDER, groups=("female", "female"))


def test_a_placebo_keeps_the_group():
    swapped = swap_within_groups("The women met the mother of a boy.", GENDER)
    assert swapped.counterfactual == "The ladies met the aunt of a lad."
    for change in swapped.changes:
        assert GENDER.groups_of(change.old) == GENDER.groups_of(change.new)


def test_every_placebo_keeps_its_group():
    for group, pairs in GENDER.placebos:
        for old, new in pairs:
            assert GENDER.groups_of(old) == GENDER.groups_of(new) == (group,), (old, new)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the he-goat", "he-goat"),
        ("a mother-of-two", "mother-of-two"),
        ("Stephen King wrote it.", "King"),
        ("Sir Isaac Newton", "Sir"),
        ("A friend of his left.", "his"),
        ("Her normally refers to women.", "Her"),
        ("The fiance\u0301e left", "The fiance\u0301e left"),
    ],
)
def test_what_may_be_something_else_is_refused(text, word):
    swapped = swap(text, GENDER)
    assert swapped.counterfactual is None
    assert [refusal.word for refusal in swapped.refusals] == [word]
    assert swapped.refusals[0].reason
    assert GENDER.swap(text) == swapped


@given(st.text())
def test_any_text_is_swapped_or_refused(text):
    swapped = swap(text, GENDER)
    assert (swapped.counterfactual is None) == bool(swapped.refusals)
    if not swapped.changes and not swapped.refusals:
        assert swapped.counterfactual == text


@given(st.lists(st.sampled_from([*WORDS, "saw", "the", "and", ",", "dog", "quickly"]), max_size=12))
def test_everything_but_the_changes_stays(words):
    swapped = swap(" ".join(words), GENDER)
    if swapped.counterfactual is None:
        return
    rest, done = [], 0
    for change in swapped.changes:
        rest.append(swapped.original[done : change.start])
        done = change.end
    rest.append(swapped.original[done:])
    again, done = [], 0
    for change in swapped.changes:
        again.append(swapped.counterfactual[done : change.new_start])
        done = change.new_end
    again.append(swapped.counterfactual[done:])
    assert rest == again


PAIRED = sorted({word for pair in GENDER.pairs("female", "male") for word in pair})


@given(st.sampled_from([word for word in PAIRED if word not in {"her", "his", "hers"}]))
def test_words_of_a_single_pair_come_back(word):
    there = swap(f"The {word} Smith.", GENDER).text
    back = swap(there, GENDER).text
    mates = {a for a, b in GENDER.pairs("female", "male")} | {
        b for a, b in GENDER.pairs("female", "male")
    }
    if back != f"The {word} Smith.":
        # Only words that share a counterpart with another (mum, mom) may come back as that other.
        assert back.split()[1].rstrip(".") in {mate.split()[0].rstrip(".") for mate in mates}
