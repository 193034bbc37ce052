"""The filter keeps what `levelhead data mine` keeps, and says so in the same rows."""

import json
import sys

import pytest
from datatrove.data import Document

from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.mine import mine_corpus
from levelhead.interop.datatrove import PAIRS_KEY, CounterfactualPairs

TEXTS = [
    "The nurse saw her yesterday.",
    "She is a nurse and he is a pilot.",
    "Nothing to see here.",
    "The engineer lost his keys. The man was bold. So it was.",
    "Ma\u00f1ana he\u2019s a mechanic.",
    "\u201cThe secretary lost her keys,\u201d they said.",
]


def documents():
    return [Document(text=text, id=str(i)) for i, text in enumerate(TEXTS)]


def stored_result(step):
    return [row for doc in step.run(documents()) for row in doc.metadata[PAIRS_KEY]]


@pytest.mark.parametrize("size", [1, 4])
def test_the_ids_are_those_of_mining(tmp_path, size):
    (tmp_path / "c.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    mine_corpus([tmp_path / "c.txt"], tmp_path / "out")
    lines = (tmp_path / "out" / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    mined = {row["id"]: row for row in map(json.loads, lines)}
    result = {row["id"]: row for row in stored_result(CounterfactualPairs(batch_size=size))}
    assert result == mined
    assert len(mined) >= 4


def test_documents_without_a_pair_go_with_a_reason():
    step = CounterfactualPairs(batch_size=10)
    assert [doc.id for doc in step.run(documents())] == ["0", "3", "4", "5"]
    assert step.stats["dropped_no word"].total == 1
    assert step.stats["dropped_no pair"].total == 1


def test_without_polars_it_is_slower_and_the_same(monkeypatch):
    usual = stored_result(CounterfactualPairs(batch_size=10))
    monkeypatch.setitem(sys.modules, "polars", None)
    assert stored_result(CounterfactualPairs(batch_size=10)) == usual


@pytest.mark.parametrize("name", ["datatrove", "lm_eval"])
def test_what_is_not_installed_is_said(monkeypatch, name):
    for item in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, item)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"levelhead.interop.{name}", raising=False)
    with pytest.raises(LevelheadError, match="is not installed"):
        __import__(f"levelhead.interop.{name}")
