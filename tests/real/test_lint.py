"""The linter on the real sets: the faults that are known, and 200 rows read by hand."""

import csv
from pathlib import Path

import pytest
from assets import asset
from command import levelhead

from levelhead.data.catalog.datasets import dataset
from levelhead.data.lint import lint

LABELS = Path(__file__).with_name("lint_labels.csv")
"""100 flagged and 100 unflagged contexts, drawn at random and read: faulty or clean."""


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))


def flags(part, rule):
    result = lint(dataset("stereoset-swapped").items(part))
    return [flag for flag in result if flag.rule == rule]


def test_unrelated_sentences_that_differ():
    assert len(flags("dev", "unrelated differs")) == 12
    assert len(flags("test", "unrelated differs")) == 69


def test_contexts_that_were_not_swapped():
    contexts = [flag.item for flag in flags("test", "unswapped") if flag.field == "context"]
    assert contexts == ["test-254", "test-502"]


def test_ungrammatical_swaps_that_are_known():
    # kitchen, fantasy football team, kids, own company, beer: each of "him"
    known = {"dev-1", "dev-12", "dev-26", "dev-64", "dev-169"}
    assert known <= {flag.item for flag in flags("dev", "ungrammatical")}
    not_minimal = {flag.item for flag in flags("dev", "not minimal")}
    assert "dev-224" in not_minimal  # "Ask grandmother is she"


def test_the_triples_that_the_authors_dropped():
    inter = [
        item
        for item in dataset("stereoset").items("dev")
        if item.kind == "intersentence" and item.bias == "gender"
    ]
    stored = list(dataset("stereoset-swapped").items("dev"))
    known = {item.context for item in stored} | {item.twin_context for item in stored}
    gone = [item.id for item in inter if item.context not in known]
    assert len(inter) == 242
    edited = {"dev-792", "dev-3910"}  # kept with another context
    dropped = set(gone) - edited
    assert len(dropped) == 8
    assert dropped <= {flag.item for flag in lint(inter)}


def test_rows_read_by_hand():
    with LABELS.open(newline="") as file:
        labels = {row["item"]: row["verdict"] for row in csv.DictReader(file)}
    items = [t for part in ("dev", "test") for t in dataset("stereoset-swapped").items(part)]
    flagged = {flag.item for flag in lint(items)}
    caught = [verdict for item, verdict in labels.items() if item in flagged]
    passed = [verdict for item, verdict in labels.items() if item not in flagged]
    assert len(caught) >= 90
    assert len(passed) >= 90
    assert caught.count("faulty") / len(caught) >= 0.90
    assert passed.count("faulty") / len(passed) <= 0.05


def test_the_command_line():
    result = levelhead("data", "lint", "stereoset-swapped", "--part", "dev")
    assert result.returncode == 1
    assert "   12  unrelated differs" in result.stdout
    base = levelhead("data", "lint", "winogender")
    assert base.returncode == 0
    assert "only checked for encoding, empty texts and duplicates" in base.stdout
    assert "only checked for encoding" not in result.stdout
    assert levelhead("data", "lint", "nothing").returncode == 3
    subset = asset("data", "gender-swapped-stereoset", "dev.csv")
    assert (
        levelhead("data", "lint", subset, "--format", "twins").stdout.splitlines()[-1:]
        == (result.stdout.splitlines()[-1:])
    )
    assert levelhead("data", "lint", subset, "--format", "twin").returncode == 3
