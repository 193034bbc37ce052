"""Pairs: one attribute, one target, a twin that differs in one word; the rest is counted."""

from collections import Counter

import pytest
from metric_cases import WORDS

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.explain.attention.pairs import (
    ATTRIBUTE_AFTER_TARGET,
    AnnotatedSentence,
    CounterPair,
    CounterPairs,
    attribute_first,
    make_counter_pair,
    make_placebo_sentence,
    sample_pairs,
)


def pair(text, twin, attribute="woman", target="nurse", name="1"):
    return make_counter_pair(name, text, twin, group="female", attribute=attribute, target=target)


def test_places_are_found_in_both_texts():
    result = pair("The Nurse saw a woman.", "The Nurse saw a man.")
    assert result == CounterPair(
        "1",
        "female",
        "nurse",
        AnnotatedSentence("The Nurse saw a woman.", (16, 21), (4, 9)),
        AnnotatedSentence("The Nurse saw a man.", (16, 19), (4, 9)),
    )
    moved = pair("A woman, a nurse.", "A gentleman, a nurse.").counter
    assert moved.text[slice(*moved.attribute)] == "gentleman"
    assert moved.text[slice(*moved.target)] == "nurse"


@pytest.mark.parametrize(
    ("text", "twin", "why"),
    [
        ("A nurse.", "A nurse.", "its attribute does not stand in it"),
        ("A womanly nurse.", "A manly nurse.", "its attribute does not stand in it"),
        ("A woman, nurses.", "A man, nurses.", "its target does not stand in it"),
        ("A woman, a nurse, a nurse.", "A man, a nurse, a nurse.", "its target stands in it twice"),
        ("A woman is a nurse.", "A man was a nurse.", "its twin differs in more"),
        ("A woman is a nurse.", "A  is a doctor.", "its twin differs in more"),
        ("A woman is a nurse.", "A is a nurse.", "its twin differs in more"),
        ("A woman is a nurse.", "A Woman is a nurse.", "its twin is the same"),
        ("A woman, a man, a nurse.", "A man, a man, a nurse.", "holds the attribute's counterpart"),
    ],
)
def test_what_does_not_fit_says_why(text, twin, why):
    assert why in pair(text, twin)


def test_one_word_cannot_be_both():
    same = make_counter_pair("1", "A nurse.", "A man.", group="", attribute="nurse", target="nurse")
    assert same == "its attribute and its target overlap"


def many(**counts):
    rows = [
        pair(f"{i} woman is {word}.", f"{i} man is {word}.", target=word, name=f"{word}{i}")
        for word, count in counts.items()
        for i in range(count)
    ]
    return CounterPairs(tuple(rows), (("x", "ab" * 32),))


def test_the_draw_is_even_over_targets_and_does_not_depend_on_the_order():
    pool = many(nurse=20, cook=3, pilot=1, blue=50, rugby=2)
    result = sample_pairs(pool, 10, seed=3)
    assert Counter(pair.target_word for pair in result.pairs) == {"nurse": 6, "cook": 3, "pilot": 1}
    assert dict(result.exclusions) == {
        "control category: colours (blue)": 50,
        "control category: sports (rugby)": 2,
    }
    back = CounterPairs(pool.pairs[::-1], pool.data)
    assert sample_pairs(back, 10, seed=3).pairs == result.pairs
    assert sample_pairs(pool, 10, seed=4).pairs != result.pairs
    assert len(sample_pairs(pool, 500, control_categories=())) == 76
    six = Counter(pair.target_word for pair in sample_pairs(many(a=9, b=9, c=9), 7).pairs)
    assert sorted(six.values()) == [2, 2, 3]


def test_a_draw_of_nothing_is_refused():
    with pytest.raises(
        NotMeasurableError, match=r"no pair is left: control category: colours \(blue\) 3"
    ):
        sample_pairs(many(blue=3))
    with pytest.raises(UnknownNameError, match="kind of targets named 'colors'") as error:
        sample_pairs(many(nurse=3), control_categories=("colors",))
    assert "'colours'" in error.value.hint
    with pytest.raises(LevelheadError, match="1 pairs are too few"):
        sample_pairs(many(nurse=3), 1)


def test_causal_models_need_the_attribute_first():
    pool = CounterPairs(
        (
            pair("A woman is a nurse.", "A man is a nurse."),
            pair("A nurse is a woman.", "A nurse is a man."),
        ),
        (),
        (("before", 2),),
    )
    result = attribute_first(pool)
    assert [pair.original.text for pair in result.pairs] == ["A woman is a nurse."]
    assert dict(result.exclusions) == {"before": 2, ATTRIBUTE_AFTER_TARGET: 1}


def test_a_placebo_stays_in_the_group():
    words = WORDS  # of which woman may become nurse, and man doctor
    result = make_placebo_sentence(
        pair("The woman is lazy.", "The man is lazy.", target="lazy"), words
    )
    assert result == AnnotatedSentence("The nurse is lazy.", (4, 9), (13, 17))
    # Its words elsewhere, other words changed, articles that would be wrong, no word of its own.
    assert make_placebo_sentence(pair("A woman, a nurse.", "A man, a nurse."), words) is None
    two = make_counter_pair("1", "A woman and man, lazy.", "A lady and man, lazy.", group="",
                 attribute="woman", target="lazy")  # fmt: skip
    assert make_placebo_sentence(two, words) is None
    wrong = pair("An woman is lazy.", "An man is lazy.", target="lazy")
    assert make_placebo_sentence(wrong, words) is None
    she = make_counter_pair(
        "1", "she is lazy.", "he is lazy.", group="", attribute="she", target="lazy"
    )
    assert make_placebo_sentence(she, words) is None
