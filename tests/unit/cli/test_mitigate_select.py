"""`levelhead mitigate select` on classifiers whose lean on the group is known."""

import inspect
import json
from dataclasses import fields

import pytest
import typer
from biased_classifier import TOML, checkpoint, texts, write
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.mitigate.select_edit import select_edit_command as verb
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.core.errors import LevelheadError
from levelhead.mitigate.selection import select_edit as python
from levelhead.mitigate.selection.candidate_evaluation import UtilityLimit
from levelhead.mitigate.selection.candidates import CandidateGrid
from levelhead.mitigate.selection.selection_report import NOT_SHOWN_BY_SELECTION, SelectionReport
from levelhead.mitigate.selection.user_task import TaskFiles
from levelhead.models.edits.files import InvalidEditFileError, load_edits
from levelhead.models.loading.load import load


@pytest.fixture
def given(tmp_path):
    words = tmp_path / "own.toml"
    words.write_text(TOML)
    result = [
        "--lexicon",
        words,
        "--pair-source",
        "dev",
        "--min-utility-kept",
        0.9,
        "--resamples",
        199,
    ]
    for tag in ("dev", "test"):
        result += [f"--{tag}", write(tmp_path / f"{tag}.csv", texts(tag))]
    return [*result, "--store", tmp_path / "store"]


def invoke(lean, given, *args):
    words = ["mitigate", "select", checkpoint(lean), *given, *args]
    return CliRunner().invoke(app, [str(word) for word in words])


def test_an_edit_is_written_with_its_reasons(tmp_path, given):
    out = tmp_path / "edit"
    result = invoke(0.5, given, "-o", out, "--report", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    report = SelectionReport.from_json((out / "why.json").read_bytes())
    assert report.is_recommended
    assert report.chosen == "sent 1"
    assert (tmp_path / "all.json").read_bytes() == (out / "why.json").read_bytes()
    assert len(load_edits(out)) == 1
    load(checkpoint(0.5), edit=str(out))
    page = (out / "README.md").read_text()
    assert page.startswith("# sent 1: an edit of ")
    for item in (*NOT_SHOWN_BY_SELECTION, report.reason[1:], "Not tried: 52 settings"):
        assert item in page
    for candidate in report.candidates:
        assert f"| {candidate.name} | {candidate.description} |" in page
    assert "| candidate | description | gain | lower bound | loss | rejected because |" in page
    assert report.reason in result.stdout
    assert f"on test: {report.on_test.gain}; {report.on_test.loss}" in result.stdout
    assert "... " in result.stdout
    assert f"{out}: sent 1 of " in result.stdout
    again = invoke(0.5, given, "-o", out)
    assert isinstance(again.exception, LevelheadError)
    assert "is not empty" in str(again.exception)


def test_no_edit_is_exit_2_and_nothing_is_written_as_one(tmp_path, given):
    out = tmp_path / "edit"
    result = invoke(0.0, given, "-o", out, "--report", tmp_path / "why.json", "--json")
    assert isinstance(result.exception, ExitWithCode)
    assert result.exception.code == INCONCLUSIVE
    assert not out.exists()
    with pytest.raises(InvalidEditFileError):
        load_edits(out)
    output = json.loads(result.stdout)
    assert not output["is_recommended"]
    assert (
        SelectionReport.from_json((tmp_path / "why.json").read_bytes()).reason in output["reason"]
    )
    shown = invoke(0.0, given, "--details")
    assert "nothing is recommended: none of" in shown.stdout
    assert all(item["name"] in shown.stdout for item in output["candidates"])


def test_what_is_wrong_is_said(given):
    result = invoke(0.0, given, "--groups", "female")
    assert result.exit_code == 2  # typer's own; main() makes it 3
    assert "--groups names two groups" in result.output
    result = invoke(0.0, given, "--bias-measure", "fair")
    assert "there is no bias measure named 'fair'" in str(result.exception)
    result = invoke(0.0, given, "--head-ranking", "luck")
    assert "there is no way to rank heads named 'luck'" in str(result.exception)
    result = invoke(0.0, given, "--kinds", "mask,luck")
    assert "there is no kind of edit named 'luck'" in str(result.exception)


def test_the_names_are_those_of_python():
    subset = set(inspect.signature(verb).parameters)
    options = {"files": TaskFiles, "limit": UtilityLimit, "grid": CandidateGrid}
    python_defaults = {
        field.name: field.default for option in options.values() for field in fields(option)
    } | {
        parameter.name: parameter.default
        for parameter in inspect.signature(python.select_edit).parameters.values()
        if parameter.name not in options
    }
    theirs = set(python_defaults) - {"worse", "sizes"}  # of other measures than these files'
    assert theirs - subset == {"lm", "inference", "context"}
    assert subset - theirs == {
        *("model", "output", "report", "json", "details", "quiet", "seed", "resamples", "level"),
        *("store", "threads"),
        *("batch_size", "revision", "device", "dtype", "allow_pickle"),
    }
    for name in subset & theirs - {"dev", "test", "groups", "labels", "kinds"}:
        assert inspect.signature(verb).parameters[name].default == python_defaults[name]
    assert isinstance(typer.main.get_command(app).commands["mitigate"].commands["select"].help, str)
