import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.measures.reductions import (
    association_effect_size,
    mean,
    split_groups,
    tail_size,
    top_mean,
)
from levelhead.stats import intervals
from levelhead.stats.designs import clustered_design, grouped_design

VALUES = st.lists(st.floats(-10, 10), min_size=10, max_size=40)


@given(VALUES, st.sampled_from(["round", "floor", "ceil"]))
def test_the_top_share_is_the_mean_of_the_largest(values, rounding):
    size = tail_size(len(values), 0.3, rounding)
    slow = np.mean(sorted(values)[-size:])
    assert float(top_mean(torch.tensor(values, dtype=torch.float64), 0.3, rounding)) == (
        pytest.approx(slow, abs=1e-12)
    )


def test_the_effect_size_is_that_of_core():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=12), rng.normal(size=9) + 0.5
    ours = association_effect_size(torch.from_numpy(x), torch.from_numpy(y))
    assert float(ours) == pytest.approx(intervals.weat_effect_size(x, y), rel=1e-12)


@given(st.floats(0.01, 100))
def test_the_effect_size_is_antisymmetric_and_has_no_scale(factor):
    rng = np.random.default_rng(1)
    x, y = (torch.from_numpy(rng.normal(size=8)) for _ in range(2))
    assert float(association_effect_size(x, y)) == pytest.approx(
        -float(association_effect_size(y, x)), rel=1e-9
    )
    assert float(association_effect_size(factor * x, factor * y)) == pytest.approx(
        float(association_effect_size(x, y)), rel=1e-9
    )


def test_no_spread_has_no_effect_size():
    with pytest.raises(NotMeasurableError, match="all words are equal"):
        association_effect_size(
            torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
        )


def test_an_empty_tail_is_refused():
    with pytest.raises(NotMeasurableError, match="the top 10% of 4 items holds none"):
        tail_size(4, 0.1, "floor")
    with pytest.raises(LevelheadError, match="the top 0 of the items"):
        tail_size(4, 0, "round")
    with pytest.raises(LevelheadError, match="no rounding named 'up'"):
        tail_size(4, 0.1, "up")


def test_two_sides_are_two():
    values = torch.arange(6, dtype=torch.float64)
    first, second = split_groups(values, grouped_design(4, 2).full_sample)
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3], [4, 5])
    with pytest.raises(NotMeasurableError, match="items of 1 groups where two are compared"):
        split_groups(values, grouped_design(6).full_sample)


def test_repeats_count():
    design = clustered_design(["a", "a", "b", "c"])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    draw = type(design.full_sample)(design, (np.array([0, 0, 1]),))
    assert float(mean(values, draw)) == pytest.approx((1 + 2 + 1 + 2 + 3) / 5)
