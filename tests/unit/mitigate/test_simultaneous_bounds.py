"""Bounds of all candidates together, and what a candidate costs."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from simulated import INFERENCE, Plain, read

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.mitigate.evaluation.variant_responses import VariantResponses, resample_bias
from levelhead.mitigate.selection.simultaneous_bounds import (
    drop_unmeasurable,
    estimate_utility_loss,
    simultaneous_lower_bounds,
)

PRICE = Plain("snli", parity=None, role="utility", worse="lower")
GAIN = Plain(parity=None)


def several(rng, gains, n=60, noise=1.0):
    base = 5 + rng.normal(size=n)
    subset = {f"s{i}": read(base - g + noise * rng.normal(size=n)) for i, g in enumerate(gains)}
    return VariantResponses(GAIN, read(base), subset)


def test_the_bound_is_max_t_and_lies_below_that_of_one_alone():
    responses = several(np.random.default_rng(0), (0.0, 0.3, 1.0, 0.0))
    result = resample_bias(responses, list(responses.variants), INFERENCE, None)[0].effects()
    bounds = simultaneous_lower_bounds(result)
    draws = (result.resamples - result.values) / result.resamples.std(axis=0, ddof=1)
    largest = stats.t.isf(stats.norm.sf(np.abs(draws)), 59).max(axis=1)
    reach = np.quantile(largest, 0.95, method="higher")
    assert bounds == pytest.approx(result.values - reach * result.standard_errors)
    assert reach > stats.t.ppf(0.975, 59)
    alone = resample_bias(responses, ["s2"], INFERENCE, None)[0].effects()
    assert simultaneous_lower_bounds(alone)[0] > bounds[2] > 0


def test_together_they_hold_as_often_as_the_level_says():
    rng, missed, runs = np.random.default_rng(1), 0, 200
    for seed in range(runs):
        responses = several(rng, (0.0,) * 15, n=40)
        result = resample_bias(
            responses, list(responses.variants), Inference(seed=seed, resamples=199), None
        )[0].effects()
        missed += bool((simultaneous_lower_bounds(result) > 0).any())
    # One side of a two-sided band of .95: 2.5%, give or take three standard errors.
    assert missed / runs <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / runs)


def test_what_changes_nothing_has_no_bound():
    responses = several(np.random.default_rng(0), (0.5,))
    both = VariantResponses(GAIN, responses.base, {"idle": responses.base, **responses.variants})
    result = resample_bias(both, ["idle", "s0"], INFERENCE, None)[0].effects()
    assert simultaneous_lower_bounds(result)[0] == -math.inf
    assert math.isfinite(simultaneous_lower_bounds(result)[1])
    idle = resample_bias(both, ["idle"], INFERENCE, None)[0].effects()
    assert simultaneous_lower_bounds(idle).tolist() == [-math.inf]


def test_settings_without_a_value_are_told_and_the_others_stay():
    responses = several(np.random.default_rng(0), (0.5, 0.5))
    bad = dict(responses.variants) | {"s0": read(torch.full((60,), math.nan))}
    stored, without = drop_unmeasurable(VariantResponses(GAIN, responses.base, bad))
    assert list(stored.variants) == ["s1"]
    assert without == {"s0": "60 of 60 responses are not finite numbers"}


# -- prices


def shares(right, wrong, same=80):
    """So many answers that the edit puts right, and puts wrong, and all others right before."""
    before = np.array([0.0] * right + [1.0] * wrong + [1.0] * same)
    after = np.array([1.0] * right + [0.0] * wrong + [1.0] * same)
    return VariantResponses(PRICE, read(before), {"own": read(after)})


def test_the_loss_of_a_share_is_bonett_and_prices():
    result = estimate_utility_loss(shares(2, 9), "own", worse="lower", inference=INFERENCE)
    n = 91
    assert result.value == pytest.approx(7 / n)
    b, c = 10 / (n + 2), 3 / (n + 2)
    reach = 1.959964 * math.sqrt((b + c - (b - c) ** 2) / (n + 2))
    assert result.interval.high == pytest.approx(b - c + reach, rel=1e-5)
    assert result.interval.low == pytest.approx(b - c - reach, rel=1e-5)
    other = estimate_utility_loss(shares(2, 9), "own", worse="higher", inference=INFERENCE)
    assert other.value == pytest.approx(-7 / n)
    assert other.interval.high == pytest.approx(-result.interval.low)


def test_that_no_answer_changes_does_not_show_that_none_would():
    result = estimate_utility_loss(shares(0, 0, same=30), "own", worse="lower", inference=INFERENCE)
    assert result.value == 0
    assert result.interval.high > 0.05  # 30 rows say little
    assert (
        estimate_utility_loss(
            shares(0, 0, same=3000), "own", worse="lower", inference=INFERENCE
        ).interval.high
        < 0.002
    )


def test_other_prices_are_resampled():
    rng = np.random.default_rng(3)
    base = rng.normal(size=50)
    subset = base - 1 + 0.1 * rng.normal(size=50)
    price = VariantResponses(
        Plain("ppl", parity=None, role="utility", worse="higher"), read(base), {"own": read(subset)}
    )
    result = estimate_utility_loss(price, "own", worse=None, inference=INFERENCE)
    assert result.value == pytest.approx(float((subset - base).mean()))
    assert result.interval.high < -0.9
    idle = VariantResponses(price.measure, price.base, {"own": price.base})
    assert estimate_utility_loss(idle, "own", worse=None, inference=INFERENCE) is None
    odd = VariantResponses(Plain("odd", parity=None), price.base, price.variants)
    with pytest.raises(LevelheadError, match="odd does not say whether higher or lower is worse"):
        estimate_utility_loss(odd, "own", worse=None, inference=INFERENCE)
