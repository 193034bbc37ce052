"""Settings in classifiers on a tiny model: every step, resumed to the same bytes."""

from functools import cache

import contrasts
import pytest
from calibrations import Failed
from metric_cases import headless, made, model, triples

from levelhead.core.calibration import DAGGER
from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.evaluation.sweep import SweepReport
from levelhead.mitigate.projection.config_grid import EDIT_POINTS, projection_grid
from levelhead.mitigate.projection.edit_points import build_edits, fit_subspaces
from levelhead.replication.dawkins2024.downstream import DownstreamReport
from levelhead.study.config import StudyConfig
from levelhead.study.run import run_study
from levelhead.study.session import StudySession
from levelhead.study.steps import downstream, projection_sweep
from levelhead.study.steps.glue import GlueMaskingStep
from levelhead.study.steps.kinds import make_steps
from levelhead.study.table import result_to_rows

OUTSIDE = {
    "sweep": "nsp",
    "intrinsic": ["strength"],
    "models": ["one", "two"],
    "extrinsic": ["fairness", "snli"],
    "utility_measure": "snli",
    "max_utility_loss": 0.5,
}
PLAN = {
    "format": "levelhead-study-2",
    "name": "tiny",
    "resamples": 99,
    "permutations": 99,
    "models": {"tiny": {"path": "tiny"}},
    "classifiers": {
        "one": {"base": "tiny", "task": "nli", "seed": 0},
        "two": {"base": "tiny", "task": "nli", "seed": 1},
    },
    "measures": {
        "strength": "strength",
        "other": "strength",
        "fairness": "nli",
        "snli": "snli",
    },
    "projection_sweeps": {
        "nsp": {
            "model": "tiny",
            "measures": ["strength"],
            "bias_measure": "strength",
            "test_measure": "other",
        }
    },
}


def plan(levels=None, **changes):
    sweep = PLAN["projection_sweeps"]["nsp"] | {"edit_points": levels}
    return StudyConfig.model_validate(
        PLAN | {"projection_sweeps": {"nsp": sweep}, "downstream": {"nli": OUTSIDE | changes}}
    )


@pytest.fixture
def tiny(monkeypatch):
    """Measures, pairs and models in the words of the zoo; the classifiers are there already."""
    measures = {
        "strength": Strength(triples=triples(24), top=0.3),
        "other": Strength(triples=triples(36)[24:], top=0.3),
        "fairness": made("nli_fairness"),
        "snli": made("snli"),
    }
    models = {"tiny": "strength", "one": "nli_fairness", "two": "nli_fairness"}
    monkeypatch.setattr(StudySession, "measure", lambda self, name: measures[name])
    loaded = cache(model)  # as a study does: once
    monkeypatch.setattr(StudySession, "model", lambda self, name: loaded(models[name]))
    for place in (downstream, projection_sweep):
        monkeypatch.setattr(
            place, "contrast_pairs", lambda name, n=None, seed=0: contrasts.texts()[:n]
        )


@pytest.mark.parametrize(
    "levels",
    [
        ("sent", "last"),  # 10 of the 74 settings: before the classifier's input and at it
        pytest.param(EDIT_POINTS, marks=pytest.mark.full),
    ],
)
def test_settings_outside(tiny, tmp_path, monkeypatch, levels):
    queries = plan(list(levels))
    every = [step.name for step in make_steps(StudySession(queries, tmp_path))]
    assert every[:2] == ["tuned.one", "tuned.two"]
    assert every[-5:] == [
        *(f"outside.nli.{item}.{of}" for item in ("one", "two") for of in ("fairness", "snli")),
        "downstream.nli",
    ]
    # Training and the sweep inside have tests of their own.
    monkeypatch.setattr(
        "levelhead.study.run.make_steps",
        lambda work: [step for step in make_steps(work) if "nli" in step.name],
    )
    result = run_study(queries, tmp_path)
    swept, table = result["outside.nli.one.fairness"], result["downstream.nli"]
    assert isinstance(swept, SweepReport)
    assert isinstance(table, DownstreamReport)
    names = ["sent-debias", *(item.name for item in projection_grid() if item.edit_point in levels)]
    assert [variant.name for variant in swept.variants] == names
    assert list(table.column("fairness").values_by_config) == names
    assert table.models == 2
    # Two seeds that are one and the same model here: the mean is each.
    assert table.column("snli").per_model[0] == table.column("snli").per_model[1]
    values = {variant.name: variant.value for variant in swept.variants}
    assert table.column("fairness").values_by_config == pytest.approx(values)
    assert table.column("fairness").base == pytest.approx(swept.base.value)
    with monkeypatch.context() as failing:
        failing.setattr(
            "levelhead.core.calibration.load_calibration", lambda: Failed("nli_fairness")
        )
        output = result_to_rows("downstream.nli", table)
        assert {row.mark for row in output if row.what == "fairness"} == {DAGGER}
        assert {row.mark for row in output if row.what == "best by fairness"} == {DAGGER}
        assert {row.mark for row in output if row.what.endswith("and fairness")} == {DAGGER}
        assert {row.mark for row in output if "fairness" not in row.what} == {""}
    before = (tmp_path / "table.csv").read_bytes()
    (tmp_path / "table.csv").unlink()
    run_study(queries, tmp_path)
    assert (tmp_path / "table.csv").read_bytes() == before


def test_whose_subspaces(tiny, tmp_path):
    pairs, every = contrasts.texts(), {}
    for whose, source in (("refitted", "one"), ("reused", "tiny")):
        work = StudySession(plan(subspaces=whose), tmp_path)
        classifier, setting = work.model("one"), projection_grid()[-1]
        expected = build_edits(classifier, setting, fit_subspaces(work.model(source), pairs))
        result = downstream._build_edits(work, work.config.downstream["nli"], classifier)
        assert result[setting.name] == expected
        every[whose] = result
    assert all(every["refitted"][name] != edits for name, edits in every["reused"].items())


def test_a_base_without_a_pooled_vector_is_refused_before_anything_is_trained(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(StudySession, "model", lambda self, name: headless("strength"))
    with pytest.raises(LevelheadError, match=r"tiny, which \[downstream.nli\] compares"):
        list(make_steps(StudySession(plan(), tmp_path)))


def test_a_column_is_inside_or_outside():
    with pytest.raises(LevelheadError, match="strength is an intrinsic and an extrinsic measure"):
        plan(extrinsic=["strength", "snli"]).check()


def test_names_are_checked():
    plan().check()
    for wrong in (
        {"classifiers": {**PLAN["classifiers"], "two": {"base": "tiny", "task": "rte", "seed": 1}}},
        {"classifiers": {**PLAN["classifiers"], "two": {"base": "tiny", "task": "nli", "seed": 0}}},
    ):
        with pytest.raises(LevelheadError, match="must differ in their seed and in nothing else"):
            StudyConfig.model_validate(PLAN | wrong | {"downstream": {"nli": OUTSIDE}}).check()
    other = {"base": "other", "task": "nli", "seed": 1}
    foreign = {
        "models": {**PLAN["models"], "other": {"path": "other"}},
        "classifiers": {**PLAN["classifiers"], "two": other},
        "downstream": {"nli": OUTSIDE},
    }
    with pytest.raises(LevelheadError, match="classifiers of another model than the sweep's"):
        StudyConfig.model_validate(PLAN | foreign).check()
    with pytest.raises(ValueError, match="a seed occurs twice"):
        GlueMaskingStep(map="gender", tasks=["rte"], seeds=[0, 0])
    for wrong in (
        {"sweep": "x"},
        {"models": ["tiny"]},
        {"extrinsic": ["x"]},
        {"utility_measure": "strength"},
    ):
        with pytest.raises(UnknownNameError):
            plan(**wrong).check()
    with pytest.raises(UnknownNameError, match="task"):
        StudyConfig.model_validate(
            PLAN | {"classifiers": {"one": {"base": "tiny", "task": "x"}}}
        ).check()
    twice = PLAN | {"classifiers": {"tiny": {"base": "tiny", "task": "nli"}}}
    with pytest.raises(LevelheadError, match="tiny is the name of two models"):
        StudyConfig.model_validate(twice).check()
