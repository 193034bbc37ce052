"""Rank correlations of many rows are scipy's, to the last bit."""

import numpy as np
import pytest
from scipy import stats

from levelhead.stats.rank_correlation import rowwise_kendall, rowwise_spearman


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [3, 4, 17, 74])
def test_they_are_scipys(k, ties):
    rng = np.random.default_rng(k)
    first, second = rng.normal(size=(2, 60, k))
    if ties:
        first, second = np.round(first), np.round(2 * second)
    both = [(x, y) for x, y in zip(first, second, strict=True) if min(np.ptp(x), np.ptp(y)) > 0]
    assert len(both) > 30
    rows = np.array([x for x, _ in both]), np.array([y for _, y in both])
    assert rowwise_spearman(*rows).tolist() == [
        float(stats.spearmanr(*pair).statistic) for pair in both
    ]
    assert rowwise_kendall(*rows).tolist() == [
        float(stats.kendalltau(*pair).statistic) for pair in both
    ]


def test_what_is_no_number_gives_none():
    rows = np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]])
    other = np.array([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    for correlation in (rowwise_spearman, rowwise_kendall):
        assert np.isnan(correlation(rows, other)).tolist() == [False, True]
        assert np.isnan(correlation(other, rows)).tolist() == [False, True]
