from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from metric_cases import INFERENCE, made, model

from levelhead.core.errors import LevelheadError
from levelhead.locate.head_map import head_label
from levelhead.locate.validation.random_heads import (
    RandomHeadControl,
    compare_with_random_heads,
    sample_random_heads,
)
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site


def head(layer, number):
    return Site("head_out", layer, number)


SITES = (head(0, 0), head(2, 1), head(2, 3))


def test_random_heads_are_as_many_in_every_layer():
    rng = np.random.default_rng(0)
    sample = [sample_random_heads(SITES, 4, rng=rng) for _ in range(300)]
    for item in sample:
        assert Counter(site.layer for site in item) == {0: 1, 2: 2}
        assert list(item) == sorted(set(item))
    times = Counter(sample)
    assert len(times) == 4 * 6  # all sets of one and two of four, the chosen one among them
    assert max(times.values()) < 30  # of about 12.5 each


def test_p_counts_the_random_sets_that_do_as_much():
    lm, measure = model("crows_margin"), made("crows_margin")
    result = measure.read(lm)[0]
    chosen = (head(0, 0), head(2, 1))

    def effect(subset):
        masked = measure.read(lm.edited(HeadScale(subset, 0)))[0]
        return -float(measure.reduce(result)) + float(measure.reduce(masked))  # sign -1

    layers = ([head(layer, i) for i in range(4)] for layer in (0, 2))
    of = {item: effect(item) for item in product(*layers)}
    output = compare_with_random_heads(
        lm, measure, result, chosen, sign=-1, n_random_sets=199, inference=INFERENCE
    )
    rng = INFERENCE.rng("crows_margin", "random heads", *map(str, chosen))
    sample = [sample_random_heads(chosen, 4, rng=rng) for _ in range(199)]
    assert output.random_effects == pytest.approx([of[item] for item in sample], abs=1e-5)
    assert output.effect.value == pytest.approx(of[chosen], abs=1e-5)
    gaps = [abs(b - a) for a, b in pairwise(sorted(of.values()))]
    assert min(gaps) > 1e-4  # so that counting does not hang on rounding
    b = sum(of[item] >= of[chosen] for item in sample)
    assert output.p.value == (b + 1) / 200
    assert (output.p.n_resamples, output.p.alternative) == (199, "greater")
    assert output.random_median == pytest.approx(np.median([of[item] for item in sample]), abs=1e-5)
    assert output.random_95th_percentile == pytest.approx(
        np.quantile([of[item] for item in sample], 0.95), abs=1e-5
    )
    assert output.heads == ("1-1", "3-2")
    assert output.notes == ("these layers allow few sets: 16 different ones were drawn",)
    assert output.effect.interval.low < output.effect.value < output.effect.interval.high
    again = RandomHeadControl.from_json(output.to_json())
    assert again.to_json() == output.to_json()


def test_all_heads_of_a_layer_are_no_better_than_themselves():
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    output = compare_with_random_heads(
        lm, measure, measure.read(lm)[0], [head(1, i) for i in range(4)], inference=INFERENCE
    )
    assert output.p.value == 1
    assert set(output.random_effects) == {output.effect.value}


def test_the_order_of_heads_does_not_matter():
    lm, measure = model("crows_margin"), made("crows_margin")
    result = measure.read(lm)[0]
    ours, theirs = (
        compare_with_random_heads(lm, measure, result, item, inference=INFERENCE)
        for item in (SITES, SITES[::-1])
    )
    assert ours.to_json() == theirs.to_json()


def test_few_draws_are_refused():
    lm, measure = model("crows_margin"), made("crows_margin")
    with pytest.raises(LevelheadError, match="20 random sets say little"):
        compare_with_random_heads(lm, measure, measure.read(lm)[0], SITES, n_random_sets=20)


@pytest.mark.parametrize("sites", [(), (Site("mlp_out", 1),), (Site("head_out", 1),)])
def test_what_is_no_head_has_no_random_heads(sites):
    lm, measure = model("crows_margin"), made("crows_margin")
    with pytest.raises(LevelheadError, match="random heads stand for heads only"):
        compare_with_random_heads(lm, measure, measure.read(lm)[0], sites)


def test_labels_are_counted_from_1():
    assert [head_label(site) for site in SITES] == ["1-1", "3-2", "3-4"]
