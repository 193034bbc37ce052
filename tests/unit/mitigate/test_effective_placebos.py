"""The effective number of placebos against cases whose answer is known."""

import numpy as np
import pytest

from levelhead.mitigate.controls.effective_placebos import effective_number, needed_placebos


def correlated(correlation, count=200, items=749, seed=0):
    rng = np.random.default_rng(seed)
    common, apart = rng.normal(size=items), rng.normal(size=(count, items))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * apart


def test_independent_ones_count_as_nearly_all():
    assert effective_number(correlated(0.0)) == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize("groups", [1, 2, 10])
def test_equal_ones_count_once(groups):
    rng = np.random.default_rng(1)
    kinds = rng.normal(size=(groups, 10_000))
    many = np.repeat(kinds, 20, axis=0) * rng.uniform(0.5, 2, size=(20 * groups, 1))
    assert effective_number(many) == pytest.approx(groups, rel=0.02)


def test_it_is_galweys_number_of_the_eigenvalues():
    changes = correlated(0.6, count=30, items=50)
    roots = np.sqrt(np.clip(np.linalg.eigvalsh(np.corrcoef(changes)), 0, None))
    assert effective_number(changes) == pytest.approx(roots.sum() ** 2 / 30)


def test_more_in_common_is_fewer_and_a_common_part_alone_is_no_fault():
    result = [effective_number(correlated(item)) for item in (0.0, 0.5, 0.9, 0.99)]
    assert result == sorted(result, reverse=True)
    assert result[1] > 100
    assert result[3] < 19


def test_what_changes_nothing_is_left_out():
    changes = np.vstack([correlated(0.0, count=5), np.zeros((3, 749)), np.ones((2, 749))])
    assert effective_number(changes) == pytest.approx(5, rel=0.02)
    assert effective_number(np.zeros((4, 10))) == 1.0


@pytest.mark.parametrize(("alpha", "among", "needed"), [(0.05, 1, 19), (0.05, 8, 159), (0.1, 1, 9)])
def test_as_many_as_a_p_needs(alpha, among, needed):
    assert needed_placebos(alpha, among) == needed
    assert among / (needed + 1) <= alpha + 1e-12
    assert among / needed > alpha
