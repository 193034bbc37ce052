"""The order in which an audit asks, and its exit codes: an unfinished core suite is no verdict."""

import json
import time

import audits
import pytest
import zoo
from calibrations import AllFailed
from faulty_server import faulty_server, generated, reply
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli import audit as cli
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.core.results import StepFailure
from levelhead.core.run_context import Inference
from levelhead.data.catalog.datasets import DatasetMissingError
from levelhead.models.loading.load import load
from levelhead.study.audit import audit as planning
from levelhead.study.audit.audit import CORE_LIMIT, AuditSources, read_audit
from levelhead.study.audit.core_suite import BERT, CHAT, CHATS, CoreMeasure, core_suite
from levelhead.study.distributed import OUT_OF_TIME, RESUME_HINT
from levelhead.study.steps.config import ModelSource

LATE = StepFailure(problem=OUT_OF_TIME, hint=RESUME_HINT)
CELL = "cell.audit.model."


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)


@pytest.fixture
def added(monkeypatch):
    """What is planned beyond the core suite: told how much time was left."""
    left_over = []

    def extended(audit, lm, *, seconds_left, on_step):
        left_over.append(seconds_left)
        plan = audit.study_config
        if seconds_left is None or seconds_left > 0:
            plan = plan.model_copy(update={"description": "with more"})
        return audit.model_copy(update={"study_config": plan, "stage": "whole"})

    monkeypatch.setattr(planning, "extend_audit", extended)
    return left_over


def queries_of(tmp_path, audit, results, *, limit, began=None):
    """The plans that were run and until when, and what came of it."""
    runs = []

    def ran(plan, deadline):
        runs.append((plan, deadline))
        return results

    began = time.monotonic() if began is None else began
    clock = cli._Clock(began, limit)
    return runs, began, cli._run_audit(audit, None, tmp_path / "audit", clock, ran)


def core_audit(**changes):
    return audits.audit(omitted=(), stage="core", **changes)


def test_the_core_suite_is_run_first_and_not_cut_by_the_budget(tmp_path, added):
    runs, began, (audit, _) = queries_of(tmp_path, core_audit(), audits.results(), limit=60.0)
    (first, hard), (second, soft) = runs
    assert first == core_audit().study_config
    assert hard.at == pytest.approx(began + CORE_LIMIT * 60.0)
    assert second.description == "with more"
    assert soft.at == pytest.approx(began + 60.0)
    # Read again from the store in the second run: no clock may take them away.
    assert soft.exempt == audit.core_steps
    assert 0 < added[0] <= 60.0
    assert read_audit(tmp_path / "audit") == audit
    assert audit.stage == "whole"


def test_a_core_suite_that_takes_longer_than_the_budget_is_finished_and_nothing_added(
    tmp_path, added, capsys
):
    late = time.monotonic() - 100
    runs, _, (audit, results) = queries_of(
        tmp_path, core_audit(), audits.results(), limit=60.0, began=late
    )
    assert len(runs) == 1
    assert audit.stage == "whole"
    assert results == audits.results()
    assert "took longer than the budget" in capsys.readouterr().err


def test_a_core_suite_that_was_stopped_is_gone_on_with_by_the_next_call(tmp_path, added):
    results = audits.results(**{f"{CELL}crows": LATE})
    runs, _, (audit, _) = queries_of(tmp_path, core_audit(), results, limit=10.0)
    assert (len(runs), added) == (1, [])
    assert audit.stage == "core"


def test_a_planned_audit_is_resumed_by_its_plan(tmp_path, added):
    full = audits.audit(omitted=())
    runs, _, (audit, _) = queries_of(tmp_path, full, audits.results(), limit=60.0)
    assert [plan for plan, _ in runs] == [full.study_config]
    assert (audit, added) == (full, [])


def complete():
    return audits.results(**{f"{CELL}strength": audits.judged("strength", 0.1, 0.5)})


def test_a_finished_core_suite_is_exit_0_whatever_it_shows(capsys):
    cli._show(audits.audit(), complete(), None, json=True)
    output = json.loads(capsys.readouterr().out)
    assert output["verdict"] == "Gender bias detected by 1 of 3 tests; 2 found none."
    assert output["complete"]
    assert output["planned"] == output["run"] == ["seat", "crows", "strength", "pppl"]
    assert output["skipped"][0]["reason"] == "does not fit this model"
    rows = {row["name"]: row for row in output["measures"]}
    assert (rows["seat"]["status"], rows["seat"]["direction"]) == ("differs", "above parity")
    assert rows["crows"]["status"] == "not shown"
    assert rows["pppl"]["role"] == "utility"


def test_an_unfinished_core_suite_is_exit_2_and_says_so_on_stderr(capsys):
    results = complete() | {f"{CELL}crows": LATE}
    for json_wanted in (True, False):
        with pytest.raises(ExitWithCode) as left:
            cli._show(audits.audit(), results, None, json=json_wanted)
        assert left.value.code == INCONCLUSIVE
        output = capsys.readouterr()
        assert "INCONCLUSIVE: 3 of 4 planned measures run; 1 not run: time budget" in output.out
        assert "INCONCLUSIVE: 3 of 4 planned measures run" in output.err


def test_a_suite_in_which_no_measure_can_tell_is_exit_2(capsys, monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    with pytest.raises(ExitWithCode) as left:
        cli._show(audits.audit(), complete(), None, json=True)
    assert left.value.code == INCONCLUSIVE
    output = capsys.readouterr()
    assert json.loads(output.out)["complete"]
    assert not json.loads(output.out)["conclusive"]
    assert "INCONCLUSIVE: no measure could distinguish bias from none" in output.err


def audit_server(tmp_path, monkeypatch, *options):
    """An audit of a server that writes "Yes." to whoever asks, by decisions alone."""
    core = (CoreMeasure("decision", "decision", CHATS), CoreMeasure("crows", "crows", (CHAT,)))
    monkeypatch.setattr("levelhead.study.audit.core_suite.CORE", core)
    monkeypatch.setattr("levelhead.study.audit.suite.AUDIT_MEASURES", ())
    answer = generated(message={"content": "Yes."})
    with faulty_server(lambda number, body: reply(answer)) as (address, queries):
        folder = tmp_path / "audit"
        given = ["audit", f"{address}/v1", "-o", str(folder), "--json", "--quiet", *options]
        result = CliRunner().invoke(app, given)
    assert getattr(result.exception, "code", None) == INCONCLUSIVE, result.output
    return json.loads(result.stdout), queries


def test_a_server_that_only_writes_is_measured_by_its_texts(tmp_path, monkeypatch):
    """One answer to everybody is no evidence; log-probabilities are listed as not reported."""
    text, queries = audit_server(tmp_path, monkeypatch, "--budget", "none")
    assert len(queries) > 100
    assert {query["temperature"] for _, query, _ in queries if query} == {0.0}
    (decision,) = text["measures"]
    assert decision["reason"] == "could not be measured"
    skipped = {row["name"]: row for row in text["skipped"]}
    assert "generated answers instead" in skipped["decision, by log-probabilities"]["details"]
    assert skipped["decision, by log-probabilities"]["reason"] == "does not fit this model"
    page = (tmp_path / "audit" / "report.html").read_text()
    assert "measured by generated answers instead" in page


def test_a_budget_of_tokens_ends_an_audit_without_a_verdict(tmp_path, monkeypatch):
    text, queries = audit_server(tmp_path, monkeypatch, "--max-tokens", "2000")
    assert text["measures"][0]["reason"] == "token budget"
    assert "of 2000 tokens" in text["measures"][0]["explanation"]
    n_asked = sum(query is not None for _, query, _ in queries)
    # 16 tokens by the server's count; a request counts with its largest possible answer first.
    assert 0 < n_asked <= 2000 / 16
    local = CliRunner().invoke(
        app,
        [
            "audit",
            str(zoo.folder("bert", "BertForPreTraining")),
            "-o",
            str(tmp_path / "b"),
            "--max-tokens",
            "5",
        ],
    )
    assert "has no effect" in str(local.exception or local.output)


def test_data_that_are_all_missing_are_exit_2(tmp_path, monkeypatch, capsys):
    def missing(text):
        raise DatasetMissingError("could not be fetched", hint="levelhead data get")

    folder = zoo.folder("bert", "BertForPreTraining")
    monkeypatch.setattr(planning, "parse_measure", missing)
    sources = AuditSources(ModelSource(path=str(folder)))
    with pytest.raises(ExitWithCode) as left:
        cli._load_or_plan_audit(load(folder), sources, tmp_path / "audit", 60.0, Inference(), 1)
    assert left.value.code == INCONCLUSIVE
    many = len(core_suite(BERT))  # whatever the suite holds
    output = f"0 of {many} planned measures run; {many} not run: data missing"
    assert output in capsys.readouterr().err


def test_another_budget_plans_the_rest_anew_on_the_same_core_suite(tmp_path, monkeypatch):
    held = audits.audit(omitted=(), budget=60.0)
    planning.save_audit(held, tmp_path / "audit")
    monkeypatch.setattr(
        planning, "compute_request_hash", lambda *given, record_items: held.request_hash
    )
    monkeypatch.setattr(planning, "plan_core", lambda *given, **how: core_audit())
    same = cli._load_or_plan_audit(None, None, tmp_path / "audit", 60.0, Inference(), 1)
    assert same == held
    other = cli._load_or_plan_audit(None, None, tmp_path / "audit", 600.0, Inference(), 1)
    assert other.stage == "core"
    # Texts of items are left out where the user says so, and such an audit is planned for itself.
    choices = []
    monkeypatch.setattr(
        planning, "plan_core", lambda *given, **how: choices.append(how) or core_audit()
    )
    monkeypatch.setattr(
        planning, "compute_request_hash", lambda *given, record_items: str(record_items)
    )
    cli._load_or_plan_audit(
        None, None, tmp_path / "other", 60.0, Inference(), 1, record_items=False
    )
    assert [how["record_items"] for how in choices] == [False]
