"""A task with heads masked, before and after training, on real weights and real texts."""

import pytest
from assets import asset

from levelhead.models.loading.load import load
from levelhead.replication.yang2025.glue_masking import GlueMaskingResult
from levelhead.study.config import StudyConfig
from levelhead.study.run import run_study

GLUE = {"map": "gender", "tasks": ["wnli"], "seeds": [0, 1], "epochs": 0.1, "k": 2}
PLAN = {
    "format": "levelhead-study-2",
    "name": "glue",
    "resamples": 99,
    "permutations": 99,
    "threads": 1,
    "measures": {"lpbs": "lpbs:test=career_family"},
    "head_maps": {
        "gender": {
            "model": "minibert",
            "measure": "lpbs",
            "ablate_top": "none",
            "bias_direction": "+",
        }
    },
    "glue": {"after": {**GLUE, "random": 2}, "before": {**GLUE, "mask": "before"}},
}


# More than 5 s: a classifier is trained for two steps, and is asked without heads.
def test_a_task_without_heads_after_training(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    models = {"minibert": {"path": str(asset("models", "minibert-en"))}}
    plan = PLAN | {"models": models, "glue": {"after": GLUE | {"seeds": [0]}}}
    masked = run_study(StudyConfig.model_validate(plan), tmp_path)["glue.after.wnli"]
    assert isinstance(masked, GlueMaskingResult)
    assert [heads.name for heads in masked.sets] == ["top 2", "all positive"]
    assert len(masked.heads["top 2"]) == 2
    assert masked.sets[0].value == pytest.approx(masked.per_seed[0]["top 2"])
    assert masked.random == {}
    assert {path.name for path in (tmp_path / "glue" / "wnli").iterdir()} == {"0"}


@pytest.mark.full  # six classifiers are trained; after training, two are in the fast tier
@pytest.mark.timeout(900)
def test_a_task_without_heads(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    models = {"minibert": {"path": str(asset("models", "minibert-en"))}}
    result = run_study(StudyConfig.model_validate(PLAN | {"models": models}), tmp_path)
    after, before = result["glue.after.wnli"], result["glue.before.wnli"]
    assert isinstance(after, GlueMaskingResult)
    assert isinstance(before, GlueMaskingResult)
    # The classifiers without a mask are the same ones, trained once.
    assert [item["full"] for item in after.per_seed] == [item["full"] for item in before.per_seed]
    for item in (after, before):
        assert [item.name for item in item.sets] == ["top 2", "all positive"]
        assert len(item.heads["top 2"]) == 2
        mean = sum(seed["top 2"] for seed in item.per_seed) / 2
        assert item.sets[0].value == pytest.approx(mean)
    # Random heads stand beside the sets, and are no part of their families.
    assert {name: len(subset) for name, subset in after.random.items()} == {
        "top 2": 2,
        "all positive": 2,
    }
    assert before.random == {}
    assert all(item.change is None or item.change.p.family == 2 for item in after.sets)
    made = tmp_path / "glue" / "wnli"
    assert {path.name for path in made.iterdir()} == {
        f"{seed}{end}" for seed in (0, 1) for end in ("", "-masked-0", "-masked-1")
    }
    # What was masked while training is 0 in the weights.
    masked = load(str(made / "0-masked-0"))
    output = {tuple(map(int, label.split("-"))) for label in before.heads["top 2"]}
    for layer, head in output:
        dense = masked.layout.hook_point("head_out", layer - 1).module
        columns = masked.layout.head_columns("head_out", layer - 1)[head - 1]
        assert float(dense.weight[:, columns].abs().max()) == 0
