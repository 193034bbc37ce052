import hashlib

import pytest

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data import tasks
from levelhead.data.catalog.datasets import datasets
from levelhead.data.records import LabelledExample, TextPair
from levelhead.data.tasks import TASKS, count_train_overlap, example_text, get_task_spec


def test_every_row_names_data_sets_that_there_are():
    assert list(TASKS) == [
        *("nli", "mnli", "rte", "mrpc", "cola", "stsb", "wnli", "sst2", "qnli", "qqp"),
    ]
    for row in TASKS.values():
        assert row.dev
        for source in (*row.train, *row.dev, *row.test):
            assert source[1] in datasets()[source[0]].parts
        assert row.is_regression == (row.metrics == ("Pearson", "Spearman"))
        assert row.description
        assert row.limitations
        assert len(row.columns) in (2, 3)
    assert {name for name, row in TASKS.items() if not row.train} == {"sst2", "qnli", "qqp"}


def test_glues_own_metrics():
    output = {name: row.metrics for name, row in TASKS.items() if row.metrics != ("accuracy",)}
    assert output == {
        "mrpc": ("F1", "accuracy"),
        "qqp": ("F1", "accuracy"),
        "cola": ("Matthews",),
        "stsb": ("Pearson", "Spearman"),
    }
    assert get_task_spec("mrpc").labels[1] == "equivalent"
    assert get_task_spec("qqp").labels[1] == "duplicate"


def test_parts_of_several_data_sets_keep_their_ids_apart(monkeypatch):
    class Fake:
        def __init__(self, name):
            self.name = name

        def items(self, part):
            return iter([TextPair(f"{part}-0", f"{self.name} a", "b", "neutral")])

    monkeypatch.setattr(tasks, "dataset", Fake)
    assert get_task_spec("nli").examples("train") == (
        TextPair("snli-train-0", "snli a", "b", "neutral"),
        TextPair("mnli-train-0", "mnli a", "b", "neutral"),
    )


def test_files_of_ones_own_give_labels_by_name_or_by_number(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("question\tsentence\tlabel\nWho?\tHe.\tentailment\nWhy?\tNo.\t1\n", "utf-8")
    result = get_task_spec("qnli").examples("train", str(path))
    assert result == (
        TextPair("row 1", "Who?", "He.", "entailment"),
        TextPair("row 2", "Why?", "No.", "not_entailment"),
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert get_task_spec("qnli").hashes("train", str(path)) == {"file own.tsv": digest}
    single = tmp_path / "own.csv"
    single.write_text("sentence,label\nGood.,positive\nBad.,0\n", "utf-8")
    assert get_task_spec("sst2").examples("dev", str(single)) == (
        LabelledExample("row 1", "Good.", "positive"),
        LabelledExample("row 2", "Bad.", "negative"),
    )


def test_scores_are_numbers_from_0_to_5(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("sentence1,sentence2,score\na,b,3.800\nc,d,5\n", "utf-8")
    assert [example.label for example in get_task_spec("stsb").examples("dev", str(path))] == [
        "3.8",
        "5.0",
    ]
    for wrong in ("5.1", "-1", "much", "nan"):
        path.write_text(f"sentence1,sentence2,score\na,b,{wrong}\n", "utf-8")
        with pytest.raises(LevelheadError, match=f"row 1 has the score '{wrong}'") as error:
            get_task_spec("stsb").examples("dev", str(path))
        assert error.value.hint == "give a number from 0 to 5"


def test_hashes_name_every_file():
    assert get_task_spec("cola").hashes("dev") == {
        f"glue-cola/{file.path}": file.sha256
        for file in datasets()["glue-cola"].files
        if file.part.startswith("dev")
    }
    assert len(get_task_spec("nli").hashes("train")) == 2


def test_what_is_not_to_be_had_is_said_with_the_way_out():
    missing = "no train part of sst2 is available: it is no known data set"
    with pytest.raises(LevelheadError, match=missing) as error:
        get_task_spec("sst2").examples("train")
    assert error.value.hint == (
        "give a file (.csv, .tsv, .jsonl) with the columns sentence, label: train=FILE"
    )
    with pytest.raises(LevelheadError, match="no test part of rte is available: GLUE does not"):
        get_task_spec("rte").hashes("test")
    with pytest.raises(UnknownNameError, match="part of rte named 'valid'"):
        get_task_spec("rte").examples("valid")
    with pytest.raises(UnknownNameError, match="did you mean 'mrpc'"):
        get_task_spec("mprc")


def test_rows_that_do_not_fit_are_said(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("sentence1,sentence2,label\na,b,2\n", "utf-8")
    with pytest.raises(UnknownNameError, match=r"label of rte \(row 1\) named '2'") as error:
        get_task_spec("rte").examples("train", str(path))
    assert "entailment, not_entailment" in error.value.hint
    path.write_text("sentence1,sentence2,label\n", "utf-8")
    with pytest.raises(LevelheadError, match="the train part of rte is empty"):
        get_task_spec("rte").examples("train", str(path))
    path.write_text("first,sentence2,label\na,b,1\n", "utf-8")
    with pytest.raises(UnknownNameError, match="named 'sentence1'"):
        get_task_spec("rte").examples("train", str(path))


def test_examples_seen_before_are_counted():
    train = (TextPair("1", "a", "b", "x"), LabelledExample("2", "c", "y"))
    others = (
        TextPair("3", "a", "b", "y"),
        TextPair("4", "b", "a", "x"),
        LabelledExample("5", "c", "x"),
    )
    assert count_train_overlap(train, others) == 2
    assert [example_text(item) for item in train] == [("a", "b"), "c"]
