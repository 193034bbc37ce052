"""A sweep of projections on a tiny model: every step, resumed to the same bytes."""

from functools import cache

import contrasts
import pytest
from calibrations import Failed
from metric_cases import made, model, triples

from levelhead.core.calibration import DAGGER
from levelhead.core.errors import UnknownNameError
from levelhead.core.results import StepFailure
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.controls import placebo_report as room
from levelhead.mitigate.controls.placebo_report import PlaceboReport
from levelhead.mitigate.evaluation.sweep import SweepReport
from levelhead.mitigate.projection.config_grid import EDIT_POINTS, projection_grid
from levelhead.mitigate.selection.select_on_dev import DevSelection
from levelhead.replication.dawkins2024.pair_budget import PairBudgetCurve, SubspaceStabilityReport
from levelhead.study.config import StudyConfig
from levelhead.study.run import run_study
from levelhead.study.session import StudySession
from levelhead.study.steps import projection_sweep
from levelhead.study.table import result_to_rows

SWEEP = {
    "model": "tiny",
    "measures": ["dev", "seat"],
    "bias_measure": "dev",
    "test_measure": "test",
    "utility_measure": "seat",
    "stability_resamples": 99,
    "pair_counts": [8, 16],
    "placebos": 200,
}
PLAN = {
    "format": "levelhead-study-2",
    "name": "tiny",
    "resamples": 99,
    "permutations": 99,
    "models": {"tiny": {"path": "tiny"}},
    "measures": {"dev": "strength", "test": "strength", "seat": "seat"},
}

PAIRS = contrasts.texts((*contrasts.WORDS, *contrasts.MORE))


def plan(**changes):
    return StudyConfig.model_validate(PLAN | {"projection_sweeps": {"all": SWEEP | changes}})


@pytest.fixture
def tiny(monkeypatch):
    """Measures, pairs and the model in the words of the zoo."""
    every = triples(24)
    measures = {
        "dev": Strength(triples=every[:12], top=0.3),
        "test": Strength(triples=every[12:], top=0.3),
        "seat": made("seat"),
    }
    monkeypatch.setattr(StudySession, "measure", lambda self, name: measures[name])
    loaded = cache(model)  # as a study does: once
    monkeypatch.setattr(StudySession, "model", lambda self, name: loaded("strength"))
    monkeypatch.setattr(projection_sweep, "contrast_pairs", lambda name, n=None, seed=0: PAIRS[:n])
    monkeypatch.setattr(room, "placebo_pairs", lambda contrast: contrasts.texts()[4:])


OF_NO_RULER = ("as many at right angles", "temperature")


def contents(folder):
    files = [folder / "table.csv", *sorted((folder / "results").iterdir())]
    return {path.name: path.read_bytes() for path in files}


SOME = ("sent", "penultimate")
"""34 of the 74 settings: a level that SEAT cannot read and one that it can."""


# Takes 10 s with some levels: each is judged against 200 placebos, the fewest that a plan may ask.
@pytest.mark.parametrize("levels", [SOME, pytest.param(EDIT_POINTS, marks=pytest.mark.full)])
def test_every_step_of_a_sweep(tiny, tmp_path, monkeypatch, levels):
    settings = [item for item in projection_grid() if item.edit_point in levels]
    # A price that says which way is worse is wanted: SEAT is none.
    queries = plan(
        utility_measure=None, edit_points=None if levels == EDIT_POINTS else list(levels)
    )
    result = run_study(queries, tmp_path)
    assert list(result) == [
        *("stability.all", "sweep.all.dev", "sweep.all.seat"),
        *("findings.all.dev", "findings.all.test", "choice.all", "choice.all.value", "pairs.all"),
        *(f"placebo.all.{level}" for level in levels),
    ]
    assert isinstance(result["stability.all"], SubspaceStabilityReport)
    strength, seat = result["sweep.all.dev"], result["sweep.all.seat"]
    assert isinstance(strength, SweepReport)
    assert [variant.name for variant in strength.variants] == [setting.name for setting in settings]
    assert not strength.unaffected_variants
    for item in strength.variants:
        assert item.change.value == pytest.approx(item.value - strength.base.value)
    # SEAT reads words, not the first token nor the classifier's input.
    assert isinstance(seat, SweepReport)
    assert set(seat.unaffected_variants) == {
        setting.name for setting in settings if setting.edit_point in ("sent", "last")
    }
    assert len(seat.variants) == (64 if levels == EDIT_POINTS else 32)
    choice = result["choice.all"]
    assert isinstance(choice, DevSelection)
    assert [item.data.keys() for item in choice.provenance] == [strength.provenance.data.keys()] * 2
    assert result["findings.all.dev"].provenance == strength.provenance
    if choice.chosen is not None:
        assert isinstance(result["pairs.all"], PairBudgetCurve)
        assert [size.pairs for size in result["pairs.all"].sizes] == [8, 16]
    judged = [result[f"placebo.all.{level}"] for level in levels]
    assert any(isinstance(item, PlaceboReport) for item in judged)
    for level, item in zip(levels, judged, strict=True):
        if isinstance(item, PlaceboReport):
            assert item.variant.startswith(level)
            assert len(item.placebo_test.placebo_gains) == 200
            assert item.variance_match.n_placebos == 200
            assert item.provenance.model_hash == strength.provenance.model_hash
            assert item.n_candidates == sum(setting.edit_point == level for setting in settings)
            assert -1 <= item.placebo_test.item_correlation <= 1
        else:
            assert isinstance(item, StepFailure)
    with monkeypatch.context() as failing:
        failing.setattr("levelhead.core.calibration.load_calibration", lambda: Failed("strength"))
        for name, item in result.items():
            failed = name != "stability.all" and "seat" not in name
            output = [row.mark for row in result_to_rows(name, item) if row.what not in OF_NO_RULER]
            assert set(output) <= {DAGGER if failed else ""}
    before = contents(tmp_path)
    (tmp_path / "table.csv").unlink()
    run_study(queries, tmp_path)
    assert contents(tmp_path) == before


def test_a_sweep_of_one_level_has_no_steps_of_others(tiny, tmp_path):
    row = plan(
        utility_measure=None, stability_resamples=None, pair_counts=None, edit_points=["last"]
    )
    steps = projection_sweep.steps_of_sweep(
        StudySession(row, tmp_path), "all", row.projection_sweeps["all"]
    )
    assert [step.name for step in steps if "placebo" in step.name] == ["placebo.all.last"]


def test_names_of_a_sweep_are_checked():
    for wrong in ({"model": "other"}, {"bias_measure": "other"}, {"utility_measure": "other"}):
        with pytest.raises(UnknownNameError):
            plan(**wrong).check()
    with pytest.raises(
        ValueError, match="dev both chooses and reports: give a test_measure with other items"
    ):
        plan(test_measure="dev")
    with pytest.raises(ValueError, match="greater than or equal to 200"):
        plan(placebos=20)
