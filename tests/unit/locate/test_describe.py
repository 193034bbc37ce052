import math

import numpy as np
import pytest
from metric_cases import made, model

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.describe import (
    MapDescription,
    compute_map_statistics,
    describe_map,
)
from levelhead.locate.validation.relabel import sample_relabelling
from levelhead.locate.validation.split import SplitHalf
from levelhead.models.sites import Site

HEADS = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]


def test_the_numbers_by_hand():
    values = np.array([4.0, -1.0, 0.0, 2.0, 1.0, -3.0, 1.0, 0.0])
    map_statistics = compute_map_statistics(values, [0, 0, 0, 0, 1, 1, 1, 1])
    assert map_statistics == {
        "positive heads": 4,
        "negative heads": 2,
        "share of the top 3": pytest.approx(7 / 8),
        "share of the top 5%": pytest.approx(4 / 8),
        "share of the top 10%": pytest.approx(4 / 8),
        "effective number of heads": pytest.approx(64 / 22),
        "total": 4,
        "largest": 4,
        "layer 1": 5,
        "layer 2": -1,
    }


def test_shares_are_of_all_heads_rounded_up():
    values = np.arange(1.0, 73.0)
    map_statistics = compute_map_statistics(values, [0] * 72)
    mass = 72 * 73 / 2
    assert map_statistics["share of the top 5%"] == pytest.approx(sum(range(69, 73)) / mass)
    assert map_statistics["share of the top 10%"] == pytest.approx(sum(range(65, 73)) / mass)


def test_the_effective_number_counts_equal_heads():
    for n in (1, 3, 7):
        values = np.array([2.0] * n + [-1.0] * 3)
        map_statistics = compute_map_statistics(values, [0] * len(values))
        assert map_statistics["effective number of heads"] == pytest.approx(n)


def ablated(name):
    lm, measure = model(name), made(name)
    result = measure.read(lm)[0]
    varied = read_variants(lm, measure, result, [AblationVariant((site,)) for site in HEADS])
    values = [float(measure.reduce(varied.responses_of(i))) for i in (None, *range(12))]
    way = 1 if values[0] >= 0 else -1
    return measure, varied, way * (values[0] - np.array(values[1:]))


@pytest.mark.parametrize("name", ["seat", "crows_margin"])
def test_a_map_stands_beside_maps_of_dealt_labels(name):
    inference = Inference(seed=4)
    measure, varied, effects = ablated(name)
    subset = describe_map(measure, varied, SplitHalf(), n_relabellings=20, inference=inference)
    assert subset.n_relabellings == 20
    base = compute_map_statistics(effects, [site.layer for site in HEADS])
    output = {item.name: item for item in (*subset.statistics, *subset.layer_sums)}
    assert {single: figure.value for single, figure in output.items()} == pytest.approx(base)
    assert [item.name for item in subset.layer_sums] == ["layer 1", "layer 2", "layer 3"]
    rng, head = inference.rng(name, "relabelled maps"), measure.primary_metric
    null = []
    for _ in range(20):
        change, per_item = sample_relabelling(measure, varied.responses_of(None), rng)
        values = []
        for i in (None, *range(12)):
            permuted = change(varied.responses_of(i))
            values.append(
                float(
                    head.aggregate(per_item(permuted), measure.design(permuted, head).full_sample)
                )
            )
        turned = 1 if values[0] >= 0 else -1
        result = turned * (values[0] - np.array(values[1:]))
        null.append(compute_map_statistics(result, [site.layer for site in HEADS]))
    for single, figure in output.items():
        column = [row[single] for row in null]
        assert figure.null_median == pytest.approx(np.median(column))
        ends = np.quantile(column, [0.025, 0.975])
        assert (figure.null_low, figure.null_high) == pytest.approx(tuple(ends))
    for single, figure in output.items():
        more = sum(row[single] >= figure.value for row in null)
        less = sum(row[single] <= figure.value for row in null)
        assert figure.p.value == pytest.approx(min(1, 2 * (min(more, less) + 1) / 21))
        assert figure.p.alternative == "two-sided"
    again = describe_map(measure, varied, SplitHalf(), n_relabellings=20, inference=inference)
    assert again.to_json() == subset.to_json()
    assert MapDescription.from_json(subset.to_json()) == subset


def test_only_heads_are_described():
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    varied = read_variants(
        lm, measure, measure.read(lm)[0], [AblationVariant((Site("mlp_out", 1),))]
    )
    with pytest.raises(LevelheadError, match="a description is of heads"):
        describe_map(measure, varied, SplitHalf())


def test_a_map_is_described_without_a_null():
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    heads = [AblationVariant((Site("head_out", 0, head),)) for head in range(2)]
    varied = read_variants(lm, measure, measure.read(lm)[0], heads)
    subset = describe_map(measure, varied, SplitHalf(), n_relabellings=0)
    assert subset.n_relabellings == 0
    assert all(
        statistic.p is None and statistic.null_low is None for statistic in subset.statistics
    )
    assert math.isfinite(subset.statistic("total").value)
