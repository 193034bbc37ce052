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
        self.of = {one.task.key: one for one in list_dose_models(quick=True)}

    def get(self, key):
        one = self.of[key]
        said = MeasureResponse(
            measure="cloze", expected="rises", value=one.rho, interval=None, parity=0.0, n=10,
            p=0.01 if one.rho else 0.5, dropped=0,
        )  # fmt: skip
        return (
            ModelResponses(
                architecture=one.architecture, rho=one.rho, variant=one.variant, seed=one.seed,
                texts="1" * 64, weights="1" * 64, skills=(), responses=(said,),
            )
            .to_json()
            .encode()
        )  # fmt: skip


@pytest.fixture
def past():
    told = RemovalVerdicts(
        architecture="bert", seed=0, weights="", gone="removed", less="hidden", there=""
    )
    return Calibration(
        command="levelhead calibrate", versions={"torch": "1"}, machine="old", skills=(),
        models=(OrganismHash(what="old", weights="0"),), measures=(), locators=(), edits=(),
        removed=(told,),
    )  # fmt: skip


def test_only_the_measures_are_made_anew(monkeypatch, past, tmp_path):
    jobs = []

    def run(job, folder, **given):
        jobs.append((job, folder))
        return Stored()

    monkeypatch.setattr(module, "run_job", run)
    found = module.refresh_calibration(str(tmp_path), past, quick=True)
    assert [one.measure for one in found.measures] == ["cloze"]
    assert (found.removed, found.models, found.machine) == (past.removed, past.models, "old")
    (own,) = found.refreshed
    assert own.parts == ("skills", "measures")
    assert len(own.models) == len(jobs[0][0].tasks) == 3
    assert own.command.endswith("--measures-only --quick")
    again = module.refresh_calibration(str(tmp_path), found, quick=True)
    assert len(again.refreshed) == 1  # the last run of a part, not every one
    assert Calibration.from_json(found.to_json()) == found


def test_the_page_says_what_made_which_part(monkeypatch, past):
    spec = importlib.util.spec_from_file_location("calibration_tool", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(module, "run_job", lambda *args, **given: Stored())
    versions = dict.fromkeys(("levelhead", "torch", "transformers"), "1")
    found = module.refresh_calibration(
        "", past.model_copy(update={"versions": versions}), quick=True
    )
    text = tool.page(found)
    assert "Made by `levelhead calibrate` from 1 models" in text
    assert "Made anew (skills and measures) by `python tools/calibration.py --measures-only" in text


def test_there_are_twenty_models_without_a_bias_in_both_families():
    for family in ("bert", "llama"):
        nulls = [one for one in list_dose_models() if (one.architecture, one.rho) == (family, 0.0)]
        assert len({one.seed for one in nulls}) == len(nulls) == MIN_NULLS_FOR_RATE
        assert {one.permutations for one in nulls} == {LABEL_PERMUTATIONS}


def test_no_alarm_in_twenty_still_leaves_a_sixth():
    assert proportion_interval(0, MIN_NULLS_FOR_RATE).high == pytest.approx(0.161, abs=0.001)
    assert proportion_interval(0, 3).high == pytest.approx(0.561, abs=0.001)
