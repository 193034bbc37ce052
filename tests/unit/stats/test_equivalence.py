"""Two one-sided tests on changes that are few and bounded: level, exact bounds, clusters."""

import numpy as np
import pytest
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.stats.equivalence import TOST_LEVEL, bounded_change_interval, is_equivalent


def interval(losses, n, **options):
    changes = np.zeros(n)
    changes[:losses] = -1.0
    return bounded_change_interval(changes, np.arange(n), bound=1.0, **options)


@pytest.mark.parametrize("n", [12, 50, 176, 1000])
@pytest.mark.parametrize("losses", [0, 1, 2, 5])
def test_its_ends_are_near_those_of_clopper_and_pearson(n, losses):
    """Where every unit is one item that is lost or not, exact bounds exist."""
    exact = stats.binomtest(losses, n).proportion_ci(TOST_LEVEL, method="exact").high
    assert -interval(losses, n).low == pytest.approx(exact, rel=0.12)


@pytest.mark.parametrize("n", [60, 100, 400])
def test_a_change_of_the_margin_is_called_equivalent_in_at_most_5_percent(n):
    """Exact sum over all numbers of lost units, and resampling would err in 12% at n = 100."""
    margin = 0.05
    verdicts = [is_equivalent(interval(losses, n), margin) for losses in range(n + 1)]
    assert stats.binom.pmf(np.flatnonzero(verdicts), n, margin).sum() <= 0.05
    # It is no test that never rejects: without any loss, 60 units are enough.
    assert verdicts[0]


def test_losses_of_a_cluster_are_no_independent_losses():
    rng = np.random.default_rng(0)
    by_unit = rng.normal(size=40) / 10
    changes, units = np.repeat(by_unit, 5), np.repeat(np.arange(40), 5)
    clustered = bounded_change_interval(changes, units, bound=1.0)
    # Copies of a unit's value add nothing.
    alone = bounded_change_interval(by_unit, np.arange(40), bound=1.0)
    assert (clustered.low, clustered.high) == pytest.approx((alone.low, alone.high))
    naive = bounded_change_interval(changes, np.arange(200), bound=1.0)
    assert naive.high - naive.low < 0.6 * (clustered.high - clustered.low)


def test_it_equals_its_literal_form():
    """Units of unequal size: the ratio of sums over units, with one more unit of the mean size."""
    rng = np.random.default_rng(1)
    units = rng.integers(0, 30, 200)
    units = np.unique(units, return_inverse=True)[1]
    changes = rng.choice([-1.0, 0.0, 0.0, 1.0], 200)
    n, size = units.max() + 1, 200 / (units.max() + 1)
    rows = [(changes[units == unit].sum(), (units == unit).sum()) for unit in range(n)]
    rows.append((-size, size))
    mean = sum(total for total, _ in rows) / sum(count for _, count in rows)
    squares = sum(((total - mean * count) / size) ** 2 for total, count in rows)
    error = (squares / n / (n + 1)) ** 0.5
    expected = mean - stats.t.ppf(0.95, n - 1) * error
    assert bounded_change_interval(changes, units, bound=1.0).low == pytest.approx(expected)


def test_level_bounds_and_method():
    wide = interval(3, 50, level=0.95)
    assert wide.low < interval(3, 50).low
    assert interval(3, 50, unit="words").method == "t with one more, 50 words"
    assert interval(2, 2).low == -1.0  # never beyond what is possible
    with pytest.raises(NotMeasurableError, match="1 sampled unit"):
        interval(0, 1)


def test_equivalence_needs_both_ends_inside():
    narrow = interval(0, 200)
    assert is_equivalent(narrow, 0.05)
    assert not is_equivalent(narrow, -narrow.low)  # a margin that it just reaches
    assert not is_equivalent(interval(40, 200), 0.05)
