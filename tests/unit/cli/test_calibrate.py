"""`levelhead calibrate --quick`: grown, measured, located, edited; resumed without work."""

import pytest
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.core.calibration import Calibration


@pytest.mark.timeout(1800)  # minutes, and more where others share the machine
def test_a_quick_calibration_says_what_is_known_to_be_true(tmp_path):
    given = ["calibrate", "--quick", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    written = (tmp_path / "calibration.json").read_bytes()
    found = Calibration.from_json(written)
    assert b"seat" in (tmp_path / "dose.svg").read_bytes()

    rulers = {one.measure: one for one in found.rulers}
    assert len([one for one in rulers.values() if one.expected == "rises"]) >= 10
    for name in ("strength", "contrast", "cloze", "crows_margin", "lpbs"):
        assert rulers[name].rank == 1, name  # three models of three doses
        assert rulers[name].power[-1].hits == 1, name
        assert rulers[name].null_alarms == 0, name
    assert rulers["icat"].rank == -1
    assert all(one.unread == 0 for one in rulers.values())

    (locators,) = found.locators
    assert {by: own.hits for by, own in locators.first.items()} == {
        "gradient": 1,
        "path": 1,
        "ablation": 1,
    }
    assert {one.edit for one in found.edits} > {"mask", "project", "leace", "inlp"}

    again = CliRunner().invoke(app, given, catch_exceptions=False)
    assert again.exit_code == 0
    assert (tmp_path / "calibration.json").read_bytes() == written
