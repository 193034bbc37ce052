import numpy as np
import pytest

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.histogram import bin_edges, count_in_bins


@pytest.mark.parametrize("values", [[-0.31, 0.4], [0.013, 0.9], [-7.0, -2.5], [1e-7, 3e-6]])
def test_edges_hold_all_values_and_fall_on_round_numbers(values):
    over = bin_edges(values)
    assert over[0] <= min(values)
    assert over[-1] >= max(values)
    step = over[1] - over[0]
    assert np.allclose(np.diff(over), step)
    assert np.allclose(over / step, np.round(over / step))  # so 0 is an edge wherever it is inside
    assert 10 < len(over) < 35


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0])
def test_one_value_has_a_bin(value):
    bars = count_in_bins([value, value], bin_edges([value, value]))
    assert sum(bar.n_values for bar in bars) == 2


def test_nothing_is_lost():
    values = np.random.default_rng(0).normal(size=500).tolist()
    bars = count_in_bins(values, bin_edges(values))
    assert sum(bar.n_values for bar in bars) == 500
    for bar in bars:
        assert bar.n_values >= sum(bar.low <= value < bar.high for value in values)
    assert all(bar.low >= 0 or bar.high <= 0 for bar in bars)


def test_no_value_is_refused():
    with pytest.raises(LevelheadError, match="there is no value to plot") as error:
        bin_edges([])
    assert error.value.hint == "give at least one"
