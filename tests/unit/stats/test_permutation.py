from itertools import combinations, product

import numpy as np
import pytest
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.measures.reductions import half_difference
from levelhead.stats.designs import clustered_design, crossed_design, grouped_design
from levelhead.stats.permutation import permutation, sign_flip

Z = np.array([3.1, 0.2, 1.7, 2.2, -0.4, 0.9, -1.0])


def difference(draw):
    first, second = draw.groups
    return float(Z[first].mean() - Z[second].mean())


def test_a_small_permutation_is_listed_whole():
    null = permutation(
        difference, grouped_design(4, 3), rng=np.random.default_rng(0), alternative="greater"
    )
    everything = [
        Z[list(first)].mean() - Z[[i for i in range(7) if i not in first]].mean()
        for first in combinations(range(7), 4)
    ]
    assert null.value == pytest.approx(difference(grouped_design(4, 3).full_sample))
    assert null.p.value == pytest.approx(np.mean(np.array(everything) >= null.value - 1e-12))
    assert (null.p.method, null.p.n_resamples) == ("permutation, exact", None)
    assert null.mean == pytest.approx(np.mean(everything))
    assert null.deviation == pytest.approx(np.std(everything))


def test_random_permutations_count_the_observed_one():
    far = np.concatenate([np.arange(20) + 100.0, np.arange(20)])
    null = permutation(
        lambda draw: float(far[draw.groups[0]].mean() - far[draw.groups[1]].mean()),
        grouped_design(20, 20),
        rng=np.random.default_rng(0),
        n_resamples=99,
        alternative="greater",
    )
    assert null.p.value == pytest.approx(1 / 100)  # (0 + 1) / (99 + 1), never 0
    assert (null.p.method, null.p.n_resamples) == ("permutation", 99)


def test_small_sign_flips_are_listed_whole():
    null = sign_flip(
        lambda s: float((s * Z).mean()), grouped_design(7), rng=np.random.default_rng(0)
    )
    everything = np.array([(np.array(s) * Z).mean() for s in product((-1, 1), repeat=7)])
    one_sided = np.mean(everything >= Z.mean() - 1e-12)
    assert null.p.value == pytest.approx(min(2 * one_sided, 1))
    assert null.p.method == "sign flip, exact"


def test_items_of_a_cluster_flip_together():
    null = sign_flip(
        lambda s: float((s * Z).sum()),
        clustered_design([0, 0, 0, 1, 1, 2, 2]),
        rng=np.random.default_rng(0),
    )
    sums = np.array([Z[:3].sum(), Z[3:5].sum(), Z[5:].sum()])
    everything = np.array([(np.array(s) * sums).sum() for s in product((-1, 1), repeat=3)])
    assert null.p.value == pytest.approx(2 * np.mean(everything >= Z.sum() - 1e-12))


def test_a_statistic_positive_without_bias_has_a_parity_above_zero():
    rng = np.random.default_rng(0)
    s = rng.normal(size=200)
    null = sign_flip(
        lambda signs: float(np.sort(signs * s)[-20:].mean()),
        grouped_design(200),
        rng=rng,
        n_resamples=499,
        alternative="greater",
    )
    assert null.mean == pytest.approx(1.7, abs=0.25)  # the mean of a normal's top tenth is 1.755


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (
            lambda rng: permutation(difference, grouped_design(7), rng=rng),
            "two or more groups, not 7 items",
        ),
        (
            lambda rng: permutation(difference, clustered_design(range(7)), rng=rng),
            "two or more groups",
        ),
        (
            lambda rng: sign_flip(np.sum, crossed_design({"a": [0, 1], "b": [0, 1]}), rng=rng),
            "independent clusters, not 2 a x 2 b",
        ),
    ],
)
def test_designs_that_do_not_fit_are_refused(call, what):
    with pytest.raises(LevelheadError, match=what):
        call(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("reduce", "what"),
    [
        (lambda items: 0.0, "every rearrangement gives the same value"),
        (lambda items: 0.1 + 1e-17, "every rearrangement gives the same value"),
        (lambda items: float("nan"), "not a finite number"),
    ],
)
def test_what_cannot_be_judged_is_refused(reduce, what):
    for test, design in ((permutation, grouped_design(4, 3)), (sign_flip, grouped_design(7))):
        with pytest.raises(NotMeasurableError, match=what):
            test(reduce, design, rng=np.random.default_rng(0))


def test_clusters_are_dealt_whole():
    words = clustered_design(["a", "a", "b", "c", "d", "d", "d"], within=list("fffmmmm"))

    def largest(draw):
        first, second = draw.groups
        return float(Z[first].sum() - Z[second].sum())

    null = permutation(largest, words, rng=np.random.default_rng(0), alternative="greater")
    sums = [Z[:2].sum(), Z[2], Z[3], Z[4:].sum()]
    everything = [
        sum(sums[i] if i in first else -sums[i] for i in range(4))
        for first in combinations(range(4), 2)
    ]
    assert null.p.value == pytest.approx(np.mean(np.array(everything) >= null.value - 1e-12))


def test_a_value_computed_from_the_items_own_groups_is_found_out():
    """Reduced by what group an item came from, no dealing changes anything: that is no p = 1."""
    subset = np.array([0, 0, 0, 0, 1, 1, 1])

    def forgetful(draw):
        return float(Z[draw.items][subset[draw.items] == 0].mean())

    with pytest.raises(NotMeasurableError, match="the value depends on the permuted groups"):
        permutation(forgetful, grouped_design(4, 3), rng=np.random.default_rng(0))


def test_two_sided_is_refused_where_one_side_is_no_evidence():
    with pytest.raises(LevelheadError, match="never negative under the null") as error:
        permutation(
            lambda draw: abs(difference(draw)), grouped_design(4, 3), rng=np.random.default_rng(0)
        )
    assert error.value.hint == 'give alternative="greater"'


def test_chance_is_an_argument():
    for test, reduce, design in (
        (permutation, difference, grouped_design(4, 3)),
        (sign_flip, lambda signs: float((signs * Z).sum()), grouped_design(7)),
    ):
        with pytest.raises(LevelheadError, match="numpy Generator, not NoneType"):
            test(reduce, design, rng=None)


@pytest.mark.parametrize(
    "design",
    [
        grouped_design(4, 3),
        grouped_design(50, 10),
        clustered_design([i % 9 for i in range(60)], within=[i % 9 > 5 for i in range(60)]),
    ],
    ids=["listed", "items", "clusters"],
)
def test_many_dealings_at_once_are_those_of_one_after_the_other(design):
    base = np.random.default_rng(1).normal(size=design.n_items)
    values = torch.from_numpy(base)
    literal, quick = (
        permutation(
            lambda draw: float(half_difference(values, draw)),
            design,
            rng=np.random.default_rng(5),
            n_resamples=999,
            vectorised=at_once,
        )
        for at_once in (None, lambda times: half_difference.vectorised(base[:, None], times)[:, 0])
    )
    assert quick.p == literal.p
    assert quick.value == pytest.approx(literal.value, rel=1e-12)
    assert quick.mean == pytest.approx(literal.mean, rel=1e-9, abs=1e-15)
    assert quick.deviation == pytest.approx(literal.deviation, rel=1e-12)
