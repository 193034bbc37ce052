import numpy as np
import pytest
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.stats.means import t_test
from levelhead.stats.power import minimum_detectable_effect


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_an_effect_of_that_size_is_found_with_that_probability(alternative):
    n, sd, rng = 12, 2.0, np.random.default_rng(0)
    effect = minimum_detectable_effect(sd / np.sqrt(n), n - 1, alternative=alternative, power=0.8)
    samples = rng.normal(effect, sd, (4000, n))
    # scipy's test of all samples at once; `t_test` is the same of a single one.
    p = stats.ttest_1samp(samples, 0, axis=1, alternative=alternative).pvalue
    assert np.mean(p <= 0.05) == pytest.approx(0.8, abs=3 * np.sqrt(0.16 / 4000))
    single = [t_test(sample, alternative=alternative).p.value for sample in samples[:20]]
    assert single == pytest.approx(p[:20])


def test_many_items_are_the_normal_case():
    expected = stats.norm.isf(0.005) + stats.norm.isf(0.1)
    assert minimum_detectable_effect(3.0, 10**7, alpha=0.01, power=0.9) == pytest.approx(
        3 * expected, rel=1e-5
    )


@pytest.mark.parametrize(("alpha", "power"), [(0.05, 0.01), (0.05, 80), (0, 0.8), (0.05, 1)])
def test_levels_that_make_no_sense_are_refused(alpha, power):
    with pytest.raises(LevelheadError, match=f"power {power} at level {alpha}"):
        minimum_detectable_effect(1.0, 10, alpha=alpha, power=power)


@pytest.mark.parametrize(
    ("error", "df"), [(0.0, 5), (float("nan"), 5), (1.0, 0), (float("inf"), 5)]
)
def test_no_power_without_spread(error, df):
    with pytest.raises(NotMeasurableError, match="no power without spread"):
        minimum_detectable_effect(error, df)
