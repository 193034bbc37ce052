from dataclasses import replace

import pytest
from metric_cases import made

from levelhead.core.errors import UnknownNameError
from levelhead.core.results import Estimate, Interval
from levelhead.locate.validation.sign import determine_bias_sign

SEAT = made("seat").primary_metric


def estimate(value, low, high):
    interval = Interval(low=low, high=high, level=0.95, method="by hand")
    return Estimate(name="find half", value=value, interval=interval, n=20)


def test_the_sign_is_that_of_the_value():
    assert determine_bias_sign(SEAT, estimate(0.9, 0.2, 1.4)).sign == 1
    result = determine_bias_sign(SEAT, estimate(-0.9, -1.4, -0.2))
    assert result.sign == -1
    assert result.reason == "-0.9 [-1.4, -0.2] on the find half"


def test_where_the_interval_contains_parity_there_is_none():
    for low, high in ((-0.1, 1.2), (0.0, 1.2)):
        result = determine_bias_sign(SEAT, estimate(0.6, low, high))
        assert result.sign == 0
        assert "the interval contains parity 0" in result.reason


def test_parity_need_not_be_0():
    half = replace(SEAT, parity=50.0)
    assert determine_bias_sign(half, estimate(41.0, 30.0, 49.0)).sign == -1
    assert determine_bias_sign(half, estimate(41.0, 30.0, 52.0)).sign == 0
    assert determine_bias_sign(half, estimate(61.0, 55.0, 70.0)).sign == 1


def test_what_can_only_be_larger_is_more_where_it_is_larger():
    contrast = made("contrast").primary_metric
    result = determine_bias_sign(contrast, estimate(0.1, -0.5, 0.7))
    assert result.sign == 1
    assert contrast.direction in result.reason


@pytest.mark.parametrize(
    ("name", "sign"),
    [
        *(("nli_gap", 1), ("distance", 1), ("counterfactual_shift", 1), ("strength", 1)),
        *(("net_neutral", -1), ("nli_fairness", -1), ("fraction_neutral", -1), ("icat", -1)),
        *(("pppl", 0), ("ppl", 0), ("lms", 0), ("lms_margin", 0), ("snli_likelihood", 0)),
    ],
)
def test_what_is_good_in_more_is_not_called_bias(name, sign):
    """Less neutrality is more bias; a price has no such side."""
    result = determine_bias_sign(made(name).primary_metric, estimate(0.5, 0.4, 0.6))
    assert result.sign == sign
    assert result.reason


@pytest.mark.parametrize(("given", "sign"), [("+", 1), ("-", -1)])
def test_a_sign_may_be_given_and_is_told(given, sign):
    result = determine_bias_sign(SEAT, estimate(0.6, -0.1, 1.2), given)
    assert result.sign == sign
    against = "AGAINST what was found" if sign < 0 else "not found"
    assert result.reason == f"given, {against}: 0.6 [-0.1, 1.2] on the find half"


def test_another_word_for_it_is_refused():
    with pytest.raises(UnknownNameError, match="bias direction"):
        determine_bias_sign(SEAT, estimate(0.6, 0.1, 1.2), "plus")
