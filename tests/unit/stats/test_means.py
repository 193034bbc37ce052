import numpy as np
import pytest
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.stats.means import t_test

D = np.random.default_rng(4).normal(0.3, 1, 50)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_t_by_its_formula(alternative):
    result = t_test(D, parity=0.1, alternative=alternative)
    t = (D.mean() - 0.1) / (D.std(ddof=1) / np.sqrt(50))
    tails = {"greater": stats.t.sf(t, 49), "less": stats.t.cdf(t, 49)}
    tails["two-sided"] = 2 * min(tails.values())
    half = stats.t.ppf(0.975, 49) * D.std(ddof=1) / np.sqrt(50)
    assert result.t == pytest.approx(t)
    assert result.p.value == pytest.approx(tails[alternative])
    assert (result.interval.low, result.interval.high) == pytest.approx(
        (D.mean() - half, D.mean() + half)
    )


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1.0], "at least two differences"),
        ([[1.0, 2.0]], r"not an array \(1, 2\)"),
        ([1.0, np.nan, np.inf], "2 of 3 differences are not finite"),
        ([0.0, 0.0, 0.0], "all differences are equal"),
        ([0.3 - 0.2, 0.2 - 0.1, 0.4 - 0.3], "all differences are equal"),  # but for rounding
    ],
)
def test_what_cannot_be_judged_is_refused(values, what):
    with pytest.raises(NotMeasurableError, match=what):
        t_test(values)
