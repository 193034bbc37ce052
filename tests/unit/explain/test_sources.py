"""Sources of pairs: data set, mined folder, file, lexicon."""

import json

import pytest
from rulers import WORDS

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.data.catalog.datasets import dataset
from levelhead.data.corpus.mine import mine
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.records import Template
from levelhead.explain.attention.pair_sources import (
    from_dataset,
    from_file,
    from_mined,
    pairs_from,
    templated,
)

ROW = {
    "text": "The woman is a nurse.",
    "twin": "The man is a nurse.",
    "attribute": "woman",
    "target": "nurse",
    "group": "female",
}


def test_a_file_of_your_own(tmp_path):
    rows = [ROW, ROW, ROW | {"target": "pilot"}]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = pairs_from(path)
    assert [one.id for one in found.pairs] == ["row 1"]
    assert dict(found.left_out) == {
        "it stands there twice": 1,
        "its target does not stand in it": 1,
    }
    assert found.data[0][0] == "own.jsonl"
    table = tmp_path / "own.tsv"
    table.write_text("\t".join(ROW) + "\n" + "\t".join(ROW.values()) + "\n")
    assert from_file(table).pairs == found.pairs


def test_a_file_without_a_column_says_which(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("text,twin\na,b\n")
    with pytest.raises(UnknownName, match=r"column of own\.csv named 'attribute'"):
        from_file(path)


def test_mined_pairs(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("The woman is a nurse.\nThe woman, a nurse, a secretary.\n")
    mine([str(corpus)], str(tmp_path / "out"))
    found = pairs_from(tmp_path / "out")
    assert found.pairs[0].counter.text == "The man is a nurse."
    assert found.pairs[0].group == "female"
    assert dict(found.left_out) == {"it holds several targets": 1}
    assert pairs_from(tmp_path / "out" / "pairs.jsonl") == found


def test_other_lines_are_refused(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(LevelheadError, match="not as `levelhead mine` writes it") as error:
        from_mined(tmp_path)
    assert error.value.mend == "mine the corpus again"


def test_the_data_set(monkeypatch):
    slots = (
        ("gender", "F"),
        ("attribute", "woman"),
        ("target", "nurse"),
        ("counter_sentence", ROW["twin"]),
    )
    monkeypatch.setattr(
        type(dataset("counter-stereotype")),
        "items",
        lambda self, part: iter([Template("all-0", ROW["text"], slots)]),
    )
    found = pairs_from("counter-stereotype")
    assert found.pairs[0].group == "F"
    assert found.data[0][0] == "counter-stereotype/pairs.tsv"


def test_a_data_set_of_something_else(monkeypatch):
    monkeypatch.setattr(
        type(dataset("counter-stereotype")),
        "items",
        lambda self, part: iter([Template("1", "", ())]),
    )
    with pytest.raises(LevelheadError, match="holds no sentences with their twins"):
        from_dataset("counter-stereotype")


def test_nothing_is_refused(tmp_path):
    with pytest.raises(LevelheadError, match="neither a data set, nor a folder") as error:
        pairs_from(tmp_path / "nowhere.tsv")
    assert "text, twin, attribute, target, group" in error.value.mend
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(ROW | {"twin": "Another."}))
    with pytest.raises(NotMeasurable, match=r"its twin differs in more than the attribute \(1\)"):
        pairs_from(path)


def test_frames_of_a_lexicon():
    found = templated(WORDS, sort="adjective")
    # 10 targets, 2 pairs of words, 4 frames; a target's own group's word comes in the original.
    assert len(found) == 80
    first = found.pairs[0]
    assert (first.original.text, first.counter.text) == ("She can be nurse.", "He can be nurse.")
    assert {one.group for one in found.pairs if one.word == "lazy"} == {"male"}
    for one in found.pairs:
        assert one.original.attribute < one.original.target
    race = templated(lexicon("race-en"), targets="threat")
    assert race.pairs[0].original.text == "The Black person would be described as criminal."
    assert len(race) == 5 * 16 * 4
    told = dict(templated(lexicon("gender-en"), targets="traits").left_out)
    assert told["a title that cannot be the subject of a frame"] > 0
