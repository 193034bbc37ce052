"""Groups of heads drawn at random, layer by layer."""

import itertools

import numpy as np
import pytest
from metric_cases import INFERENCE

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.explain.attention.relabel_heads import permute_head_groups
from levelhead.models.sites import Site

SITES = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]


def split(*biased):
    return {"biased": biased, "regular": tuple(i for i in range(12) if i not in biased)}


def test_p_is_that_of_all_splits_within_layers():
    rng = np.random.default_rng(1)
    changes = rng.normal(size=(9, 12)) + np.linspace(0, 2, 12)
    groups = split(1, 2, 5, 11)
    means = changes.mean(0)

    def gap(chosen):
        rest = [i for i in range(12) if i not in chosen]
        return means[list(chosen)].mean() - means[rest].mean()

    every = [
        gap((*combination, *two, *three))
        for combination in itertools.combinations(range(4), 2)
        for two in itertools.combinations(range(4, 8), 1)
        for three in itertools.combinations(range(8, 12), 1)
    ]
    value = gap((1, 2, 5, 11))
    share = min(np.mean(np.array(every) >= value - 1e-9), np.mean(np.array(every) <= value + 1e-9))
    result = permute_head_groups(
        changes, groups, SITES, inference=Inference(permutations=9999), name="x"
    )
    assert result.difference == pytest.approx(value)
    assert result.p.value == pytest.approx(min(1, 2 * share), abs=0.03)
    assert (
        min(every) - 1e-9
        <= result.random_interval.low
        < result.random_interval.high
        <= max(every) + 1e-9
    )
    assert result.random_interval.low == pytest.approx(np.quantile(every, 0.025), abs=0.1)


def test_heads_that_differ_by_layer_only_are_no_evidence():
    """The two groups differ much, and so does every split with as many heads in each layer."""
    changes = np.array([[0.0] * 4 + [1.0] * 4 + [5.0] * 4]) + 0.01 * np.arange(12)
    result = permute_head_groups(changes, split(0, 9, 10, 11), SITES, inference=INFERENCE, name="x")
    assert result.difference > 2
    assert result.random_interval.low > 2
    assert result.p.value > 0.05


def test_whole_layers_cannot_be_dealt_out():
    with pytest.raises(NotMeasurableError, match="no layer has heads of both groups"):
        permute_head_groups(np.random.default_rng(0).normal(size=(3, 12)), split(0, 1, 2, 3), SITES,
                   inference=INFERENCE, name="x")  # fmt: skip
