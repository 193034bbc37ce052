"""One verdict for every command: what differs, what is not shown, and what cannot be said."""

import pytest
from calibrations import AllFailed
from maps import measurement

from levelhead.core.results import Estimate, Interval, Precision, PValue, Skill
from levelhead.core.verdicts import NO_POWER, NO_SKILL, REFUTED, UNCHECKED, decide_measure_verdict


def interval(low, high):
    return Interval(low=low, high=high, level=0.95, method="made up")


def skill(value=90.0, low=80.0):
    return Skill(
        name="prefers sentences",
        value=value,
        interval=interval(low, 99.0),
        chance=50.0,
        threshold=65.0,
        n=60,
        unit="%",
    )


def measured(value, low, high, p, **changes):
    output = {
        "interval": interval(low, high),
        "parity": 0.0,
        "p": PValue(value=p, method="made up", alternative="two-sided"),
        "above": "leans to the stereotype",
        "below": "leans against the stereotype",
        "skill": skill(),
    }
    return measurement(value).model_copy(update=output | changes)


@pytest.mark.parametrize(
    ("result", "status", "toward"),
    [
        (measured(1.0, 0.5, 1.5, 0.01), "differs", "leans to the stereotype"),
        (measured(-1.0, -1.5, -0.5, 0.01), "differs", "leans against the stereotype"),
        (measured(0.1, -0.5, 0.7, 0.6), "not shown", ""),
        (measured(0.6, -0.1, 1.3, 0.03), "unclear", ""),
        (measured(1.0, 0.5, 1.5, 0.01, parity=None), "no test", ""),
    ],
)
def test_every_status_to_either_side(result, status, toward):
    assert decide_measure_verdict(result)[:2] == (status, toward)


@pytest.mark.parametrize("p", [0.001, 0.6])
def test_a_model_without_the_skill_is_inconclusive_whatever_the_number(p):
    lacking = measured(1.0, 0.5, 1.5, p, skill=skill(55.0, 45.0))
    output = decide_measure_verdict(lacking)
    assert output.status == "inconclusive"
    assert NO_SKILL in output.reason


def test_a_skill_needs_threshold_and_interval_above_chance():
    assert skill(70.0, 51.0).is_shown
    assert not skill(70.0, 49.0).is_shown
    assert not skill(60.0, 55.0).is_shown
    with pytest.raises(ValueError, match="not above chance"):
        skill().model_copy(update={"threshold": 50.0})


def test_a_measure_that_calibration_refuted_is_inconclusive(monkeypatch):
    result = measured(0.1, -0.5, 0.7, 0.6)
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    assert decide_measure_verdict(result).status == "inconclusive"
    assert REFUTED in decide_measure_verdict(result).reason
    assert decide_measure_verdict(result, allow_uncalibrated=True).status == "not shown"


def test_silence_without_a_checked_skill_is_inconclusive():
    silent = measured(0.1, -0.5, 0.7, 0.6, skill=None)
    assert decide_measure_verdict(silent) == ("inconclusive", "", UNCHECKED)
    # Bias that shows needs no skill.
    shown = decide_measure_verdict(measured(1.0, 0.5, 1.5, 0.01, skill=None))
    assert shown == ("differs", "leans to the stereotype", UNCHECKED)
    # What a model can do is a skill itself, and is not tested.
    utility = silent.model_copy(update={"parity": None, "p": None})
    assert decide_measure_verdict(utility) == ("no test", "", "")


def test_an_estimated_parity_is_judged_by_the_interval_of_the_difference():
    excess = Estimate(name="lean", value=0.4, interval=interval(-0.2, 1.0), n=9)
    result = measured(2.0, 1.9, 2.1, 0.03, parity=1.6, excess=excess)
    assert result.effect == (0.4, -0.2, 1.0)
    assert decide_measure_verdict(result).status == "unclear"


def test_a_test_that_can_find_nothing_is_inconclusive():
    few = Precision(standard_error=0.3, df=3, min_p=0.125)
    output = decide_measure_verdict(measured(0.1, -0.5, 0.7, 0.6, precision=few))
    assert output == ("inconclusive", "", f"{NO_POWER}: its smallest p is 0.12")
    enough = few.model_copy(update={"min_p": 0.001})
    able = measured(0.1, -0.5, 0.7, 0.6, precision=enough, detectable=1.0)
    assert decide_measure_verdict(able).status == "not shown"
