"""Pairs of sentences: they differ in the word alone, and every choice is by seed."""

from collections import Counter

import pytest

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.counterfactuals.contrast_pairs import (
    contrast_pairs,
    contrast_pairs_digest,
    placebo_pairs,
    swapped_pairs,
)
from levelhead.data.counterfactuals.neutral_frames import FRAMES, NUMBER_PAIRS, TENSE_PAIRS
from levelhead.data.lexicons.lexicon import Lexicon, Term, lexicon

GENDER = lexicon("gender-en")


def differ_in_the_word(pair):
    (a, b), (c, d) = pair.spans
    assert pair.first[:a] == pair.second[:c]
    assert pair.first[b:] == pair.second[d:]
    assert f"{pair.first[a:b]}/{pair.second[c:d]}".casefold() == pair.unit.casefold()


@pytest.mark.parametrize("name", ["gender-en", "age-en", "race-en", "religion-en"])
def test_a_pair_differs_in_its_word_alone(name):
    pairs = contrast_pairs(name)
    for pair in pairs:
        differ_in_the_word(pair)
        assert pair.first[0].isupper()
    assert len({pair.id for pair in pairs}) == len(pairs)
    assert set(Counter(pair.unit for pair in pairs).values()) == {6}
    single, other = lexicon(name).resolve_group_pair()
    assert {pair.unit for pair in pairs} == {
        f"{a}/{b}" for a, b in lexicon(name).pairs(single, other)
    }


def test_words_stand_where_their_kind_stands():
    texts = {pair.first for pair in contrast_pairs(GENDER)}
    assert {"She could be here.", "It was about her.", "It was her turn.", "It was hers."} <= texts
    assert {"Mrs Taylor could be here.", "Yes, ma'am.", "The mother could be here."} <= texts
    assert "The young person could be here." in {pair.first for pair in contrast_pairs("age-en")}
    assert "She was here." not in texts


def test_groups_can_be_chosen():
    pairs = contrast_pairs("race-en", groups=("asian", "white"))
    assert pairs[0].first == "The Asian person could be here."
    assert pairs[0].second == "The White person could be here."
    with pytest.raises(UnknownNameError, match="group"):
        contrast_pairs(groups=("female", "mole"))


def test_n_spreads_over_the_words_and_is_nested():
    pairs = contrast_pairs(GENDER, n=200, seed=3)
    assert contrast_pairs(GENDER, n=20, seed=3) == pairs[:20]
    assert contrast_pairs(GENDER, n=20, seed=4) != pairs[:20]
    units = len({pair.unit for pair in contrast_pairs(GENDER)})
    assert len({pair.unit for pair in pairs[:units]}) == units
    assert max(Counter(pair.unit for pair in pairs).values()) == 2
    assert sorted(contrast_pairs(GENDER, n=len(contrast_pairs(GENDER)))) == sorted(
        contrast_pairs(GENDER)
    )
    for n in (0, 10_000):
        with pytest.raises(LevelheadError, match=f"{n} pairs are requested and there are 1080"):
            contrast_pairs(GENDER, n=n)


def test_a_lexicon_without_pairs_is_refused():
    generic = Term("person", (("a", "x"), ("b", "y")), generic=("a",))
    subset = Lexicon("own", "en", ("a", "b"), "", "", "", "", (generic,), (), ())
    with pytest.raises(NotMeasurableError, match="own has no pair of words of one meaning for a"):
        contrast_pairs(subset)
    with pytest.raises(NotMeasurableError, match="own lists no words of one group"):
        placebo_pairs("names", lexicon=subset)


@pytest.mark.parametrize("contrast", ["tense", "number", "names"])
def test_placebo_pairs_name_no_two_groups(contrast):
    pairs = placebo_pairs(contrast)
    for pair in pairs:
        differ_in_the_word(pair)
        sides = [GENDER.groups_of(word) for word in pair.unit.split("/")]
        assert sides[0] == sides[1]
        assert bool(sides[0]) == (contrast == "names")
    assert len({pair.id for pair in pairs}) == len(pairs) >= 144
    assert placebo_pairs(contrast, n=7, seed=1) == placebo_pairs(contrast, n=9, seed=1)[:7]


def test_placebo_words_are_written_here():
    assert len(set(TENSE_PAIRS)) == len(set(NUMBER_PAIRS)) == 24
    assert all(frame.count("{word}") == 1 for frames in FRAMES.values() for frame in frames)
    assert placebo_pairs("tense")[0].second == "They walked here."
    with pytest.raises(UnknownNameError, match="there is no placebo contrast named 'tens'"):
        placebo_pairs("tens")


def test_running_text_is_paired_with_its_swap():
    texts = [
        "He saw his dog.",
        "She is here.",
        "Nothing.",
        "He saw her.",
        "He is here.",
        "They love her cooking.",
        "A woman's hat",
    ]
    result = swapped_pairs(texts)
    assert [(pair.first, pair.second) for pair in result.pairs] == [
        ("She saw her dog.", "He saw his dog."),
        ("She is here.", "He is here."),
        ("A woman's hat", "A man's hat"),
    ]
    assert [pair.spans for pair in result.pairs] == [
        ((0, 3), (0, 2)),
        ((0, 3), (0, 2)),
        ((2, 7), (2, 5)),
    ]
    assert len({pair.unit for pair in result.pairs}) == 3
    assert dict(result.left_out) == {
        "it names both groups": 1,
        "it names neither group": 1,
        "the same pair stands there already": 1,
        "its context does not show whether it is an object or possessive": 1,
    }
    assert swapped_pairs(texts, GENDER, n=2, seed=1).left_out == result.left_out
    assert len(swapped_pairs(texts, GENDER, n=2).pairs) == 2
    mended = swapped_pairs(texts, groups=("male", "female")).pairs[0]
    assert (mended.first, mended.spans) == ("He saw his dog.", ((0, 2), (0, 3)))


def test_no_text_to_pair_is_no_result():
    with pytest.raises(NotMeasurableError, match=r"left out: 2 \(it names neither group\)"):
        swapped_pairs(["Nothing.", "Here."])
    with pytest.raises(NotMeasurableError, match="left out: no text given"):
        swapped_pairs([])


def test_pairs_have_a_hash():
    pairs = contrast_pairs(GENDER)
    assert contrast_pairs_digest(pairs) == contrast_pairs_digest(contrast_pairs("gender-en"))
    assert contrast_pairs_digest(pairs) != contrast_pairs_digest(pairs[::-1])
