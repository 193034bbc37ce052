"""`levelhead calibrate --quick`: grown, measured, located, edited; resumed without work."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from levelhead.calibrate import dose_response as dose
from levelhead.calibrate import edits as mitigating
from levelhead.calibrate import locators as locating
from levelhead.calibrate.organisms import organism as organisms
from levelhead.calibrate.organisms.organism import make_organism
from levelhead.cli import app
from levelhead.core.calibration import Calibration
from levelhead.core.run_context import Inference

STEPS = 150
"""With fewer, no probe reads the groups, and INLP has nothing to take out."""
MEASURES = {"seat", "contrast", "cloze_top", "crows", "group_preference", "pppl"}
"""A measure of every kind of query that a masked model answers, and a utility."""


def small(*given, **options):
    """An organism that has been trained for seconds, on an eighth of the text."""
    grown = make_organism(*given, **options)
    return replace(
        grown, train_config=replace(grown.train_config, width=32, steps=STEPS), n_documents=1500
    )


@pytest.fixture
def hardly_trained(monkeypatch, tmp_path):
    """The quick calibration, at sizes at which little is learned and every line is run."""
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    for module in (dose, locating, mitigating):
        monkeypatch.setattr(module, "make_organism", small)
        monkeypatch.setattr(module, "INFERENCE", Inference(resamples=99, permutations=99))
    monkeypatch.setattr(organisms, "CONTEXT_DOCUMENTS", 400)
    monkeypatch.setattr(dose, "PERMUTED_INFERENCE", Inference(permutations=99))
    monkeypatch.setattr(
        mitigating, "PRETRAINING_CONFIG", replace(mitigating.PRETRAINING_CONFIG, steps=2)
    )
    monkeypatch.setattr(mitigating, "UTILITY_SENTENCES", 10)
    # One deal of the labels instead of five; three doses, the fewest that a curve is drawn of.
    few = tuple(
        model._replace(permutations=min(model.permutations, 1))
        for model in dose.list_dose_models(quick=True)
    )
    monkeypatch.setattr(dose, "list_dose_models", lambda *, quick: few)
    applicable = dose.list_applicable_measures
    monkeypatch.setattr(
        dose,
        "list_applicable_measures",
        lambda *models: {
            name: measure for name, measure in applicable(*models).items() if name in MEASURES
        },
    )


def test_a_calibration_of_models_that_are_hardly_trained(hardly_trained, tmp_path, monkeypatch):
    """Takes a minute: five models are grown, 16 edits tried. What is true is the full test's; here,
    that everything is asked and kept, and what holds whatever was learned."""
    given = ["calibrate", "--quick", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    written = (tmp_path / "out" / "calibration.json").read_bytes()
    outcome = Calibration.from_json(written)
    assert b"seat" in (tmp_path / "out" / "dose.svg").read_bytes()
    bias_measures = {item.measure: item for item in outcome.measures}
    assert set(bias_measures) == MEASURES
    assert len([item for item in bias_measures.values() if item.expected == "rises"]) >= 4
    # No group's word is the likeliest one yet: what cannot be read is counted, and ends nothing.
    assert {item.measure for item in bias_measures.values() if item.unread} <= {"cloze_top"}
    assert {item.models for item in bias_measures.values()} == {3}
    assert bias_measures["contrast"].label_permutations == 1
    # One head alone sees the words of groups: without it nothing is left, trained or not.
    (locators,) = outcome.locators
    assert locators.without < 1e-6
    assert {by: subset.of for by, subset in locators.first.items()} == {
        "gradient": 1,
        "path": 1,
        "ablation": 1,
    }
    assert {item.edit for item in outcome.edits} > {"mask", "project", "leace", "inlp", "dropout"}
    assert all(edit.models == 1 for edit in outcome.edits)
    for item in ("contrast", "gpt2", "leace"):
        assert item in result.stdout

    # Called again, it reads what is stored: nothing is grown, and the bytes are the same.
    for module in (dose, locating, mitigating):
        monkeypatch.setattr(module, "make_organism", None)
    again = CliRunner().invoke(app, given, catch_exceptions=False)
    assert again.exit_code == 0
    assert (tmp_path / "out" / "calibration.json").read_bytes() == written


@pytest.mark.full
@pytest.mark.timeout(1800)  # minutes, and more where others share the machine
def test_a_quick_calibration_says_what_is_known_to_be_true(tmp_path):
    given = ["calibrate", "--quick", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    written = (tmp_path / "calibration.json").read_bytes()
    outcome = Calibration.from_json(written)
    assert b"seat" in (tmp_path / "dose.svg").read_bytes()

    bias_measures = {item.measure: item for item in outcome.measures}
    assert set(bias_measures) == MEASURES
    assert len([item for item in bias_measures.values() if item.expected == "rises"]) >= 4
    for name in ("strength", "contrast", "cloze", "crows_margin", "lpbs"):
        assert bias_measures[name].rank == 1, name  # three models of three doses
        assert bias_measures[name].power[-1].hits == 1, name
        assert bias_measures[name].null_alarms == 0, name
    assert bias_measures["icat"].rank == -1
    assert all(item.unread == 0 for item in bias_measures.values())

    (locators,) = outcome.locators
    assert {by: subset.hits for by, subset in locators.first.items()} == {
        "gradient": 1,
        "path": 1,
        "ablation": 1,
    }
    assert {item.edit for item in outcome.edits} > {"mask", "project", "leace", "inlp"}

    again = CliRunner().invoke(app, given, catch_exceptions=False)
    assert again.exit_code == 0
    assert (tmp_path / "calibration.json").read_bytes() == written
