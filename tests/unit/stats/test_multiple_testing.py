import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.stats.multiple_testing import holm, max_t

FAMILIES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(FAMILIES)
def test_holm_by_its_definition(p):
    ranked = sorted(range(len(p)), key=lambda i: p[i])
    expected, worst = {}, 0.0
    for step, i in enumerate(ranked):
        worst = max(worst, (len(p) - step) * p[i])
        expected[i] = min(worst, 1)
    assert holm(p).tolist() == pytest.approx([expected[i] for i in range(len(p))])


@given(
    arrays(float, 5, elements=st.integers(-4, 4)),
    arrays(float, (9, 5), elements=st.integers(-4, 4)),
)
def test_max_t_by_its_definition(observed, null):
    assume((np.ptp(null, axis=0) > 0).all())
    order = sorted(range(5), key=lambda i: -observed[i])
    expected, worst = {}, 0.0
    for step, i in enumerate(order):
        remaining = order[step:]
        b = sum(max(row[j] for j in remaining) >= observed[i] for row in null)
        worst = max(worst, (b + 1) / 10)
        expected[i] = worst
    assert max_t(observed, null).tolist() == pytest.approx([expected[i] for i in range(5)])


def test_max_t_uses_dependence_that_holm_cannot():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(999, 1))
    null = np.abs(np.repeat(common, 50, axis=1))  # fifty times the same test
    t = np.full(50, 2.2)
    alone = (np.sum(null[:, 0] >= 2.2) + 1) / 1000
    assert max_t(t, null) == pytest.approx(alone)
    assert holm(np.full(50, alone)) == pytest.approx(min(50 * alone, 1))


@pytest.mark.parametrize("p", [[], [0.1, np.nan], [0.1, 1.2], [-0.1], [[0.1]]])
def test_a_family_needs_its_p_values(p):
    with pytest.raises(NotMeasurableError, match="one p-value between 0 and 1 each"):
        holm(p)


def test_max_t_refuses_what_it_cannot_judge():
    with pytest.raises(LevelheadError, match=r"not \(2,\) and \(5, 3\)"):
        max_t([1, 2], np.zeros((5, 3)))
    with pytest.raises(LevelheadError, match=r"not \(2,\) and \(0, 2\)"):
        max_t([1, 2], np.zeros((0, 2)))
    with pytest.raises(NotMeasurableError, match="not finite"):
        max_t([1, np.nan], np.zeros((5, 2)))
    with pytest.raises(NotMeasurableError, match="a null without spread"):
        max_t([0, 0], np.zeros((5, 2)))
