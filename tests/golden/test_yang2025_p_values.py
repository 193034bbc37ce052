"""Yang et al. 2025, sections 5.2 and 6: one-tailed p-values printed beside t over 500 sentences."""

import numpy as np
import pytest

from levelhead.stats.means import t_test


@pytest.mark.parametrize(
    ("t", "printed", "digits"),
    [
        (3.182, 0.0007, 4),  # the paper rounds .00078 down
        (-1.478, 0.93, 2),
        (2.897, 0.0019, 4),
        (0.213, 0.416, 3),
        (2.324, 0.010, 3),
        (-0.107, 0.543, 3),
    ],
)
def test_one_tailed_p_from_t(t, printed, digits):
    z = np.random.default_rng(0).normal(size=500)
    z = (z - z.mean()) / z.std(ddof=1)  # mean 0 and deviation 1 exactly
    result = t_test(z + t / np.sqrt(500), alternative="greater")
    assert result.t == pytest.approx(t)
    assert result.p.value == pytest.approx(printed, abs=1.0 * 10**-digits)
