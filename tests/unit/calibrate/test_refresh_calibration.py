"""The measures' part of a calibration made anew: the other parts stay, each with what made it."""

import importlib.util
from pathlib import Path

import pytest

from levelhead.calibrate import run as module
from levelhead.calibrate.dose_response import (
    LABEL_PERMUTATIONS,
    MeasureResponse,
    ModelResponses,
    list_dose_models,
)
from levelhead.core.calibration import (
    MIN_NULLS_FOR_RATE,
    Calibration,
    OrganismHash,
    RemovalVerdicts,
)
from levelhead.stats.intervals import proportion_interval

TOOL = Path(__file__).parents[3] / "tools" / "calibration.py"


class Stored:
    """A store that holds an answer of every model."""

    def __init__(self):
        self.of = {model.task.key: model for model in list_dose_models(quick=True)}

    def get(self, key):
        single = self.of[key]
        measure_response = MeasureResponse(
            measure="cloze", expected="rises", value=single.rho, interval=None, parity=0.0, n=10,
            p=0.01 if single.rho else 0.5, dropped=0,
        )  # fmt: skip
        return (
            ModelResponses(
                architecture=single.architecture, rho=single.rho, variant=single.variant,
                seed=single.seed,
                texts="1" * 64, weights="1" * 64, skills=(), responses=(measure_response,),
            )
            .to_json()
            .encode()
        )  # fmt: skip


@pytest.fixture
def past():
    removal_verdicts = RemovalVerdicts(
        architecture="bert", seed=0, weights="", gone="removed", less="hidden", there=""
    )
    return Calibration(
        command="levelhead calibrate", versions={"torch": "1"}, machine="old", skills=(),
        models=(OrganismHash(what="old", weights="0"),), measures=(), locators=(), edits=(),
        removed=(removal_verdicts,),
    )  # fmt: skip


def test_only_the_measures_are_made_anew(monkeypatch, past, tmp_path):
    jobs = []

    def run(job, folder, **given):
        jobs.append((job, folder))
        return Stored()

    monkeypatch.setattr(module, "run_job", run)
    result = module.refresh_calibration(str(tmp_path), past, quick=True)
    assert [item.measure for item in result.measures] == ["cloze"]
    assert (result.removed, result.models, result.machine) == (past.removed, past.models, "old")
    (subset,) = result.refreshed
    assert subset.parts == ("skills", "measures")
    assert len(subset.models) == len(jobs[0][0].tasks) == 3
    assert subset.command.endswith("--measures-only --quick")
    again = module.refresh_calibration(str(tmp_path), result, quick=True)
    assert len(again.refreshed) == 1  # the last run of a part, not every one
    assert Calibration.from_json(result.to_json()) == result


def test_the_page_says_what_made_which_part(monkeypatch, past):
    spec = importlib.util.spec_from_file_location("calibration_tool", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(module, "run_job", lambda *args, **given: Stored())
    versions = dict.fromkeys(("levelhead", "torch", "transformers"), "1")
    result = module.refresh_calibration(
        "", past.model_copy(update={"versions": versions}), quick=True
    )
    text = tool.page(result)
    assert "Made by `levelhead calibrate` from 1 models" in text
    assert "Made anew (skills and measures) by `python tools/calibration.py --measures-only" in text


def test_there_are_twenty_models_without_a_bias_in_both_families():
    for family in ("bert", "llama"):
        nulls = [
            model
            for model in list_dose_models()
            if (model.architecture, model.rho) == (family, 0.0)
        ]
        assert len({null.seed for null in nulls}) == len(nulls) == MIN_NULLS_FOR_RATE
        assert {null.permutations for null in nulls} == {LABEL_PERMUTATIONS}


def test_no_alarm_in_twenty_still_leaves_a_sixth():
    assert proportion_interval(0, MIN_NULLS_FOR_RATE).high == pytest.approx(0.161, abs=0.001)
    assert proportion_interval(0, 3).high == pytest.approx(0.561, abs=0.001)
