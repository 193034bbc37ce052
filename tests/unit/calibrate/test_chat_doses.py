"""Calibration of decisions and generated texts: rows, constant models, resumption, tables."""

import csv
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from levelhead.calibrate import chat_doses, dose_response
from levelhead.calibrate.chat_doses import (
    DOSES,
    NULL_SEEDS,
    SEEDS,
    TEXT_METRICS,
    ChatModel,
    list_chat_models,
    list_constant_models,
    make_constant_table,
    refresh_chat_calibration,
    run_chat_model,
    run_chat_models,
    with_chat_rows,
)
from levelhead.calibrate.dose_response import ModelResponses
from levelhead.calibrate.measure_calibrations import compute_measure_calibrations
from levelhead.calibrate.organisms import chat_items
from levelhead.calibrate.organisms.chat import CONSTANT_RULES
from levelhead.core.calibration import CHAT_ARCHITECTURE, MIN_NULLS_FOR_RATE, Calibration
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.engine.events import TaskStored
from levelhead.engine.executors.base import RunCancelledError
from levelhead.measures.decisions.decision import Decision

TOOL = Path(__file__).parents[3] / "tools" / "calibration.py"
DECISIONS = tuple(ChatModel("decision", dose, 0) for dose in DOSES[::2])
CONSTANT = tuple(ChatModel(rule, DOSES[-1], 0) for rule in CONSTANT_RULES)


@pytest.fixture(autouse=True)
def few_items(monkeypatch):
    """One measure of decisions and those of texts, each of a few items."""
    texts = chat_items.list_generation_measures

    def list_decisions():
        return {"decision": Decision(scenarios=load_scenarios()[:6])}

    def list_texts(seed):
        return {
            name: replace(
                measure, requests=measure.requests[:1], occupations=chat_items.TOPICS[:6], k=2
            )
            for name, measure in texts(seed).items()
        }

    for module in (chat_items, chat_doses):
        monkeypatch.setattr(module, "list_decision_measures", list_decisions)
    monkeypatch.setattr(chat_items, "list_generation_measures", list_texts)
    monkeypatch.setattr(dose_response, "INFERENCE", Inference(resamples=99, permutations=99))


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """The tool, which writes into copies."""
    spec = importlib.util.spec_from_file_location("calibration_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("PAGE", "PICTURE", "PACKAGE"):
        copy = tmp_path / Path(getattr(module, name)).name
        copy.write_bytes(getattr(module, name).read_bytes())
        monkeypatch.setattr(module, name, copy)
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(module, "DATA", tmp_path / "data")
    return module


def test_every_rule_has_every_dose_and_enough_models_without_one():
    models = list_chat_models()
    assert len(set(models)) == len(models)
    for rule in ("decision", *TEXT_METRICS):
        by_dose = {
            dose: {model.seed for model in models if model[:2] == (rule, dose)} for dose in DOSES
        }
        assert by_dose.pop(0.0) == {*SEEDS, *NULL_SEEDS}
        assert set(map(frozenset, by_dose.values())) == {frozenset(SEEDS)}
    assert len({*SEEDS, *NULL_SEEDS}) == MIN_NULLS_FOR_RATE
    assert {"late", "late length"} <= set(TEXT_METRICS)  # a bias that only sampled tokens show
    assert {model[:2] for model in list_constant_models()} == {
        (rule, dose) for rule in CONSTANT_RULES for dose in (0.0, DOSES[-1])
    }
    assert len(list_constant_models(quick=True)) == 1


def test_rows_follow_the_dose_of_what_was_planted(tmp_path):
    late = tuple(ChatModel("late", dose, 0) for dose in (0.0, 1.0, 3.0))
    responses = run_chat_models((*DECISIONS, *late), str(tmp_path))
    rows = {row.measure: row for row in compute_measure_calibrations(responses)}
    # Of each rule its own measures only.
    assert set(rows) == {"decision", *TEXT_METRICS["late"]}
    for row, models in ((rows["decision"], DECISIONS), (rows["generation"], late)):
        assert row.architecture == CHAT_ARCHITECTURE
        assert [point[:2] for point in row.points] == [(model.dose, 0) for model in models]
        assert (row.expected, row.rank, row.unread, row.nulls) == ("rises", 1, 0, 1)
    values = [value for *_, value in rows["decision"].points]
    doses = [model.dose for model in DECISIONS]
    # The dose is the expected value of a log-odds measure, item by item.
    for value, dose in zip(values, doses, strict=True):
        assert value - values[0] == pytest.approx(dose, abs=2e-3)


def test_one_answer_to_everything_is_never_parity(tmp_path):
    responses = run_chat_models(CONSTANT, str(tmp_path))
    table, n_read = make_constant_table(responses)
    assert n_read == 0
    assert {row[0] for row in table.rows} == set(CONSTANT_RULES)
    # Only where options are listed, "order" gives one answer.
    assert {(row[0], row[3]) for row in table.rows} == {
        (rule, name)
        for rule in CONSTANT_RULES
        for name in (
            "decision",
            *(chat_items.list_generation_measures(0) if rule != "order" else ()),
        )
    }
    assert {row[4] for row in table.rows} <= {"inconclusive", "not measured"}
    assert all(row[5] for row in table.rows)  # each with its reason


@pytest.mark.parametrize("status", ["not shown", "differs", "unclear", "no test"])
def test_any_other_verdict_on_one_answer_is_counted(status):
    model = ModelResponses.from_json(run_chat_model(CONSTANT[0]._asdict()))
    first, *others = model.responses
    changed = (first.model_copy(update={"status": status}), *others)
    _, n_read = make_constant_table([model.model_copy(update={"responses": changed}), model])
    assert n_read == 1


def test_a_run_resumes_and_ends_with_the_same_results(tmp_path, monkeypatch):
    expected = run_chat_models(DECISIONS, str(tmp_path / "quiet"))
    constructed, make = [], chat_doses.make_chat_organism

    def make_counted(rule, dose, *, seed):
        constructed.append(dose)
        return make(rule, dose, seed=seed)

    monkeypatch.setattr(chat_doses, "make_chat_organism", make_counted)
    cancel, folder = Event(), str(tmp_path / "stopped")

    def stop(event):
        if isinstance(event, TaskStored):
            cancel.set()

    with pytest.raises(RunCancelledError):
        run_chat_models(DECISIONS, folder, context=RunContext(progress=stop, cancel=cancel))
    assert len(constructed) == 1
    assert run_chat_models(DECISIONS, folder) == expected
    assert sorted(constructed) == sorted(model.dose for model in DECISIONS)  # each once
    assert run_chat_models(DECISIONS, folder) == expected
    assert len(constructed) == len(DECISIONS)


def test_only_the_rows_of_chat_organisms_change(tool, tmp_path):
    past = Calibration.from_json(tool.PACKAGE.read_bytes())
    result = refresh_chat_calibration(str(tmp_path / "store"), past, quick=True)

    def others(calibration):
        return [row for row in calibration.measures if row.architecture != CHAT_ARCHITECTURE]

    (row,) = [row for row in result.measures if row.architecture == CHAT_ARCHITECTURE]
    assert (row.measure, row.models) == ("decision", len(DECISIONS))
    assert others(result) == others(past)
    assert (result.edits, result.locators, result.machine) == (
        *(past.edits, past.locators),
        past.machine,
    )
    (update,) = [part for part in result.refreshed if part.parts == (chat_doses.CHAT_PART,)]
    assert len(update.models) == len(DECISIONS)
    assert update.command.endswith("--chat --quick")
    # A later run of the other parts takes these rows over, and adds none.
    assert with_chat_rows(past, result) == result
    assert with_chat_rows(result, result) == result


def test_the_tool_writes_tables_that_agree(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(chat_doses, "list_chat_models", lambda **options: DECISIONS)
    monkeypatch.setattr(tool, "list_constant_models", lambda *, quick: CONSTANT[:1])
    monkeypatch.setattr(sys, "argv", ["calibration.py", str(tmp_path / "run"), "--chat", "--write"])
    tool.main()
    result = Calibration.from_json(tool.PACKAGE.read_bytes())
    (row,) = [row for row in result.measures if row.architecture == CHAT_ARCHITECTURE]
    with (tool.DATA / "measures.csv").open() as file:
        (written,) = [cells for cells in csv.DictReader(file) if cells["family"] == "chat"]
    assert (written["measure"], float(written["Spearman"])) == ("decision", row.rank)
    assert float(written["slope by dose"]) == pytest.approx(1, abs=1e-3)
    with (tool.DATA / "one-answer.csv").open() as file:
        assert {cells["verdict"] for cells in csv.DictReader(file)} <= {
            *("inconclusive", "not measured"),
        }
    above, rest = tool.PAGE.read_text().split(tool.MARKS[0])
    assert above
    assert rest.partition(tool.MARKS[1])[0].strip() == tool.page(result).strip()
    assert "python tools/calibration.py --chat" in rest
    assert "0 of " in capsys.readouterr().out


def test_the_tool_fails_where_one_answer_is_read_as_parity(tool, tmp_path, monkeypatch):
    written = tool.PACKAGE.read_bytes()
    # A biased model in the place of a constant one: its verdict is not inconclusive.
    monkeypatch.setattr(tool, "list_constant_models", lambda *, quick: DECISIONS[-1:])
    monkeypatch.setattr(sys, "argv", ["calibration.py", str(tmp_path / "run"), "--chat", "--quick"])
    with pytest.raises(SystemExit) as error:
        tool.main()
    assert error.value.code == 1
    assert tool.PACKAGE.read_bytes() == written


def test_rows_of_other_measures_stay(tool, tmp_path, monkeypatch):
    past = Calibration.from_json(tool.PACKAGE.read_bytes())
    monkeypatch.setattr(chat_doses, "DOSES", (0.0, 1.0))
    monkeypatch.setattr(chat_doses, "SEEDS", range(1))
    monkeypatch.setattr(chat_doses, "NULL_SEEDS", range(0))
    folder = str(tmp_path / "store")
    result = refresh_chat_calibration(folder, past, only=("persona_marked",))
    (row,) = [row for row in result.measures if row.measure == "persona_marked"]
    assert (row.architecture, row.models) == (CHAT_ARCHITECTURE, 2)

    def others(calibration):
        return [row for row in calibration.measures if row.measure != "persona_marked"]

    assert others(result) == others(past)
    update = result.refreshed[-1]
    assert update.parts == ("chat measures: persona_marked",)
    assert "--only persona_marked" in update.command
    kept = [part for part in past.refreshed if part.parts != update.parts]
    assert all(part in result.refreshed for part in kept)
    again = refresh_chat_calibration(folder, result, only=("persona_marked",))
    assert again == result  # nothing is added twice
    with pytest.raises(LevelheadError, match="measure of chat organisms"):
        list_chat_models(only=("seat",))
