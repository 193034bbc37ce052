"""A share of what a measure asks: the same part every time, and nothing else changes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import INFERENCE, agreeing, made, model

from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import DroppedItem
from levelhead.data.prompts.pronoun_agreement import OVER_LIMIT, AgreementSentenceSet
from levelhead.measures.items import MeasureItem, QuerySet, is_in_subsample, subsample_queries
from levelhead.measures.utility.pronoun_agreement import PronounAgreement


def queries_of(words, per=2):
    items = tuple(
        MeasureItem(f"{word} {i}", ((word, i),), (word, str(i)), "X")
        for word in words
        for i in range(per)
    )
    return QuerySet("embed", FrozenDict({}), ("words", "frames"), items)


WORDS = tuple(f"word {i}" for i in range(200))


@given(share=st.floats(0.01, 1))
def test_a_smaller_share_lies_within_a_larger_one(share):
    full = {word for word in WORDS if is_in_subsample(word, share)}
    assert {word for word in WORDS if is_in_subsample(word, share / 2)} <= full


def test_a_share_keeps_whole_units_whatever_their_order():
    result = subsample_queries(queries_of(WORDS), 0.25, lambda item: True)
    words = {item.units[0] for item in result.items}
    assert 30 <= len(words) <= 70  # 50 of 200, within 3.3 deviations
    assert len(result.items) == 2 * len(words)
    assert result.notes == (f"a subsample was measured: {len(words)} of 200 words",)
    backwards = subsample_queries(queries_of(WORDS[::-1]), 0.25, lambda item: True)
    assert set(backwards.items) == set(result.items)


def test_what_is_not_sampled_is_asked_whole():
    result = subsample_queries(queries_of(WORDS), 0.25, lambda item: item.units[0] < "word 2")
    assert {item.units[0] for item in result.items} >= {word for word in WORDS if word >= "word 2"}


def test_what_is_said_of_a_unit_goes_with_it():
    """An occupation's prompts with knowledge are not sampled, and are about it."""
    result = subsample_queries(queries_of(WORDS), 0.25, lambda item: item.units[1] == "0")
    words = {item.units[0] for item in result.items}
    assert 30 <= len(words) <= 70
    assert len(result.items) == 2 * len(words)


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(LevelheadError, match="share"):
        subsample_queries(queries_of(WORDS), share, lambda item: True)


def test_a_share_is_told_and_makes_another_measure():
    lm, full = model("seat"), made("seat")
    part = replace(full, subsample_fraction=0.5)
    assert "subsample_fraction" not in full.settings
    assert part.settings["subsample_fraction"] == 0.5
    some, every = part.queries(lm)[0], full.queries(lm)[0]
    assert set(some.items) < set(every.items)
    assert any("a subsample was measured" in note for note in some.notes)
    assert not any("a subsample was measured" in note for note in every.notes)


def test_the_size_of_the_data_set_is_told_beside_the_part():
    measure, lm = made("crows"), model("crows")
    full, part = (
        replace(measure, subsample_fraction=share)(lm, inference=INFERENCE) for share in (1.0, 0.6)
    )
    assert (full.population, part.population) == (12, 12)
    assert part.n_items < 12
    assert str(full).endswith("n 12 of 12)")
    assert str(part).endswith(f"n {part.n} of 12)")
    lost = part.model_copy(update={"dropped": (DroppedItem("x", "an unknown word"),)})
    assert str(lost).endswith(f"n {part.n} of 12, {part.n + 1} asked)")


def test_a_limit_tells_the_size_of_the_data_set_too():
    measure = made("pppl", limit=4)
    result = measure(model("pppl"), inference=INFERENCE)
    assert (result.n_items, result.population) == (4, 10)
    assert result.sampled_fraction == 0.4
    assert replace(measure, subsample_fraction=0.5).queries(model("pppl"))[0].population == 10


def test_passages_beyond_the_limit_count_as_not_asked():
    measure = PronounAgreement(sources=("gap",), limit=20)
    left = (("no pronoun", 7), (OVER_LIMIT, 30))
    vars(measure)["_sentences_by_source"] = {
        "gap": AgreementSentenceSet(sentences=agreeing(), left_out=left)
    }
    (query_set,) = measure.queries(model("pronoun_agreement"))
    assert query_set.population == len(query_set.items) + 30
