"""The picture of dose and response: a panel a ruler, failures marked by family."""

import pytest
from calibrations import calibrated

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.dose_response import dose_response_chart
from levelhead.report.save import render_svg


def test_every_ruler_of_several_doses_has_a_panel():
    found = [
        calibrated("seat"),
        calibrated("seat", "llama", verdict="misses"),
        calibrated("crows"),
        calibrated("cloze", "gpt2", rank=None),
        calibrated("ppl", expected="none"),
    ]
    drawn = render_svg(dose_response_chart(found)).decode()
    assert "seat † llama" in drawn
    assert ">crows<" in drawn
    assert "cloze" not in drawn
    assert "ppl" not in drawn


def test_without_a_dose_there_is_nothing_to_draw():
    with pytest.raises(LevelheadError, match="no measure was given several doses"):
        dose_response_chart([calibrated("cloze", rank=None)])
