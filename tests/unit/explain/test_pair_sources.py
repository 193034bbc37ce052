"""Sources of pairs: data set, mined folder, file, lexicon."""

import json

import pytest
from metric_cases import WORDS

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.catalog.datasets import dataset
from levelhead.data.corpus.mine import mine_corpus
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.records import Template
from levelhead.explain.attention.pair_sources import (
    counterstereotype_pairs,
    pairs_from_dataset,
    pairs_from_file,
    pairs_from_mined,
    pairs_from_templates,
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
    result = counterstereotype_pairs(path)
    assert [pair.id for pair in result.pairs] == ["row 1"]
    assert dict(result.exclusions) == {
        "it stands there twice": 1,
        "its target does not stand in it": 1,
    }
    assert result.data[0][0] == "own.jsonl"
    table = tmp_path / "own.tsv"
    table.write_text("\t".join(ROW) + "\n" + "\t".join(ROW.values()) + "\n")
    assert pairs_from_file(table).pairs == result.pairs


def test_a_file_without_a_column_says_which(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("text,twin\na,b\n")
    with pytest.raises(UnknownNameError, match=r"column of own\.csv named 'attribute'"):
        pairs_from_file(path)


def test_mined_pairs(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("The woman is a nurse.\nThe woman, a nurse, a secretary.\n")
    mine_corpus([str(corpus)], str(tmp_path / "out"))
    result = counterstereotype_pairs(tmp_path / "out")
    assert result.pairs[0].counter.text == "The man is a nurse."
    assert result.pairs[0].group == "female"
    assert dict(result.exclusions) == {"it holds several targets": 1}
    assert counterstereotype_pairs(tmp_path / "out" / "pairs.jsonl") == result


def test_other_lines_are_refused(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(LevelheadError, match="not as `levelhead data mine` writes it") as error:
        pairs_from_mined(tmp_path)
    assert error.value.hint == "mine the corpus again"


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
    result = counterstereotype_pairs("counter-stereotype")
    assert result.pairs[0].group == "F"
    assert result.data[0][0] == "counter-stereotype/pairs.tsv"


def test_a_data_set_of_something_else(monkeypatch):
    monkeypatch.setattr(
        type(dataset("counter-stereotype")),
        "items",
        lambda self, part: iter([Template("1", "", ())]),
    )
    with pytest.raises(LevelheadError, match="holds no sentences with their twins"):
        pairs_from_dataset("counter-stereotype")


def test_nothing_is_refused(tmp_path):
    with pytest.raises(LevelheadError, match="neither a data set, nor a folder") as error:
        counterstereotype_pairs(tmp_path / "nowhere.tsv")
    assert "text, twin, attribute, target, group" in error.value.hint
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(ROW | {"twin": "Another."}))
    with pytest.raises(
        NotMeasurableError, match=r"its twin differs in more than the attribute \(1\)"
    ):
        counterstereotype_pairs(path)


def test_frames_of_a_lexicon():
    result = pairs_from_templates(WORDS, carrier_kind="adjective")
    # 10 targets, 2 pairs of words, 4 frames; a target's own group's word comes in the original.
    assert len(result) == 80
    first = result.pairs[0]
    assert (first.original.text, first.counter.text) == ("She can be nurse.", "He can be nurse.")
    assert {pair.group for pair in result.pairs if pair.target_word == "lazy"} == {"male"}
    for pair in result.pairs:
        assert pair.original.attribute < pair.original.target
    race = pairs_from_templates(lexicon("race-en"), targets="threat")
    assert race.pairs[0].original.text == "The Black person would be described as criminal."
    assert len(race) == 5 * 16 * 4
    output = dict(pairs_from_templates(lexicon("gender-en"), targets="traits").exclusions)
    assert output["a title that cannot be the subject of a frame"] > 0
