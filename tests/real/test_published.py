"""Published word lists, with the numbers their files really hold."""

import pytest
from assets import asset

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.published import (
    SEAT_ROLES,
    WEAT_TESTS,
    load_kaneko,
    load_kurita,
    load_manzini,
    load_manzini_race_pair,
    load_seat_sentences,
    load_seat_test,
    load_weat_set,
    make_weat_sentences,
)
from levelhead.data.lexicons.validate import check_lexicon
from levelhead.models.loading.load import load_word_tokenizer


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))


def test_kaneko():
    every, each = load_kaneko(distinct=False), load_kaneko()
    assert (len(every.terms), len(each.terms)) == (222, 220)
    assert (len(each.words("female")), len(each.words("male"))) == (202, 207)
    a, b = (side.words for side in each.families[0].sides)
    assert len(a) == len(b) == 84
    assert (a[0], b[0]) == ("aerobics", "adventurer")
    flags = {(flag.kind, flag.word) for flag in check_lexicon(each)}
    assert ("both", "tailor") in flags
    assert ("multi-word", "prostatic_utricle") in flags


def test_manzini():
    race = load_manzini("race")
    assert race.groups == ("black", "caucasian", "asian")
    assert len(race.terms) == 6
    sides = {side.name: side.words for side in race.families[0].sides}
    assert (len(sides["caucasian"]), len(sides["black"]), len(sides["asian"])) == (6, 5, 4)
    assert load_manzini("gender").terms
    pair = load_manzini_race_pair()
    assert pair.groups == ("black", "caucasian")
    assert len(pair.terms) == 5  # one of the six rows repeats another
    assert pair.words("black") == ("black", "african", "africa")
    assert pair.words("caucasian") == ("caucasian", "white", "america", "europe")
    assert [len(side.words) for side in pair.families[0].sides] == [6, 5]
    with pytest.raises(LevelheadError, match="no list of Manzini named 'age'"):
        load_manzini("age")


def test_seat_and_weat():
    words = load_seat_test("weat6")
    assert words["targ1"] == ("MaleNames", words["targ1"][1])
    assert [len(words[role][1]) for role in ("targ1", "targ2", "attr1", "attr2")] == [8] * 4
    sizes = [len(entry[1]) for entry in load_seat_test("sent-weat6").values()]
    assert sizes == [64, 64, 101, 112]
    assert "aster" in load_weat_set("flowers")
    with pytest.raises(LevelheadError, match="no WEAT set named 'flower'"):
        load_weat_set("flower")


def test_kurita():
    templates, tests = load_kurita()
    assert [template.text for template in templates] == [
        "GGG likes XXX.",
        "GGG like XXX.",
        "GGG is interested in XXX.",
    ]
    assert dict(templates[1].groups)["female"] == ("girls", "women")
    assert [test.name for test in tests] == ["career_family", "math_arts", "science_arts"]
    assert len(tests[0].side("career")) == 8


def test_words_a_model_cuts_are_named():
    flags = check_lexicon(
        load_kaneko(), tokenize=load_word_tokenizer(asset("models", "minibert-en"))
    )
    cut = {flag.word for flag in flags if flag.kind == "cut"}
    assert "stailor" in cut
    assert "woman" not in cut


def test_sentences_of_seat_belong_to_the_words_they_were_made_from():
    result = load_seat_sentences("sent-weat6")
    assert {
        role: len({word for _, word in rows}) for role, rows in result.items()
    } == dict.fromkeys(SEAT_ROLES, 8)
    assert dict(result["attr2"])["This is a parent."] == "parents"
    assert dict(result["attr2"])["This is a child."] == "children"
    assert dict(result["attr1"])["This is a corporation."] == "corporation"
    alone = load_seat_sentences("heilman_double_bind_likable_one_sentence")
    assert all(text == word for rows in alone.values() for text, word in rows)


@pytest.mark.parametrize("name", list(WEAT_TESTS))
def test_every_weat_test_is_put_into_sentences(name):
    result = make_weat_sentences(name)
    sizes = [len(result[role]) for role in SEAT_ROLES]
    assert sizes[0] == sizes[1]
    assert min(sizes) >= 4 * 6
    assert all(word in text for rows in result.values() for text, word in rows)
