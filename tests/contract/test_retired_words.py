"""The words of the first vocabulary are noticed wherever they are used (tools/structure.py)."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "structure.py"


@pytest.fixture
def structure(monkeypatch):
    """The tool, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("structure", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "structure", module)  # named tuples look their module up
    spec.loader.exec_module(module)
    return module


def uses(structure, text, file="new.py"):
    module = structure.Module("new", structure.SOURCE / file, text, ast.parse(""))
    return structure.retired_words([module])


def test_no_retired_word_is_used(structure):
    assert structure.retired_words(structure.modules()) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x = 1\ntold_of = 2", "told"),
        ("# Ruler", "Ruler"),
        ("the model was asked", "was asked"),
        ("def refuse_flat(): ...", "refuse_flat"),
    ],
)
def test_a_retired_word_is_noticed(structure, monkeypatch, text, word):
    monkeypatch.setattr(structure, "PROSE", ())
    number = 1 + text.count("\n")
    assert uses(structure, text) == [f"src/levelhead/new.py:{number}: {word}"]


@pytest.mark.parametrize("text", ["the old folder", "a bold line", "x = tolduse"])
def test_parts_of_other_words_are_none(structure, monkeypatch, text):
    monkeypatch.setattr(structure, "PROSE", ())
    assert uses(structure, text) == []


def test_what_is_allowed_is_allowed_in_its_file_only_and_still_there(structure, monkeypatch):
    monkeypatch.setattr(structure, "PROSE", ())
    for file, word in structure.ALLOWED:
        assert word in (structure.ROOT / file).read_text()
        if not file.startswith("src/levelhead/"):
            continue  # a document: the two lines below write modules
        assert uses(structure, word, Path(file).relative_to("src/levelhead")) == []
        assert uses(structure, word) == [f"src/levelhead/new.py:1: {word}"]
