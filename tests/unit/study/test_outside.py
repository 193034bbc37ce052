"""Settings in classifiers on a tiny model: every step, resumed to the same bytes."""

from functools import cache

import contrasts
import pytest
from calibrations import Failed
from rulers import headless, made, model, triples

from levelhead.core.calibration import MISSES
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.evaluation.sweep import Swept
from levelhead.mitigate.projection.config_grid import LEVELS, grid
from levelhead.mitigate.projection.edit_points import edits_of, subspaces
from levelhead.replication.dawkins2024.downstream import Downstream
from levelhead.study.config import Plan
from levelhead.study.run import run
from levelhead.study.session import Work
from levelhead.study.steps import downstream, projection_sweep
from levelhead.study.steps.glue import Masks
from levelhead.study.steps.kinds import make_steps
from levelhead.study.table import rows

OUTSIDE = {
    "sweep": "nsp",
    "inside": ["strength"],
    "models": ["one", "two"],
    "outside": ["fairness", "snli"],
    "price": "snli",
    "keep": 0.5,
}
PLAN = {
    "format": "levelhead-study-1",
    "name": "tiny",
    "draws": 99,
    "permutations": 99,
    "models": {"tiny": {"path": "tiny"}},
    "tuned": {
        "one": {"of": "tiny", "task": "nli", "seed": 0},
        "two": {"of": "tiny", "task": "nli", "seed": 1},
    },
    "measures": {
        "strength": "strength",
        "other": "strength",
        "fairness": "nli",
        "snli": "snli",
    },
    "sweeps": {
        "nsp": {
            "model": "tiny",
            "measures": ["strength"],
            "gain": "strength",
            "test": "other",
        }
    },
}


def plan(levels=None, **changes):
    sweep = PLAN["sweeps"]["nsp"] | {"levels": levels}
    return Plan.model_validate(
        PLAN | {"sweeps": {"nsp": sweep}, "downstream": {"nli": OUTSIDE | changes}}
    )


@pytest.fixture
def tiny(monkeypatch):
    """Measures, pairs and models in the words of the zoo; the classifiers are there already."""
    rulers = {
        "strength": Strength(triples=triples(24), top=0.3),
        "other": Strength(triples=triples(36)[24:], top=0.3),
        "fairness": made("nli_fairness"),
        "snli": made("snli"),
    }
    models = {"tiny": "strength", "one": "nli_fairness", "two": "nli_fairness"}
    monkeypatch.setattr(Work, "measure", lambda self, name: rulers[name])
    loaded = cache(model)  # as a study does: once
    monkeypatch.setattr(Work, "model", lambda self, name: loaded(models[name]))
    for place in (downstream, projection_sweep):
        monkeypatch.setattr(place, "paired", lambda name, n=None, seed=0: contrasts.texts()[:n])


@pytest.mark.parametrize(
    "levels",
    [
        ("sent", "last"),  # 10 of the 74 settings: before the classifier's input and at it
        pytest.param(LEVELS, marks=pytest.mark.full),
    ],
)
def test_settings_outside(tiny, tmp_path, monkeypatch, levels):
    asked = plan(list(levels))
    every = [step.name for step in make_steps(Work(asked, tmp_path))]
    assert every[:2] == ["tuned.one", "tuned.two"]
    assert every[-5:] == [
        *(f"outside.nli.{one}.{of}" for one in ("one", "two") for of in ("fairness", "snli")),
        "downstream.nli",
    ]
    # Training and the sweep inside have tests of their own.
    monkeypatch.setattr(
        "levelhead.study.run.make_steps",
        lambda work: [step for step in make_steps(work) if "nli" in step.name],
    )
    found = run(asked, tmp_path)
    swept, table = found["outside.nli.one.fairness"], found["downstream.nli"]
    assert isinstance(swept, Swept)
    assert isinstance(table, Downstream)
    names = ["sent-debias", *(one.name for one in grid() if one.level in levels)]
    assert [one.name for one in swept.settings] == names
    assert list(table.column("fairness").settings) == names
    assert table.models == 2
    # Two seeds that are one and the same model here: the mean is each.
    assert table.column("snli").apart[0] == table.column("snli").apart[1]
    values = {one.name: one.value for one in swept.settings}
    assert table.column("fairness").settings == pytest.approx(values)
    assert table.column("fairness").base == pytest.approx(swept.base.value)
    with monkeypatch.context() as failing:
        failing.setattr("levelhead.core.calibration.kept", lambda: Failed("nli_fairness"))
        told = rows("downstream.nli", table)
        assert {row.mark for row in told if row.what == "fairness"} == {MISSES}
        assert {row.mark for row in told if row.what == "best by fairness"} == {MISSES}
        assert {row.mark for row in told if row.what.endswith("and fairness")} == {MISSES}
        assert {row.mark for row in told if "fairness" not in row.what} == {""}
    before = (tmp_path / "table.csv").read_bytes()
    (tmp_path / "table.csv").unlink()
    run(asked, tmp_path)
    assert (tmp_path / "table.csv").read_bytes() == before


def test_whose_subspaces(tiny, tmp_path):
    pairs, every = contrasts.texts(), {}
    for whose, source in (("refitted", "one"), ("reused", "tiny")):
        work = Work(plan(subspaces=whose), tmp_path)
        classifier, setting = work.model("one"), grid()[-1]
        expected = edits_of(classifier, setting, subspaces(work.model(source), pairs))
        found = downstream._edits(work, work.plan.downstream["nli"], classifier)
        assert found[setting.name] == expected
        every[whose] = found
    assert all(every["refitted"][name] != edits for name, edits in every["reused"].items())


def test_a_base_without_a_pooled_vector_is_refused_before_anything_is_trained(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(Work, "model", lambda self, name: headless("strength"))
    with pytest.raises(LevelheadError, match=r"tiny, which \[downstream.nli\] sets classifiers"):
        list(make_steps(Work(plan(), tmp_path)))


def test_a_column_is_inside_or_outside():
    with pytest.raises(LevelheadError, match="strength is a measure inside and outside"):
        plan(outside=["strength", "snli"]).check()


def test_names_are_checked():
    plan().check()
    for wrong in (
        {"tuned": {**PLAN["tuned"], "two": {"of": "tiny", "task": "rte", "seed": 1}}},
        {"tuned": {**PLAN["tuned"], "two": {"of": "tiny", "task": "nli", "seed": 0}}},
    ):
        with pytest.raises(LevelheadError, match="differ in more than their seed, or not in it"):
            Plan.model_validate(PLAN | wrong | {"downstream": {"nli": OUTSIDE}}).check()
    other = {"of": "other", "task": "nli", "seed": 1}
    foreign = {
        "models": {**PLAN["models"], "other": {"path": "other"}},
        "tuned": {**PLAN["tuned"], "two": other},
        "downstream": {"nli": OUTSIDE},
    }
    with pytest.raises(LevelheadError, match="classifiers of another model than the sweep's"):
        Plan.model_validate(PLAN | foreign).check()
    with pytest.raises(ValueError, match="a seed stands here twice"):
        Masks(map="gender", tasks=["rte"], seeds=[0, 0])
    for wrong in ({"sweep": "x"}, {"models": ["tiny"]}, {"outside": ["x"]}, {"price": "strength"}):
        with pytest.raises(UnknownName):
            plan(**wrong).check()
    with pytest.raises(UnknownName, match="task"):
        Plan.model_validate(PLAN | {"tuned": {"one": {"of": "tiny", "task": "x"}}}).check()
    twice = PLAN | {"tuned": {"tiny": {"of": "tiny", "task": "nli"}}}
    with pytest.raises(LevelheadError, match="tiny is the name of two models"):
        Plan.model_validate(twice).check()
