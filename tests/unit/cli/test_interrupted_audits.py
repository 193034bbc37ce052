"""An audit that is interrupted at every step ends with the bytes of one that nobody disturbed."""

import shutil

import pytest
import tiny_audits
import zoo
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli import audit as cli
from levelhead.core.errors import LevelheadError
from levelhead.study import run as study_run
from levelhead.study.audit import audit as planning
from levelhead.study.audit import saved_plan
from levelhead.study.audit.saved_plan import PLAN_HASH, STUDY_FILE, read_audit
from levelhead.study.results_dir import AUDIT_FILE

PLAN = (AUDIT_FILE, STUDY_FILE, "levelhead-run.json")


class KilledError(BaseException):
    """The end of a run, which no handler of errors expects."""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The tiny suite, in a folder of its own: reports name the folder of an audit."""
    for change in tiny_audits.replacements(tmp_path / "suite"):
        monkeypatch.setattr(*change)
    monkeypatch.setattr(*tiny_audits.steady_clock())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unmeasured(monkeypatch):
    """Audits that are planned and not run."""
    monkeypatch.setattr(study_run, "run_study", lambda *given, **how: {})
    for name in ("_write_report", "_show"):
        monkeypatch.setattr(cli, name, lambda *given, **how: None)


def audit(budget="10m", model=None, *, quiet=True):
    few = ("--resamples", "99", "--permutations", "99", "--threads", "1")
    model = str(model or zoo.folder("bert", "BertForPreTraining"))
    given = ["audit", model, "-o", "out", "--budget", budget, *few, *["--quiet"] * quiet]
    return CliRunner().invoke(app, given)


def files(folder):
    """The bytes of everything that an audit leaves, its stored responses included."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def end_after(monkeypatch, writes):
    """End the process, so to speak, instead of the write with this number."""
    write, done = study_run.write_atomic, []

    def killed(url, data):
        if len(done) == writes:
            raise KilledError
        done.append(url)
        write(url, data)

    monkeypatch.setattr(study_run, "write_atomic", killed)


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.full)])
def test_an_audit_killed_at_its_steps_equals_an_undisturbed_one(tiny, monkeypatch, stride):
    """Each run is killed some writes later than the run before, and follows the same plan."""
    out = tiny / "out"
    audit()
    expected = files(out)
    audit_plan = read_audit(out)
    assert set(audit_plan.study_config.measurements) == {"audit", "more"}
    n_results = sum(name.startswith("results/") for name in expected)
    assert n_results > len(audit_plan.core) + 2
    saved = {name: (out / name).read_bytes() for name in PLAN}
    shutil.rmtree(out)
    out.mkdir()
    for name, data in saved.items():
        (out / name).write_bytes(data)

    def plan_again(*given, **how):
        raise AssertionError("the plan of the folder must be followed")

    with monkeypatch.context() as kept:
        kept.setattr(planning, "extend_audit", plan_again)
        # The writes are a file for each step, and the table.
        for writes in (*range(0, n_results, stride), n_results):
            with monkeypatch.context() as patch:
                end_after(patch, writes)
                with pytest.raises(KilledError):
                    audit()
            assert not (out / "report.html").exists()
            assert (out / AUDIT_FILE).read_bytes() == saved[AUDIT_FILE]
        audit()
    assert files(out) == expected


def test_an_audit_killed_before_it_was_planned_is_planned(tiny, unmeasured, monkeypatch):
    with monkeypatch.context() as patch:

        def killed(*given):
            raise KilledError

        patch.setattr(saved_plan, "save_audit", killed)
        with pytest.raises(KilledError):
            audit()
    assert not (tiny / "out" / AUDIT_FILE).exists()
    audit()
    assert set(read_audit(tiny / "out").study_config.measurements) == {"audit", "more"}


def test_a_plan_that_was_changed_is_refused(tiny, unmeasured):
    audit()
    path = tiny / "out" / AUDIT_FILE
    text = path.read_text()
    assert PLAN_HASH in text
    for old, new in (('"core":["seat","pppl"]', '"core":["seat"]'), (":600.0", ":601.0")):
        assert old in text
        path.write_text(text.replace(old, new))
        assert "was changed after the audit was planned" in str(audit().exception)
        with pytest.raises(LevelheadError, match="was changed after the audit was planned"):
            read_audit(tiny / "out")
    # The study beside it is written from the plan.
    path.write_text(text)
    study = (tiny / "out" / STUDY_FILE).read_bytes()
    (tiny / "out" / STUDY_FILE).write_text("{}")
    audit()
    assert (tiny / "out" / STUDY_FILE).read_bytes() == study


def test_a_plan_of_other_weights_is_refused(tiny, unmeasured):
    model = shutil.copytree(zoo.folder("bert", "BertForPreTraining"), tiny / "model")
    audit(model=model)
    before = files(tiny / "out")
    for name in ("model.safetensors", "config.json"):
        other = zoo.folder("bert", "BertForPreTraining", seed=1)
        shutil.copy(other / name, model / name)
    result = audit(model=model)
    assert isinstance(result.exception, LevelheadError)
    assert "contains another audit" in str(result.exception)
    assert files(tiny / "out") == before


def test_another_budget_plans_again_with_a_word(tiny, unmeasured):
    audit()
    first = read_audit(tiny / "out")
    result = audit(budget="0.001s", quiet=False)
    assert "the budget has changed" in result.stderr
    assert "too small for more than the core suite" in result.stderr
    second = read_audit(tiny / "out")
    assert set(first.study_config.measurements) == {"audit", "more"}
    assert set(second.study_config.measurements) == {"audit"}
