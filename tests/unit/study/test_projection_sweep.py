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
    rulers = {
        "dev": Strength(triples=every[:12], top=0.3),
        "test": Strength(triples=every[12:], top=0.3),
        "seat": made("seat"),
    }
    monkeypatch.setattr(StudySession, "measure", lambda self, name: rulers[name])
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
    settings = [one for one in projection_grid() if one.edit_point in levels]
    # A price that says which way is worse is wanted: SEAT is none.
    asked = plan(utility_measure=None, edit_points=None if levels == EDIT_POINTS else list(levels))
    found = run_study(asked, tmp_path)
    assert list(found) == [
        *("stability.all", "sweep.all.dev", "sweep.all.seat"),
        *("findings.all.dev", "findings.all.test", "choice.all", "choice.all.value", "pairs.all"),
        *(f"placebo.all.{level}" for level in levels),
    ]
    assert isinstance(found["stability.all"], SubspaceStabilityReport)
    strength, seat = found["sweep.all.dev"], found["sweep.all.seat"]
    assert isinstance(strength, SweepReport)
    assert [one.name for one in strength.variants] == [one.name for one in settings]
    assert not strength.unaffected_variants
    for one in strength.variants:
        assert one.change.value == pytest.approx(one.value - strength.base.value)
    # SEAT reads words, not the first token nor the classifier's input.
    assert isinstance(seat, SweepReport)
    assert set(seat.unaffected_variants) == {
        one.name for one in settings if one.edit_point in ("sent", "last")
    }
    assert len(seat.variants) == (64 if levels == EDIT_POINTS else 32)
    choice = found["choice.all"]
    assert isinstance(choice, DevSelection)
    assert [one.data.keys() for one in choice.provenance] == [strength.provenance.data.keys()] * 2
    assert found["findings.all.dev"].provenance == strength.provenance
    if choice.chosen is not None:
        assert isinstance(found["pairs.all"], PairBudgetCurve)
        assert [one.pairs for one in found["pairs.all"].sizes] == [8, 16]
    judged = [found[f"placebo.all.{level}"] for level in levels]
    assert any(isinstance(one, PlaceboReport) for one in judged)
    for level, one in zip(levels, judged, strict=True):
        if isinstance(one, PlaceboReport):
            assert one.variant.startswith(level)
            assert len(one.placebo_test.placebo_gains) == 200
            assert one.variance_match.n_placebos == 200
            assert one.provenance.model_hash == strength.provenance.model_hash
            assert one.n_candidates == sum(setting.edit_point == level for setting in settings)
            assert -1 <= one.placebo_test.item_correlation <= 1
        else:
            assert isinstance(one, StepFailure)
    with monkeypatch.context() as failing:
        failing.setattr("levelhead.core.calibration.load_calibration", lambda: Failed("strength"))
        for name, one in found.items():
            failed = name != "stability.all" and "seat" not in name
            told = [row.mark for row in result_to_rows(name, one) if row.what not in OF_NO_RULER]
            assert set(told) <= {DAGGER if failed else ""}
    before = contents(tmp_path)
    (tmp_path / "table.csv").unlink()
    run_study(asked, tmp_path)
    assert contents(tmp_path) == before


def test_a_sweep_of_one_level_has_no_steps_of_others(tiny, tmp_path):
    row = plan(
        utility_measure=None, stability_resamples=None, pair_counts=None, edit_points=["last"]
    )
    steps = projection_sweep.steps_of_sweep(
        StudySession(row, tmp_path), "all", row.projection_sweeps["all"]
    )
    assert [one.name for one in steps if "placebo" in one.name] == ["placebo.all.last"]


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
