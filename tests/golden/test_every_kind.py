"""Every kind of result and every page of help are as they were frozen (tools/golden.py)."""

import importlib.util
import json
from pathlib import Path

import pytest
from assets import asset

PLACE = Path(__file__).parent


def golden():
    """The tool, which is no part of a package."""
    path = PLACE.parents[1] / "tools" / "golden.py"
    spec = importlib.util.spec_from_file_location("golden", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_alike(result, stored, where):
    """Names and texts are equal; numbers to five digits, since sums differ between processors."""
    if isinstance(stored, dict) and isinstance(result, dict):
        assert result.keys() == stored.keys(), where
        for key in stored:
            assert_alike(result[key], stored[key], f"{where}.{key}")
    elif isinstance(stored, list) and isinstance(result, list):
        assert len(result) == len(stored), where
        for number, pair in enumerate(zip(result, stored, strict=True)):
            assert_alike(*pair, f"{where}[{number}]")
    elif isinstance(stored, float) and isinstance(result, int | float):
        assert result == pytest.approx(stored, rel=1e-5, abs=1e-7), where
    else:
        assert result == stored, where


def test_every_page_of_help_is_as_it_was():
    tool = golden()
    wanted = (PLACE / "help.txt").read_text()
    assert tool.frozen_help().decode() == wanted, "if it is meant: tools/golden.py --write-help"


def test_a_renamed_field_and_another_number_are_seen():
    stored = {"value": 1.0, "n": 3}
    assert_alike({"value": 1.0 + 1e-9, "n": 3}, stored, "result")
    for other in ({"values": 1.0, "n": 3}, {"value": 1.001, "n": 3}, {"value": 1.0, "n": 4}):
        with pytest.raises(AssertionError):
            assert_alike(other, stored, "result")


def test_a_mapping_changes_whole_words_of_the_older_side_alone(tmp_path):
    tool = golden()
    for name, contents in {
        "new": b'{"metric":"cloze","notes":["of cloze (22)"],"zeros":0.25}\n',
        "old": b'{"headline_is":"cloze","notes":["of cloze (11)"],"zeros":0.25}\n',
        "other": b'{"headline_is":"cloze","notes":["of cloze (11)"],"zeros":0.5}\n',
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.json").write_bytes(contents)
    mapping = {"headline_is": "metric", "11": "22"}
    new = tmp_path / "new"
    assert tool.differences(new, tmp_path / "old") == ["one.json"]
    assert tool.differences(new, tmp_path / "old", mapping) == []
    assert tool.differences(new, tmp_path / "old", {"headline": "metric", "11": "22"})
    assert tool.differences(new, tmp_path / "other", mapping) == ["one.json"]


@pytest.mark.full  # a study of 54 steps on real weights: ten minutes
def test_every_kind_of_result_is_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_ASSETS", str(asset("data").parent))
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    tool = golden()
    stored = json.loads((PLACE / "every_kind.json").read_text())
    results = tool.frozen_results(tmp_path)
    assert sorted(results) == sorted(stored)
    for name, contents in results.items():
        assert_alike(tool.condensed(json.loads(contents)), stored[name], name)
