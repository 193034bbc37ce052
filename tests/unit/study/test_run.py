"""A study runs, is resumed, and ends with the same bytes."""

import csv
import shutil
import signal

import pytest
import studies
import torch
from calibrations import Failed
from command import SERVER, levelhead, script

from levelhead.core.calibration import DAGGER
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement, StepFailure
from levelhead.core.run_context import RunContext
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.leases import FolderInUseError
from levelhead.engine.locks import exclusive_lock
from levelhead.engine.store import ForeignFolderError
from levelhead.locate.head_map import HeadMap
from levelhead.study.config import read_study_config
from levelhead.study.run import run_study
from levelhead.study.table import result_to_rows

MEASURES = ("seat", "pppl")
KILLED = """
import os, signal, sys
from levelhead.study.run import run_study
from levelhead.study.config import read_study_config

def on_step(name, done, of):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

run_study(read_study_config(sys.argv[1]), sys.argv[2], on_step=on_step)
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A study of few steps, run once here: for those that run it again."""
    folder = tmp_path_factory.mktemp("study")
    plan = studies.study(folder)
    return plan, folder / "out", run_study(read_study_config(plan), folder / "out")


def test_every_step_is_done_and_told(every_step):
    """Takes 10 s if it is the first that asks for the study of every step."""
    _, folder, results, output = every_step
    assert [name for name, _, _ in output[:-1]] == [
        *("child.swapped", "cell.all.tiny.seat"),
        *(
            f"cell.both.{model}.{measure}"
            for model in ("edited", "swapped")
            for measure in MEASURES
        ),
        *("against.base.seat", "removed.edit"),
        *("map.gender", "describe.gender", "control.gender.3"),
        *("splits.gender", "greedy.gender", "map.again"),
        *("masking.heads", "mitigation.heads", "lines.heads", "amplify.heads"),
        *("explain.heads", "example.heads", "compare.itself"),
    ]
    assert output[-1] == ("done", 21, 21)
    assert {name for name, _, _ in output[:-1]} == set(results)
    assert set(studies.contents(folder)) == {"table.csv", *(f"{name}.json" for name in results)}
    assert results["map.gender"] == HeadMap.from_json(
        (folder / "results" / "map.gender.json").read_bytes()
    )
    kinds = {name.partition(".")[0]: type(result).__name__ for name, result in results.items()}
    assert kinds == {
        **{
            "child": "TrainedVariant",
            "cell": "Measurement",
            "against": "Comparison",
            "map": "HeadMap",
        },
        **{
            "describe": "MapDescription",
            "control": "RandomHeadControl",
            "splits": "SplitStability",
        },
        **{
            "greedy": "GreedySelection",
            "masking": "MaskingReport",
            "mitigation": "MitigationReport",
            "lines": "MaskingCurves",
            "amplify": "AmplifyReport",
        },
        **{
            "explain": "CounterStereotypeResult",
            "example": "AttentionExample",
            "compare": "MapComparison",
        },
        "removed": "StepFailure",  # two pairs of words are too few for a probe
    }


def test_the_table_is_tidy(every_step):
    _, folder, results, _ = every_step
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    heads = results["map.gender"]
    scores = [row for row in rows if row["step"] == "map.gender" and row["what"] == "score"]
    assert [float(row["value"]) for row in scores] == [item.score for item in heads.scores]
    effects = [row for row in rows if row["step"] == "map.gender" and row["what"] == "effect"]
    assert all(row["low"] and row["high"] and row["adjusted"] for row in effects)
    # What is inconclusive has no number, nor has a picture of one sentence.
    assert {row["step"] for row in rows} == set(results) - {"removed.edit", "example.heads"}


def test_what_a_failed_measure_says_is_marked(small, monkeypatch):
    results = small[2]
    marks = {
        name: {row.mark for row in result_to_rows(name, result)} for name, result in results.items()
    }
    assert set().union(*marks.values()) == {""}
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: Failed("seat"))
    marks = {
        name: {row.mark for row in result_to_rows(name, result)} for name, result in results.items()
    }
    assert list(marks.values()) == [{DAGGER}] * 8


def test_processes_give_the_same_bytes(small, tmp_path, monkeypatch):
    """Takes 6 s: the study is run again by two workers. They are forked with their imports done;
    the contract of runners spawns them."""
    monkeypatch.setattr("levelhead.engine.executors.processes._SPAWN", SERVER)
    plan, folder, results = small
    output = []
    result = run_study(
        read_study_config(plan),
        tmp_path / "out",
        executor=LocalProcesses(2),
        on_step=lambda name, done, of: output.append((name, done, of)),
    )
    assert result == results
    assert list(result) == list(results)
    assert studies.contents(tmp_path / "out") == studies.contents(folder)
    assert [done for _, done, _ in output] == list(range(9))
    order = [name for name, _, _ in output]
    assert order.index("map.gender") < order.index("describe.gender")
    assert max(order.index("map.gender"), order.index("map.again")) < order.index("compare.itself")


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.full), 4])
def test_killed_it_ends_with_the_same_bytes(small, tmp_path, after):
    """Takes 6 s: the study is run again, in two halves."""
    plan, folder, _ = small
    code, out = tmp_path / "killed.py", tmp_path / "out"
    code.write_text(KILLED)
    assert script(code, tmp_path, plan, out, after).returncode == -signal.SIGKILL
    assert not (out / "table.csv").exists()
    assert len(list((out / "results").iterdir())) == after
    run_study(read_study_config(plan), out)
    assert studies.contents(out) == studies.contents(folder)


def test_a_step_here_has_the_threads_that_it_has_in_a_worker(tmp_path, monkeypatch):
    seen = []

    def output(step, **_):
        seen.append(torch.get_num_threads())
        return StepFailure(problem="nothing", hint="nothing")

    monkeypatch.setattr("levelhead.study.run.run_step_safely", output)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        run_study(read_study_config(studies.study(tmp_path)), tmp_path / "run")
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_a_second_run_computes_nothing(every_step, tmp_path, monkeypatch):
    folder = every_step.copied(tmp_path / "out")
    for name in (
        "locate",
        "describe_map",
        "compare_with_random_heads",
        "repeat_splits",
        "select_heads_greedily",
    ):
        monkeypatch.setattr(f"levelhead.study.steps.head_maps.{name}", None)
    monkeypatch.setattr("levelhead.study.steps.counterstereotype.counterstereotype", None)
    run_study(read_study_config(every_step.plan), folder)
    assert studies.contents(folder) == studies.contents(every_step.folder)


def test_threads_are_those_of_the_study(small, tmp_path):
    """They decide the last bits of its results, which are kept under the same name."""
    plan, _, _ = small
    with pytest.raises(LevelheadError, match="3 threads, and the study says 1"):
        run_study(read_study_config(plan), tmp_path / "run", context=RunContext(threads=3))


def test_a_study_of_confidential_texts_records_none(small, tmp_path):
    """The responses are stored, so that only the measurement is computed again."""
    plan, folder, results = small
    shutil.copytree(folder, tmp_path / "run")
    with pytest.raises(LevelheadError, match="the study records the texts of items"):
        run_study(read_study_config(plan), tmp_path / "run", context=RunContext(record_items=False))
    config = read_study_config(plan).model_copy(update={"record_items": False})
    cells = {
        name: result
        for name, result in run_study(config, tmp_path / "run").items()
        if isinstance(result, Measurement)
    }
    assert cells
    for name, result in cells.items():
        assert results[name].item_details
        assert result == results[name].without_items()


def test_two_runs_in_one_folder_are_refused(small):
    plan, folder, _ = small
    with exclusive_lock(str(folder)), pytest.raises(FolderInUseError):
        run_study(read_study_config(plan), folder)


def test_files_of_others_stay(small, tmp_path):
    plan, folder, _ = small
    mine = tmp_path / "results" / "seat.json"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ForeignFolderError, match="contains 'results'"):
        run_study(read_study_config(plan), tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["results", "seat.json"]
    # In a run's own folder a result of a step that the study has no more is removed, nothing else.
    gone, note = (folder / "results" / name for name in ("map.gone.json", "note.txt"))
    for path in (gone, note):
        path.write_text("{}")
    run_study(read_study_config(plan), folder)
    assert not gone.exists()
    assert note.exists()
    note.unlink()


def test_another_plan_leaves_nothing_of_the_one_before(tmp_path, monkeypatch):
    def stopped(step, **_):
        raise KeyboardInterrupt

    out, unsure = tmp_path / "out", StepFailure(problem="nothing", hint="nothing")
    plan = read_study_config(studies.study(tmp_path))
    monkeypatch.setattr("levelhead.study.run.run_step_safely", lambda step, **_: unsure)
    run_study(plan, out)
    before = studies.contents(out)
    assert len(before) > 1
    monkeypatch.setattr("levelhead.study.run.run_step_safely", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_study(plan, out)  # the same plan, interrupted: what it has given stays
    assert studies.contents(out) == before
    with pytest.raises(KeyboardInterrupt):
        run_study(plan.model_copy(update={"seed": plan.seed + 1}), out)
    assert list((out / "results").iterdir()) == []
    assert not (out / "table.csv").exists()


@pytest.mark.parametrize(
    ("text", "results", "sample"),
    [
        # Takes 6 s: four figures, as SVG and PNG.
        (studies.FEW, 2, ("map.again", "map.again.ranked")),
        pytest.param(
            studies.STUDY,
            8,
            ("map.gender", "map.gender.ranked", "control.gender.3", "compare.itself"),
            marks=pytest.mark.full,
        ),
    ],
)
def test_the_command_draws_a_page(tmp_path, text, results, sample):
    folder = tmp_path / "out"
    done = levelhead("study", "run", str(studies.study(tmp_path, text)), "-o", str(folder))
    assert done.returncode == 0, done.stderr
    assert f"table.csv: {results} results" in done.stdout
    page = (folder / "index.html").read_text()
    for name in sample:
        assert f"figures/{name}.svg" in page
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<svg")


def test_a_sign_that_is_not_known_leaves_steps_inconclusive(tmp_path):
    plan = studies.study(
        tmp_path, studies.STUDY.replace('bias_direction = "+"', 'bias_direction = "auto"')
    )
    done = levelhead("study", "run", str(plan), "-o", str(tmp_path / "out"), "--no-charts")
    assert done.returncode == 2, done.stderr
    assert "inconclusive: control.gender.3: sign undetermined" in done.stdout
    with (tmp_path / "out" / "table.csv").open() as file:
        steps = {row["step"] for row in csv.DictReader(file)}
    assert "map.gender" in steps
    assert "control.gender.3" not in steps


def test_a_wrong_path_fails_the_study(tmp_path):
    plan = studies.study(tmp_path)
    plan.write_text(plan.read_text().replace('path = "', 'path = "/nowhere'))
    with pytest.raises(LevelheadError):
        run_study(read_study_config(plan), tmp_path / "out")
    assert not (tmp_path / "out" / "table.csv").exists()
