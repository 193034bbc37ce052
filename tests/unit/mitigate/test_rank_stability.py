"""Agreement of dev and test: literal overlaps and correlations, items redrawn."""

import numpy as np
import pytest
from scipy import stats
from simulated import INFERENCE, Plain, read

from levelhead.core.errors import LevelheadError
from levelhead.mitigate.evaluation.gain import bias_aggregate, resample_paired
from levelhead.mitigate.evaluation.rank_stability import RankAgreement, compute_rank_agreement


def gains(rng, true, n, tag, noise=0.5):
    base = 5 + rng.normal(size=n)
    settings = [read(base - item + noise * rng.normal(size=n), tag) for item in true]
    measure = Plain()
    rows = [read(base, tag), *settings]
    over = bias_aggregate(measure.primary_metric)
    return resample_paired(
        measure, rows, over, metric=measure.primary_metric, inference=INFERENCE
    ).effects()


def test_agreement_is_of_the_best_by_dev():
    rng = np.random.default_rng(0)
    true = rng.normal(size=40)
    dev, test = gains(rng, true, 50, "d"), gains(rng, true, 80, "t")
    result = compute_rank_agreement(dev, test)
    assert [item.share for item in result] == [0.05, 0.1, 0.2, 0.5, 1.0]
    assert [item.n_variants for item in result] == [2, 4, 8, 20, 40]
    for item in result:
        best = sorted(range(40), key=lambda i: -dev.values[i])[: item.n_variants]
        other = sorted(range(40), key=lambda i: -test.values[i])[: item.n_variants]
        if item.n_variants == 40:
            assert item.overlap is None
        else:
            assert item.overlap.value == len(set(best) & set(other)) / item.n_variants
            assert item.overlap.parity == item.n_variants / 40
            assert (
                0 <= item.overlap.interval.low <= item.overlap.value <= item.overlap.interval.high
            )
        if item.n_variants < 3:
            assert item.spearman is item.kendall is None
            continue
        for output, of in ((item.spearman, stats.spearmanr), (item.kendall, stats.kendalltau)):
            assert output.value == pytest.approx(of(dev.values[best], test.values[best]).statistic)
            assert output.value in output.interval
            assert output.n == item.n_variants
    assert "50 units and 80 units" in result[0].overlap.interval.method
    assert result[-1].spearman.interval.low > 0.8
    assert RankAgreement.from_json(result[1].to_json()) == result[1]


def test_settings_that_do_nothing_do_not_agree():
    covered = []
    for run in range(20):
        rng = np.random.default_rng([1, run])
        dev, test = (gains(rng, np.zeros(20), 30, tag) for tag in "dt")
        (result,) = compute_rank_agreement(dev, test, shares=[1.0])
        covered.append(0 in result.spearman.interval and 0 in result.kendall.interval)
    assert np.mean(covered) >= 0.9


def test_four_settings_that_do_nothing_show_nothing_however_they_lie():
    # Four agree wholly, or not at all, once in a dozen times by chance alone.
    covered = []
    for run in range(60):
        rng = np.random.default_rng([2, run])
        dev, test = (gains(rng, np.zeros(4), 30, tag) for tag in "dt")
        (result,) = compute_rank_agreement(dev, test, shares=[1.0])
        covered.append(0 in result.spearman.interval)
        assert result.spearman.interval.method.startswith("spearman, quantiles")
    assert np.mean(covered) >= 0.93


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(0)
    dev, test = gains(rng, np.zeros(4), 30, "d"), gains(rng, np.zeros(5), 30, "t")
    with pytest.raises(LevelheadError, match="4 settings on dev and 5 on test"):
        compute_rank_agreement(dev, test)
    with pytest.raises(LevelheadError, match=r"a share of the settings lies in \(0, 1\]"):
        compute_rank_agreement(dev, dev, shares=[5])
