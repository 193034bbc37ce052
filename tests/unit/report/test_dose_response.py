"""The picture of dose and response: a panel a measure, failures marked by family."""

import pytest
from calibrations import calibrated

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.dose_response import dose_response_chart
from levelhead.report.save import render_svg


def test_every_measure_of_several_doses_has_a_panel():
    result = [
        calibrated("seat"),
        calibrated("seat", "llama", verdict="misses"),
        calibrated("crows"),
        calibrated("cloze", "gpt2", rank=None),
        calibrated("ppl", expected="none"),
    ]
    sample = render_svg(dose_response_chart(result)).decode()
    assert "seat † llama" in sample
    assert ">crows<" in sample
    assert "cloze" not in sample
    assert "ppl" not in sample


def test_without_a_dose_there_is_nothing_to_draw():
    with pytest.raises(LevelheadError, match="no measure was given several doses"):
        dose_response_chart([calibrated("cloze", rank=None)])
