import math
from dataclasses import replace

import pytest
from counteracts_answers import SHARES, answers

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Estimate, Interval
from levelhead.core.run_context import Inference
from levelhead.data.prompts.counteracts import CounteractsPrompt
from levelhead.explain.prompting.labour_statistics import _slope_verdict, regress_on_labour_shares

INFERENCE = Inference(resamples=99, permutations=99)


def odds(single):
    share = SHARES[single.occupation]
    return math.log(share / (1 - share))


@pytest.mark.parametrize(
    ("slope", "verdict"),
    [
        (1.0, "tracks"),
        (1.6, "exaggerates"),
        (0.3, "understates"),
        (0.0, "not related"),
        (-0.5, "reversed"),
    ],
)
def test_the_slope_on_shares_is_found(slope, verdict):
    result = regress_on_labour_shares(
        answers(lambda single: 0.5 + slope * odds(single), noise=0.1), INFERENCE
    )
    assert result.slope.value == pytest.approx(slope, abs=0.08)
    assert result.at_half.value == pytest.approx(0.5, abs=0.08)
    assert result.verdict == verdict
    assert result.slope.parity == 1.0
    assert (abs(result.correlation.value) > 0.9) == (slope != 0)


def test_the_verdict_is_at_one_level_whatever_is_shown():
    subset = answers(lambda single: 0.5 + 0.85 * odds(single), noise=1.5)
    result = [
        regress_on_labour_shares(subset, replace(INFERENCE, level=level)) for level in (0.01, 0.95)
    ]
    widths = [item.slope.interval.high - item.slope.interval.low for item in result]
    assert widths[0] < widths[1] / 20
    assert result[0].verdict == result[1].verdict == "undecided"
    assert _slope_verdict(result[0].slope) != "undecided"  # by what is shown it would be decided


@pytest.mark.parametrize(("low", "high"), [(0.05, 3.0), (-0.5, 0.9), (-0.5, 1.5), (0.6, 1.1)])
def test_an_interval_that_is_too_wide_decides_nothing(low, high):
    ends = Interval(low=low, high=high, level=0.95, method="made up")
    assert _slope_verdict(Estimate(name="slope", value=0.7, interval=ends, n=40)) == "undecided"


def test_occupations_without_a_share_are_refused():
    subset = [
        CounteractsPrompt(f"{name}/base", name, group, "base", "", "", "")
        for name, group in (("juggler", "female"), ("seer", "female"), ("bard", "male"),
                            ("monk", "male"))
    ]  # fmt: skip
    with pytest.raises(NotMeasurableError, match="the share of female in 'juggler' is not known"):
        regress_on_labour_shares(answers(lambda single: 0.0, prompts=subset), INFERENCE)
