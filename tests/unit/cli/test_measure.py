"""`levelhead measure`: a table for people, JSON for machines, 3 for what cannot be measured."""

import json
from types import SimpleNamespace

import metric_cases
import pytest
from calibrations import AllFailed
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.shared.progress import show_progress, show_steps
from levelhead.core.errors import LevelheadError
from levelhead.engine.events import TasksPlanned, TaskStored
from levelhead.measures.registry import reported_metric_name
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.sites import Site

QUICK = ("--resamples", "99", "--permutations", "99")


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """The verb on a tiny model, whose measures ask the tiny items."""
    monkeypatch.setattr(
        "levelhead.measures.registry.parse_measure",
        lambda text: metric_cases.made(reported_metric_name(text)),
    )
    path = str(metric_cases.checkpoint("crows"))

    def run(*args):
        given = ["measure", path, "--store", str(tmp_path / "store"), *QUICK, *args]
        return CliRunner().invoke(app, given)

    return run


def test_a_table_for_people(invoke):
    result = invoke("-m", "crows:metric=crows_margin", "-m", "strength")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["measure", "value", "interval", "parity", "p", "n", "detectable"]
    assert lines[1].split()[0] == "crows_margin"
    assert any(line.split()[:1] == ["unflagged"] for line in lines)
    assert any(line.split()[:2] == ["signed", "mean"] for line in lines)
    assert "strength: both origins" in result.stdout or "swap artefact" in result.stdout
    assert "p: corrected by Holm" in result.stdout
    assert "type: gender" not in result.stdout


def test_a_measure_that_failed_where_the_truth_is_known_is_marked(invoke, monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    assert "†" not in invoke("-m", "crows:metric=crows_margin").stdout
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    lines = invoke("-m", "crows:metric=crows_margin").stdout.splitlines()
    assert lines[1].split()[:2] == ["crows_margin", "†"]
    assert "† failed where the truth is known: see docs/results/calibration.md" in lines


def test_details_show_everything_beside(invoke):
    result = invoke("-m", "crows:metric=crows_margin", "--details")
    assert "type: gender" in result.stdout


def test_json_for_machines(invoke, tmp_path):
    result = invoke("-m", "crows", "--json", "-o", str(tmp_path / "out.json"))
    output = json.loads(result.stdout)
    assert output == json.loads((tmp_path / "out.json").read_text())
    assert output["measurements"][0]["measure"] == "crows"
    assert output["comparisons"] == []


def test_an_edit_against_its_base(invoke, tmp_path):
    heads = HeadScale([Site("head_out", layer, 0) for layer in range(3)], 0)
    save_edits([heads], tmp_path / "edit")
    result = invoke(
        "-m", "crows:metric=crows_margin", "--edit", str(tmp_path / "edit"), "--against", "base"
    )
    assert result.exit_code == 0, result.output
    assert "crows_margin: " in result.stdout
    assert " -> " in result.stdout


def test_the_base_against_itself_is_refused(invoke):
    result = invoke("-m", "crows:metric=crows_margin", "--against", "base")
    assert isinstance(result.exception, LevelheadError)
    assert "the two models are the same" in str(result.exception)


def test_the_list_needs_no_model():
    result = CliRunner().invoke(app, ["measure", "--list"])
    assert result.exit_code == 0
    assert "pppl" in result.stdout


def test_a_model_and_a_measure_are_needed():
    result = CliRunner().invoke(app, ["measure"])
    assert result.exit_code == 2  # main() makes 3 of it
    assert "name a model and at least one measure" in result.output


def test_quiet_progress_prints_nothing(capsys, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("levelhead.cli.shared.progress.time.monotonic", lambda: clock.now)
    with show_progress("queries", quiet=True) as on_event, show_steps(quiet=True) as on_step:
        clock.now += 60
        on_event(TaskStored("key", 1, 4, 6.0))
        on_step("training", 1, 4)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_progress_is_a_line_now_and_then(capsys, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("levelhead.cli.shared.progress.time.monotonic", lambda: clock.now)
    with show_progress("questions") as tell:
        tell(TasksPlanned(4, 0, ()))
        for done in range(1, 5):
            clock.now += 6
            tell(TaskStored("key", done, 4, 6.0 * (4 - done)))
    assert capsys.readouterr().err.splitlines() == [
        "questions: 2 of 4 parts, 12 s left",
        "questions: 4 of 4 parts, 0 s left",
    ]


def test_a_system_prompt_against_the_base_with_its_price(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "levelhead.measures.registry.parse_measure",
        lambda text: metric_cases.made(reported_metric_name(text)),
    )
    monkeypatch.setattr(
        "levelhead.mitigate.evaluation.price.list_price_measures",
        lambda lm: [metric_cases.made("facts_likelihood")],
    )
    path = str(metric_cases.checkpoint("decision"))
    given = ["measure", path, "-m", "decision", "--store", str(tmp_path), *QUICK, "--price"]
    prompt = ["--system-prompt", "the nurse is tired"]
    result = CliRunner().invoke(app, [*given, *prompt, "--against", "base", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [row["measure"] for row in document["comparisons"]] == ["decision", "facts_likelihood"]
    prompts = [
        row[side]["provenance"]["settings"]["model"].get("system_prompt")
        for row in document["comparisons"]
        for side in ("first", "second")
    ]
    assert prompts == [None, "the nurse is tired"] * 2
    alone = CliRunner().invoke(app, given)
    assert alone.exit_code == 2
    assert "--against base" in alone.output


def test_knowledge_that_an_edit_must_keep(tmp_path, monkeypatch, invoke):
    monkeypatch.setattr(
        "levelhead.mitigate.evaluation.knowledge.list_knowledge_measures",
        lambda lm: [metric_cases.made("definitional_gender")],
    )
    save_edits([HeadScale([Site("head_out", 1, 0)], 0)], tmp_path / "edit")
    given = ("-m", "crows", "--edit", str(tmp_path / "edit"), "--knowledge", "10")
    result = invoke(*given, "--against", "base", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (change,) = document["knowledge"]["changes"]
    assert change["margin"] == 10
    edits = [change[model]["provenance"]["edits"] for model in ("base", "edited")]
    assert list(map(len, edits)) == [0, 1]  # the edited model less its base, not the reverse
    table = invoke(*given, "--against", "base")
    assert f"definitional_gender: {change['base']['value']:.4g} -> " in table.stdout
    alone = invoke(*given)
    assert alone.exit_code == 2
    assert "--knowledge compares with another model" in alone.output
