"""Many models by the same measures: ranges of ranks, and what fails with one costs no other."""

import csv

import maps
import metric_cases
import pytest
import studies
import zoo
from command import SERVER, levelhead
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Interval, Skill
from levelhead.core.run_context import Inference
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.study.leaderboard import read_models, run_leaderboard
from levelhead.study.leaderboard_ranks import (
    Leaderboard,
    ModelEntry,
    leaderboard_to_csv,
    sort_entries,
)

FEW = Inference(resamples=99, permutations=99)


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    """Three models, a folder that is none, and a measure that fits."""
    folder = tmp_path_factory.mktemp("many")
    models = [str(zoo.folder("bert", "BertForPreTraining", seed=seed)) for seed in range(3)]
    (folder / "none").mkdir()
    lexicon = studies.lexicon(folder)
    measure = f"seat:lexicon={lexicon},targets=things,corpus={metric_cases.corpus()}"
    return [*models, str(folder / "none")], measure


@pytest.fixture(scope="module")
def board(queries, tmp_path_factory):
    models, measure = queries
    folder = tmp_path_factory.mktemp("board")
    output = []
    result = run_leaderboard(
        models, [measure], folder, inference=FEW, on_model=lambda *single: output.append(single)
    )
    assert output == [(name, number + 1, 4) for number, name in enumerate(models)]
    return folder, *result


def test_what_fails_with_one_model_is_told_and_the_others_go_on(queries, board):
    (*models, none), measure = queries
    _, result, costs = board
    assert {entry.model for entry in result.entries if entry.measurements} == set(models)
    last = result.entries[-1]
    assert last.model == none
    assert "config.json" in last.missing[measure]
    assert not any(entry.measurements[measure].item_details for entry in result.entries[:-1])
    assert costs[none].model_bytes == 0
    assert all(costs[name].model_bytes > 0 and costs[name].stored_bytes > 0 for name in models)


def test_models_are_in_order_of_their_distance_from_parity(queries, board):
    _, measure = queries
    folder, result, _ = board
    ranked = result.rank_ranges(measure)
    values = [
        abs(entry.measurements[measure].value) for entry in result.entries if entry.name in ranked
    ]
    assert values == sorted(values)
    with (folder / "leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == [entry.model for entry in result.entries]
    assert [float(row["value"]) for row in rows[:-1]] == [
        entry.measurements[measure].value for entry in result.entries[:-1]
    ]
    for row in rows[:-1]:  # random models: that words lie near each other says nothing
        assert row["skill"].startswith("embeddings of the two groups' words")
        assert row["verdict"].startswith("inconclusive (model lacks the skill")
        assert row["first_rank"] == ""
    assert rows[-1]["verdict"] == "not measured"
    assert rows[-1]["value"] == ""
    assert rows[-1]["missing"]
    assert Leaderboard.from_json((folder / "leaderboard.json").read_bytes()) == result


def test_processes_and_a_second_call_give_the_same_bytes(queries, board, tmp_path, monkeypatch):
    """Workers are forked with their imports done; the contract of runners spawns them."""
    monkeypatch.setattr("levelhead.engine.executors.processes._SPAWN", SERVER)
    models, measure = queries
    folder, _, costs = board
    for runner in (LocalProcesses(2), None):
        _, spent = run_leaderboard(models, [measure], tmp_path, inference=FEW, executor=runner)
        for name in ("leaderboard.json", "leaderboard.csv"):
            assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert spent[models[0]].model_bytes == costs[models[0]].model_bytes


def entrant(name, low, high, **changes):
    interval = Interval(level=0.95, low=low, high=high, method="made up")
    output = {"value": (low + high) / 2, "interval": interval, "parity": 0.0} | changes
    return ModelEntry(
        model=name, measurements={"seat": maps.measurement().model_copy(update=output)}
    )


def test_models_whose_intervals_overlap_share_their_ranks():
    result = Leaderboard(
        measures=("seat",),
        entries=(
            entrant("near", -0.1, 0.1),
            entrant("left", -0.6, -0.4),
            entrant("right", 0.5, 0.7),
            entrant("far", 1.0, 2.0),
            ModelEntry(model="none", missing={"seat": "no head"}),
        ),
    )
    assert result.rank_ranges("seat") == {
        "near": (1, 1),
        "left": (2, 3),
        "right": (2, 3),
        "far": (4, 4),
    }


def test_a_model_without_the_skill_is_not_ranked_nearest_to_parity():
    """An untrained model is at parity, and would win."""
    lacking = Skill(
        name="word order",
        value=50.0,
        interval=Interval(level=0.95, low=36.0, high=64.0, method="made up"),
        chance=50.0,
        threshold=75.0,
        n=48,
    )
    board = Leaderboard(
        measures=("seat",),
        entries=(
            ModelEntry(model="none", missing={"seat": "no head"}),
            entrant("untrained", -0.01, 0.01, skill=lacking),
            entrant("far", 1.0, 2.0),
            entrant("near", 0.1, 0.3),
        ),
    )
    assert board.rank_ranges("seat") == {"near": (1, 1), "far": (2, 2)}
    assert [entry.name for entry in sort_entries(board).entries] == [
        "near",
        "far",
        "untrained",
        "none",
    ]
    rows = {row["model"]: row for row in csv.DictReader(leaderboard_to_csv(board).splitlines())}
    assert rows["untrained"]["skill"].startswith("word order 50 [36, 64]")
    assert rows["untrained"]["first_rank"] == ""


def test_two_revisions_of_a_model_are_two():
    both = [entrant("same", 0.1, 0.2), entrant("same", 0.9, 1.0), entrant("other", 0.4, 0.5)]
    both = [
        single.model_copy(update={"revision": name})
        for single, name in zip(both, ("first", "second", None), strict=True)
    ]
    result = Leaderboard(measures=("seat",), entries=tuple(both))
    assert result.rank_ranges("seat") == {
        "same@first": (1, 1),
        "other": (2, 2),
        "same@second": (3, 3),
    }


def test_what_cannot_be_compared_has_no_ranks():
    for changes in ({"comparability_key": "other"}, {"parity": None}):
        both = (entrant("one", 0, 1, **changes), entrant("two", 0, 1))
        result = Leaderboard(measures=("seat",), entries=both)
        if "comparability_key" in changes:
            assert result.rank_ranges("seat") == {}
        else:
            assert "one" not in result.rank_ranges("seat")


def test_the_command_line(queries, board, tmp_path, monkeypatch):
    """In this process, whose worker is forked with its imports done."""
    monkeypatch.setattr("levelhead.engine.executors.processes._SPAWN", SERVER)
    (*models, none), measure = queries
    folder, _, _ = board
    (tmp_path / "models.txt").write_text(f"{models[1]}  # the second\n\n{none}\n")
    given = (
        *("leaderboard", models[0], models[2], "--file", str(tmp_path / "models.txt")),
        *("-m", measure, "-o", str(folder), "--resamples", "99", "--permutations", "99"),
    )
    completed = CliRunner().invoke(app, given)
    assert isinstance(completed.exception, ExitWithCode), completed.output
    assert completed.exception.code == INCONCLUSIVE
    assert "rank" in completed.stdout
    assert f"{none}: {measure} not measured" in completed.stdout.replace("\n", "")
    assert "[4/4]" in completed.stderr
    completed = levelhead(
        "leaderboard", models[0], models[0], "-m", measure, "-o", str(tmp_path / "no")
    )
    assert completed.returncode == 3
    assert "name each model once" in completed.stderr


def test_a_model_twice_is_an_error(tmp_path):
    with pytest.raises(LevelheadError, match="2 models, 1 different ones"):
        run_leaderboard(["a", "a"], ["seat"], tmp_path)


def test_a_file_of_models_is_read_or_refused(tmp_path):
    path = tmp_path / "models.txt"
    path.write_text("gpt2  # small\n\n# none\nbert@abc\n")
    assert read_models(path) == ["gpt2", "bert@abc"]
    for wrong, output in ((tmp_path / "none.txt", "No such file"), (tmp_path / "b.txt", "utf-8")):
        (tmp_path / "b.txt").write_bytes(b"caf\xe9")
        with pytest.raises(LevelheadError, match=f"cannot read .*{output}"):
            read_models(wrong)


def test_a_study_has_no_level_of_its_own(tmp_path):
    with pytest.raises(LevelheadError, match=r"have the level 0\.95, not 0\.9"):
        run_leaderboard(["tiny"], ["seat"], tmp_path / "board", inference=Inference(level=0.9))
