import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.stats.intervals import (
    constant_mean_interval,
    effect_size_interval,
    proportion_interval,
    weat_effect_size,
)

LISTS = st.lists(st.integers(-1000, 1000), min_size=2, max_size=10)


@given(LISTS, LISTS, st.integers(1, 9), st.integers(-5, 5))
def test_the_effect_size_is_antisymmetric_and_scale_free(x, y, scale, shift):
    if len(set(x + y)) == 1:
        return
    d = weat_effect_size(x, y)
    assert weat_effect_size(y, x) == pytest.approx(-d)
    moved = [[scale * v + shift for v in side] for side in (x, y)]
    assert weat_effect_size(*moved) == pytest.approx(d)
    assert abs(d) <= np.sqrt((len(x) + len(y)) ** 2 / (len(x) * len(y)))


def test_the_effect_size_by_hand():
    # Means 2 and 5, all six numbers' variance (ddof 1) is 3.5.
    assert weat_effect_size([1, 2, 3], [4, 5, 6]) == pytest.approx(-3 / np.sqrt(3.5))


def test_the_interval_inverts_the_noncentral_t():
    rng = np.random.default_rng(2)
    x, y = rng.normal(1, 1, 8), rng.normal(0, 1, 11)
    interval = effect_size_interval(x, y, level=0.9)
    t = stats.ttest_ind(x, y).statistic
    share, harmonic = 8 / 19, 88 / 19

    def probability(d):  # of a t as low as ours if the population's effect is d
        delta = d / np.sqrt(1 - share * (1 - share) * d**2)
        return stats.nct.cdf(t, 17, delta * np.sqrt(harmonic))

    assert probability(interval.low) == pytest.approx(0.95, abs=1e-5)
    assert probability(interval.high) == pytest.approx(0.05, abs=1e-5)
    assert weat_effect_size(x, y) in interval
    mirrored = effect_size_interval(y, x, level=0.9)
    assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low), abs=1e-6)


def test_the_sample_formula_of_the_docstring():
    rng = np.random.default_rng(2)
    x, y = rng.normal(1, 1, 8), rng.normal(0, 1, 11)
    t, harmonic = stats.ttest_ind(x, y).statistic, 88 / 19
    assert weat_effect_size(x, y) == pytest.approx(t * np.sqrt(18 / (harmonic * (17 + t**2))))


@pytest.mark.parametrize(
    ("x", "y", "what"),
    [
        ([1.0, 1.0], [1.0, 1.0], "associations of all words are equal"),
        ([1.0, 1.0], [2.0, 2.0], "no spread within"),
        ([1.0], [2.0, 3.0], "lists of 1 and 2 words"),
        # One step of rounding is no spread: t is 5e16 here, and its interval was once [0, 0].
        ([1.0] * 7 + [1.0000000000000002], [2.0] * 8, "no spread within"),
        ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0000001], "no spread within"),
        (np.linspace(0, 1e-6, 8), np.linspace(1, 1 + 1e-6, 8), "no spread within"),
    ],
)
def test_lists_without_spread_are_refused(x, y, what):
    with pytest.raises(NotMeasurableError, match=what):
        effect_size_interval(x, y)


@pytest.mark.parametrize(
    ("x", "y", "what"),
    [
        ([1.0, np.nan], [2.0, 3.0], "lists of 2 and 2 words, 1 not finite"),
        ([], [2.0, 3.0], "lists of 0 and 2 words"),
        ([0.1 + 0.2, 0.3], [0.3, 0.3], "associations of all words are equal"),
    ],
)
def test_lists_without_scores_are_refused(x, y, what):
    with pytest.raises(NotMeasurableError, match=what):
        weat_effect_size(x, y)


@pytest.mark.parametrize("t", [-900.0, -30.0, 0.0, 5.0, 300.0])
@pytest.mark.parametrize("n", [2, 8, 84])
def test_large_effects_have_an_interval_too(t, n):
    rng = np.random.default_rng(1)
    x, y = (side - side.mean() for side in rng.normal(size=(2, n)))
    pooled = np.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 2)
    interval = effect_size_interval(x + t * pooled * np.sqrt(2 / n), y)
    assert -2 <= interval.low < interval.high <= 2


def test_shares_keep_a_width_at_the_ends():
    # Wilson 1927 in closed form: at 0 of n the upper end is z^2 / (n + z^2).
    z2 = stats.norm.ppf(0.975) ** 2
    nothing = proportion_interval(0, 100)
    assert (nothing.low, nothing.high) == pytest.approx((0, z2 / (100 + z2)), abs=1e-12)
    with pytest.raises(NotMeasurableError, match="a share of no items"):
        proportion_interval(0, 0)


@pytest.mark.parametrize("n", [1, 5, 12, 40, 400])
@pytest.mark.parametrize("value", [-100.0, 0.0, 37.5, 100.0])
def test_equal_units_rarely_hide_a_mean_outside_of_their_interval(n, value):
    """Exact coverage: a share of all units is at a bound, and no sampled one is.

    Any other population with the same chance of equal units has its mean nearer to the value.
    """
    interval = constant_mean_interval(value, -100.0, 100.0, n)
    shares = np.linspace(0, 1, 4001)
    chances = (1 - shares) ** n
    for bound in (-100.0, 100.0):
        means = value + shares * (bound - value)
        is_missed = (means < interval.low - 1e-9) | (means > interval.high + 1e-9)
        assert chances[is_missed].max(initial=0) <= 0.025
        if bound != value:
            assert chances[is_missed].max(initial=0) > 0.02  # and it is no wider than needed


def test_no_units_have_no_interval():
    with pytest.raises(NotMeasurableError, match="no items"):
        constant_mean_interval(0.0, -1.0, 1.0, 0)
