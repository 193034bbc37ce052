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
from levelhead.study.audit.audit import CORE_LIMIT, AuditSources
from levelhead.study.audit.core_suite import BERT, CHAT, CHATS, CoreMeasure, core_suite
from levelhead.study.audit.saved_plan import read_audit, save_audit
from levelhead.study.distributed import OUT_OF_TIME, RESUME_HINT
from levelhead.study.steps.config import ModelSource
from levelhead.study.steps.measurements import CompareModelsStep
from levelhead.study.steps.probing import ProbingStep

LATE = StepFailure(problem=OUT_OF_TIME, hint=RESUME_HINT)
CELL = "cell.audit.model."


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)


def order_of(monkeypatch, tmp_path, audit_plan, *, limit, options=()):
    """What an audit does, in its order: a plan that is saved, a run with a deadline, a report."""
    done = []

    def extended(core, lm, *, seconds_left, on_step, timer):
        done.append(("planned", seconds_left))
        return audit_plan

    def ran(plan, folder, *, deadline, **how):
        assert read_audit(folder) == audit_plan
        done.append(("run", plan, deadline))
        return audits.results()

    monkeypatch.setattr(planning, "plan_core", lambda *given, **how: core_audit())
    monkeypatch.setattr(planning, "extend_audit", extended)
    monkeypatch.setattr("levelhead.study.run.run_study", ran)
    monkeypatch.setattr(cli, "_write_report", lambda *given: None)
    model = zoo.folder("bert", "BertForPreTraining")
    given = ["audit", str(model), "-o", str(tmp_path / "audit"), "--budget", limit, *options]
    CliRunner().invoke(app, given)
    return done


def core_audit(**changes):
    return audits.audit(omitted=(), **changes)


def test_the_whole_audit_is_planned_and_saved_before_anything_is_measured(tmp_path, monkeypatch):
    audit = core_audit(budget=60.0, truncated=())
    began = time.monotonic()
    (_, seconds_left), (_, plan, deadline) = order_of(monkeypatch, tmp_path, audit, limit="60s")
    assert 0 < seconds_left <= 60.0
    assert plan == audit.study_config
    # The verdict needs the core suite: the budget does not cut it, though it is not endless.
    assert deadline.of("map.heads") == pytest.approx(began + 60.0, abs=15)
    for step in audit.core_steps:
        assert deadline.of(step) - deadline.at == pytest.approx((CORE_LIMIT - 1) * 60.0)
    assert f"{CELL}seat" in audit.core_steps


def test_without_a_budget_no_step_is_late(tmp_path, monkeypatch):
    audit = core_audit(budget=None)
    (_, seconds_left), (_, _, deadline) = order_of(monkeypatch, tmp_path, audit, limit="none")
    assert seconds_left is None
    assert deadline is None


def test_the_core_suite_includes_its_comparisons_and_probes():
    pair = {"other": CompareModelsStep(first="other", second="model", measures=("seat",))}
    probes = {"edit": ProbingStep(model="model", measure="seat")}
    config = audits.audit().study_config.model_copy(update={"comparisons": pair, "probing": probes})
    assert audits.audit(study_config=config).core_steps >= {
        f"{CELL}seat",
        "against.other.seat",
        "removed.edit",
    }


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


def clock(limit):
    """A clock that starts now."""
    return cli._Clock(time.monotonic(), limit)


def test_data_that_are_all_missing_are_exit_2(tmp_path, monkeypatch, capsys):
    def missing(text):
        raise DatasetMissingError("could not be fetched", hint="levelhead data get")

    folder = zoo.folder("bert", "BertForPreTraining")
    monkeypatch.setattr(planning, "parse_measure", missing)
    sources = AuditSources(ModelSource(path=str(folder)))
    with pytest.raises(ExitWithCode) as left:
        cli._load_or_plan_audit(
            load(folder), sources, tmp_path / "audit", clock(60.0), Inference(), 1
        )
    assert left.value.code == INCONCLUSIVE
    many = len(core_suite(BERT))  # whatever the suite holds
    output = f"0 of {many} planned measures run; {many} not run: data missing"
    assert output in capsys.readouterr().err


def test_another_budget_plans_again_and_the_same_follows_the_plan(tmp_path, monkeypatch, capsys):
    held = audits.audit(omitted=(), budget=60.0)
    save_audit(held, tmp_path / "audit")
    monkeypatch.setattr(
        planning, "compute_request_hash", lambda *given, record_items: held.request_hash
    )
    monkeypatch.setattr(planning, "plan_core", lambda *given, **how: core_audit(budget=600.0))
    monkeypatch.setattr(planning, "extend_audit", lambda core, lm, **how: core)
    same = cli._load_or_plan_audit(None, None, tmp_path / "audit", clock(60.0), Inference(), 1)
    assert same == held
    assert "the budget has changed" not in capsys.readouterr().err
    other = cli._load_or_plan_audit(None, None, tmp_path / "audit", clock(600.0), Inference(), 1)
    assert other.budget == 600.0
    assert read_audit(tmp_path / "audit") == other
    assert "the budget has changed" in capsys.readouterr().err


def test_texts_of_items_are_left_out_of_the_plan_where_the_user_says_so(tmp_path, monkeypatch):
    choices = []
    monkeypatch.setattr(
        planning, "plan_core", lambda *given, **how: choices.append(how) or core_audit()
    )
    monkeypatch.setattr(planning, "extend_audit", lambda core, lm, **how: core)
    monkeypatch.setattr(
        planning, "compute_request_hash", lambda *given, record_items: str(record_items)
    )
    cli._load_or_plan_audit(
        None, None, tmp_path / "other", clock(60.0), Inference(), 1, record_items=False
    )
    assert [how["record_items"] for how in choices] == [False]
