import dataclasses

import pytest
from metric_cases import INFERENCE, WORDS, corpus, made, model

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.lexicons.lexicon import Term
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.registry import parse_measures
from levelhead.measures.robustness.all_group_pairs import all_group_pairs
from levelhead.measures.run import run_measures

THREE = dataclasses.replace(
    WORDS,
    name="three",
    groups=("female", "male", "other"),
    terms=(*WORDS.terms, Term("person", (("other", "house"),)), Term("person", (("other", "in"),))),
)
RULER = Seat(THREE, targets="things", corpus=corpus())


def test_all_pairs_are_measured_and_corrected_together():
    three = all_group_pairs(RULER)
    assert [item.groups for item in three] == [
        ("female", "male"), ("female", "other"), ("male", "other"),
    ]  # fmt: skip
    result = run_measures(model("seat"), three, inference=INFERENCE).measurements
    assert [item.groups for item in result] == [item.groups for item in three]
    assert [item.p.family for item in result] == [3, 3, 3]
    assert all(item.p.adjusted >= item.p.value for item in result)
    assert max(item.p.adjusted / item.p.value for item in result) > 1.5
    assert len({item.comparability_key for item in result}) == 3


def test_exchanged_groups_turn_the_value_round():
    single = dataclasses.replace(RULER, groups=("female", "other"))(
        model("seat"), inference=INFERENCE
    )
    two = dataclasses.replace(RULER, groups=("other", "female"))(model("seat"), inference=INFERENCE)
    assert two.value == pytest.approx(-single.value)


def test_a_group_left_out_is_said():
    result = RULER(model("seat"), inference=INFERENCE)
    assert result.groups == ("female", "male")
    assert "female and male are compared; not other" in result.notes
    chosen = dataclasses.replace(RULER, groups=("female", "male"))(
        model("seat"), inference=INFERENCE
    )
    assert not any("are compared" in note for note in chosen.notes)


@pytest.mark.parametrize("groups", [("female", "male", "other"), ("female",), ("female", "female")])
def test_what_is_defined_for_two_refuses_otherwise(groups):
    for measure in (RULER, made("cloze"), made("nli_gap")):
        with pytest.raises(LevelheadError, match=r"where two are compared|twice|no group named"):
            dataclasses.replace(measure, groups=groups)(model(measure.name), inference=INFERENCE)


def test_measures_whose_data_say_the_groups_have_no_pairs():
    with pytest.raises(LevelheadError, match="those of its data"):
        all_group_pairs(made("strength"))
    with pytest.raises(UnknownNameError):
        all_group_pairs(RULER, ("female", "nobody"))[0](model("seat"))
    assert len(parse_measures("seat:lexicon=race-en,groups=all,contexts_per_word=3")) == 6
    assert len(parse_measures("seat:lexicon=race-en,contexts_per_word=3")) == 1
