"""Paired resampling: many resamples at once against a loop over single ones."""

import warnings

import numpy as np
import pytest

from levelhead.core.errors import NotMeasurableError
from levelhead.stats.designs import (
    Resample,
    clustered_design,
    count_items,
    crossed_design,
    grouped_design,
)
from levelhead.stats.paired import (
    PairedStatistic,
    group_means,
    item_means,
    resample_statistics,
    standard_deviations,
    top_means,
    vectorised_form,
)

ITEMS = 300
DESIGNS = {
    "items": grouped_design(ITEMS),
    "clusters": clustered_design([i % 17 for i in range(ITEMS)]),
    "groups": clustered_design(
        [i % 18 for i in range(ITEMS)], within=[i % 2 for i in range(ITEMS)]
    ),
    "crossed": crossed_design(
        {"a": [i % 7 for i in range(ITEMS)], "b": [i // 30 for i in range(ITEMS)]}
    ),
}


def tenth(n):
    """How many items a tenth of n is."""
    return float(max(n // 10, 1))


def literal_top(values, draw):
    """The mean of the largest tenth of the items drawn."""
    sample = np.sort(values[draw.items])[::-1]
    return sample[: int(tenth(len(sample)))].mean()


STATISTICS = {
    "mean": PairedStatistic(lambda values, draw: values[draw.items].mean(), item_means),
    "spread": PairedStatistic(
        lambda values, draw: values[draw.items].std(ddof=1), standard_deviations
    ),
    "top": PairedStatistic(literal_top, lambda values, times: top_means(values, times, tenth)),
}


def variants(count=4):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(count, ITEMS))
    values[1] = 50 + 0.01 * values[1]  # far from 0: sums of squares lose digits
    values[2] = np.round(values[2])  # ties
    return list(values)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", STATISTICS)
def test_many_resamples_at_once_are_single_ones(name, design):
    """Of the units drawn and of those left out."""
    statistic, sampled = STATISTICS[name], DESIGNS[design]
    fast, slow = (
        resample_statistics(
            sampled, variants(), (over,), np.random.default_rng(1), 150, left_out_statistics=(over,)
        )
        for over in (statistic, statistic.literal)
    )
    for at_once, looped in zip(fast, slow, strict=True):
        assert at_once.shape == (150, 4)
        np.testing.assert_allclose(at_once, looped, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_literal_loop_is_of_the_units_drawn(design):
    """Both forms draw alike; here units are drawn by `choice`, and what is left out is listed."""
    sampled, (values, *_) = DESIGNS[design], variants()
    mean = STATISTICS["mean"]
    inside, outside = resample_statistics(
        sampled, [values], (mean,), np.random.default_rng(2), 20, left_out_statistics=(mean,)
    )
    rng = np.random.default_rng(2)
    for row in range(20):
        units = tuple(rng.choice(stratum, len(stratum)) for stratum in sampled.samples)
        rest = tuple(
            np.array([unit for unit in stratum if unit not in chosen])
            for stratum, chosen in zip(sampled.samples, units, strict=True)
        )
        assert inside[row, 0] == pytest.approx(values[Resample(sampled, units).items].mean())
        assert outside[row, 0] == pytest.approx(values[Resample(sampled, rest).items].mean())


def test_a_resample_without_units_left_out_is_drawn_again():
    """Of three units all are drawn in 6 of 27 resamples; of those left out nothing can be said."""
    values = [np.array([1.0, 2.0, 4.0])]
    mean = STATISTICS["mean"]
    for over in (mean, mean.literal):
        inside, outside = resample_statistics(
            grouped_design(3),
            values,
            (over,),
            np.random.default_rng(3),
            99,
            left_out_statistics=(over,),
        )
        assert len(inside) == len(outside) == 99
        assert np.isfinite(outside).all()
        assert not np.isclose(inside, 7 / 3).any()  # the mean of all three


def test_a_statistic_without_a_value_is_refused_in_the_end():
    def never(values, draw):
        raise NotMeasurableError("all words alike", hint="give others")

    with pytest.raises(NotMeasurableError, match="only 0 of 495 resamples"):
        resample_statistics(
            grouped_design(5), [np.arange(5.0)], (never,), np.random.default_rng(0), 99
        )
    assert vectorised_form(never) is None


def test_top_means_look_beyond_the_first_items_where_a_resample_needs_it():
    """Items drawn as if the largest 250 of 300 had been left out: none is among the first."""
    (values, *_) = variants()
    times = np.zeros((1, 1, ITEMS), dtype=int)
    smallest = np.argsort(values)[:50]
    times[0, 0, smallest] = 1
    result = top_means(values[:, None], times, tenth)
    assert result[0, 0] == pytest.approx(np.sort(values[smallest])[::-1][:5].mean())


def test_a_top_share_that_holds_no_item_has_no_value():
    times = count_items(grouped_design(3), [np.array([[0, 1, 2], [0, 0, 1]])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(top_means(np.ones((3, 2)), times, lambda n: np.nan)).all()


def test_a_group_without_items_has_no_mean():
    times = np.array([[[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 1]]])
    first, second = group_means(np.array([[1.0], [2.0], [6.0]]), times)
    assert first[:, 0].tolist() == [1.5, 1.0]
    assert np.isnan(second[0, 0])
    assert second[1, 0] == 4
