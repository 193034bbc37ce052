"""A sweep of projections on a tiny model: every step, resumed to the same bytes."""

from functools import cache

import contrasts
import pytest
from calibrations import Failed
from rulers import made, model, triples

from levelhead.core.calibration import MISSES
from levelhead.core.errors import UnknownName
from levelhead.core.results import Inconclusive
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.controls import placebo_report as room
from levelhead.mitigate.controls.placebo_report import Placeboed
from levelhead.mitigate.evaluation.sweep import Swept
from levelhead.mitigate.projection.config_grid import LEVELS, grid
from levelhead.mitigate.selection.select_on_dev import Choice
from levelhead.study.config import Plan
from levelhead.study.run import run
from levelhead.study.session import Work
from levelhead.study.steps import projection_sweep
from levelhead.study.steps.projection_sweep import Handful, Stable
from levelhead.study.table import rows

SWEEP = {
    "model": "tiny",
    "measures": ["dev", "seat"],
    "gain": "dev",
    "test": "test",
    "price": "seat",
    "stability": 99,
    "sizes": [8, 16],
    "placebos": 200,
}
PLAN = {
    "format": "levelhead-study-1",
    "name": "tiny",
    "draws": 99,
    "permutations": 99,
    "models": {"tiny": {"path": "tiny"}},
    "measures": {"dev": "strength", "test": "strength", "seat": "seat"},
}

PAIRS = contrasts.texts((*contrasts.WORDS, *contrasts.MORE))


def plan(**changes):
    return Plan.model_validate(PLAN | {"sweeps": {"all": SWEEP | changes}})


@pytest.fixture
def tiny(monkeypatch):
    """Measures, pairs and the model in the words of the zoo."""
    every = triples(24)
    rulers = {
        "dev": Strength(triples=every[:12], top=0.3),
        "test": Strength(triples=every[12:], top=0.3),
        "seat": made("seat"),
    }
    monkeypatch.setattr(Work, "measure", lambda self, name: rulers[name])
    loaded = cache(model)  # as a study does: once
    monkeypatch.setattr(Work, "model", lambda self, name: loaded("strength"))
    monkeypatch.setattr(projection_sweep, "paired", lambda name, n=None, seed=0: PAIRS[:n])
    monkeypatch.setattr(room, "placebo_pairs", lambda contrast: contrasts.texts()[4:])


OF_NO_RULER = ("as many at right angles", "temperature")


def contents(folder):
    files = [folder / "table.csv", *sorted((folder / "results").iterdir())]
    return {path.name: path.read_bytes() for path in files}


SOME = ("sent", "penultimate")
"""34 of the 74 settings: a level that SEAT cannot read and one that it can."""


# Takes 10 s with some levels: each is judged against 200 placebos, the fewest that a plan may ask.
@pytest.mark.parametrize("levels", [SOME, pytest.param(LEVELS, marks=pytest.mark.full)])
def test_every_step_of_a_sweep(tiny, tmp_path, monkeypatch, levels):
    settings = [one for one in grid() if one.level in levels]
    # A price that says which way is worse is wanted: SEAT is none.
    asked = plan(price=None, levels=None if levels == LEVELS else list(levels))
    found = run(asked, tmp_path)
    assert list(found) == [
        *("stability.all", "sweep.all.dev", "sweep.all.seat"),
        *("findings.all.dev", "findings.all.test", "choice.all", "choice.all.value", "pairs.all"),
        *(f"placebo.all.{level}" for level in levels),
    ]
    assert isinstance(found["stability.all"], Stable)
    strength, seat = found["sweep.all.dev"], found["sweep.all.seat"]
    assert isinstance(strength, Swept)
    assert [one.name for one in strength.settings] == [one.name for one in settings]
    assert not strength.behind
    for one in strength.settings:
        assert one.change.value == pytest.approx(one.value - strength.base.value)
    # SEAT reads words, not the first token nor the classifier's input.
    assert isinstance(seat, Swept)
    assert set(seat.behind) == {one.name for one in settings if one.level in ("sent", "last")}
    assert len(seat.settings) == (64 if levels == LEVELS else 32)
    choice = found["choice.all"]
    assert isinstance(choice, Choice)
    assert [one.data.keys() for one in choice.provenance] == [strength.provenance.data.keys()] * 2
    assert found["findings.all.dev"].provenance == strength.provenance
    if choice.chosen is not None:
        assert isinstance(found["pairs.all"], Handful)
        assert [one.pairs for one in found["pairs.all"].sizes] == [8, 16]
    judged = [found[f"placebo.all.{level}"] for level in levels]
    assert any(isinstance(one, Placeboed) for one in judged)
    for level, one in zip(levels, judged, strict=True):
        if isinstance(one, Placeboed):
            assert one.setting.startswith(level)
            assert len(one.judged.placebos) == 200
            assert one.matched.placebos == 200
            assert one.provenance.model_hash == strength.provenance.model_hash
            assert one.among == sum(setting.level == level for setting in settings)
            assert -1 <= one.judged.alike <= 1
        else:
            assert isinstance(one, Inconclusive)
    with monkeypatch.context() as failing:
        failing.setattr("levelhead.core.calibration.kept", lambda: Failed("strength"))
        for name, one in found.items():
            failed = name != "stability.all" and "seat" not in name
            told = [row.mark for row in rows(name, one) if row.what not in OF_NO_RULER]
            assert set(told) <= {MISSES if failed else ""}
    before = contents(tmp_path)
    (tmp_path / "table.csv").unlink()
    run(asked, tmp_path)
    assert contents(tmp_path) == before


def test_a_sweep_of_one_level_has_no_steps_of_others(tiny, tmp_path):
    row = plan(price=None, stability=None, sizes=None, levels=["last"])
    steps = projection_sweep.sweeping(Work(row, tmp_path), "all", row.sweeps["all"])
    assert [one.name for one in steps if "placebo" in one.name] == ["placebo.all.last"]


def test_names_of_a_sweep_are_checked():
    for wrong in ({"model": "other"}, {"gain": "other"}, {"price": "other"}):
        with pytest.raises(UnknownName):
            plan(**wrong).check()
    with pytest.raises(ValueError, match="dev chooses and reports: test is a measure of other"):
        plan(test="dev")
    with pytest.raises(ValueError, match="greater than or equal to 200"):
        plan(placebos=20)
