"""What is printed as detectable is found four times out of five by the test that is used."""

import numpy as np
import power
import pytest
from simulated import INFERENCE

from levelhead.core.results import Estimate, Interval, Precision, PValue
from levelhead.measures.inference import estimate as inferred
from levelhead.measures.inference import holm_corrected
from levelhead.stats.designs import grouped_design
from levelhead.stats.power import (
    critical_max_t,
    holm_detectable_effect,
    minimum_detectable_effect,
)


def estimate(name, p=0.01, least_p=0.0, **changes):
    precision = Precision(standard_error=1.0, df=30, min_p=least_p)
    return Estimate(
        name=name,
        value=1.0,
        interval=Interval(low=0, high=2, level=0.95, method="made up"),
        parity=0.0,
        p=PValue(value=p, method="made up", alternative="two-sided"),
        n=31,
        detectable=holm_detectable_effect(precision),
        precision=precision,
    ).model_copy(update=changes)


def test_a_family_of_nine_needs_a_larger_effect_than_one():
    alone = estimate("a")
    assert holm_corrected([alone]) == (alone,)
    result = holm_corrected([estimate(str(i)) for i in range(9)])
    expected = minimum_detectable_effect(1.0, 30, alpha=0.05 / 9)
    assert [each.detectable for each in result] == pytest.approx([expected] * 9)
    assert result[0].detectable > 1.25 * alone.detectable
    # Corrected again in another family, it is that family's.
    again = holm_corrected(result[:2])
    assert again[0].detectable == pytest.approx(minimum_detectable_effect(1.0, 30, alpha=0.025))


def test_what_has_another_source_is_left_as_it_is():
    other = estimate("a", detectable=7.0, precision=None)
    assert holm_corrected([other, estimate("b")])[0].detectable == 7.0
    untested = estimate("a").model_copy(update={"p": None})
    assert holm_corrected([untested, estimate("b"), estimate("c")])[0] == untested


def test_too_few_rearrangements_for_a_family_find_nothing():
    result = holm_corrected([estimate(str(i), least_p=0.01) for i in range(9)])  # 0.05 / 9 < 0.01
    assert {each.detectable for each in result} == {None}
    assert holm_corrected([estimate(str(i), least_p=0.01) for i in range(5)])[0].detectable > 0


def test_an_estimate_tells_the_least_p_of_its_test():
    rng = np.random.default_rng(0)
    few, many = (
        inferred(
            INFERENCE, power.FLIP, power.torch.as_tensor(rng.normal(size=n)), grouped_design(n)
        )
        for n in (4, 40)
    )
    assert few.precision.min_p == 2 / 2**4  # listed
    assert few.detectable is None
    assert many.precision.min_p == 2 / 100  # 99 drawn, and the data themselves
    assert many.detectable > 0


def test_the_largest_of_a_family_must_exceed_its_null_maxima():
    null = np.array([[i, i / 2] for i in range(1, 100)], dtype=float)  # maxima 1 .. 99
    critical = critical_max_t(null)
    assert critical == 95.0
    above = (null.max(1) >= critical + 0.5).sum()
    below = (null.max(1) >= critical).sum()
    assert (above + 1) / 100 <= 0.05 < (below + 1) / 100
    assert critical_max_t(null[:10]) is None


@pytest.mark.parametrize("name", ["single t-test", "25 heads, Romano-Wolf"])
def test_the_printed_effect_is_found_as_often_as_is_said(name):
    result, _ = power.power(name, 100, pilots=20)
    assert 0.68 <= result <= 0.92  # 0.8, and three standard errors of 100 data sets


@pytest.mark.full
@pytest.mark.parametrize("name", power.POWER)
def test_power_at_the_printed_effect_is_75_to_85_percent(name):
    result, printed = power.power(name, 800)
    assert 0.75 <= result <= 0.85, f"{result:.3f} at {printed:.3f}"


@pytest.mark.parametrize("name", ["strength, skewed", "counterfactual, saturated"])
def test_the_interval_of_the_effect_covers_it(name):
    result, _ = power.coverage(name, 50, draws=199)
    assert result >= 0.85  # 0.95 less three standard errors of 50 data sets


@pytest.mark.full
@pytest.mark.parametrize("name", power.COVERAGE)
def test_the_interval_of_the_effect_covers_92_percent(name):
    result, truth = power.coverage(name, 600)
    assert result >= 0.92, f"{result:.3f} cover {truth:.4f}"
