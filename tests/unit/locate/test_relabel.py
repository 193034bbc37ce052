from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from metric_cases import WORDS, made, model

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import Term
from levelhead.locate.validation.relabel import sample_relabelling
from levelhead.stats.designs import Resample


def read(name, **options):
    measure = made(name, **options)
    return measure, measure.read(model(name))[0]


def permute(measure, result, seed):
    change, _ = sample_relabelling(measure, result, np.random.default_rng(seed))
    subset = change(result)
    assert subset.values is result.values
    assert [item.id for item in subset.items] == [item.id for item in result.items]
    return {item.id: item.group for item in subset.items}


def sizes(groups, sides):
    return Counter(group for group in groups.values() if group in sides)


def test_sides_stay_as_large_as_they_were():
    measure, result = read("seat")
    before = {item.id: item.group for item in result.items}
    maps = [permute(measure, result, seed) for seed in range(40)]
    for entry in maps:
        assert sizes(entry, "XY") == {"X": 5, "Y": 5}
        assert sizes(entry, "AB") == {"A": 2, "B": 2}
        for name, group in entry.items():
            assert (group in "XY") == (before[name] in "XY")
    moved = [sum(item[name] != before[name] for name in item if name[0] in "XY") for item in maps]
    assert 4 < np.mean(moved) < 6  # half of ten words, on average
    assert permute(measure, result, 3) == maps[3]


def test_members_of_a_pair_change_sides_together():
    measure, result = read("seat")
    turned = Counter()
    for seed in range(60):
        subset = permute(measure, result, seed)
        for a, b in (("A: she", "B: he"), ("A: woman", "B: man")):
            assert {subset[a], subset[b]} == {"A", "B"}
            turned[a] += subset[a] == "B"
    assert all(15 <= times <= 45 for times in turned.values())
    both = [
        (item["A: she"], item["A: woman"])
        for item in (permute(measure, result, s) for s in range(60))
    ]
    assert len(set(both)) == 4  # pair by pair, not all at once


def test_pairs_that_share_a_word_move_as_one():
    twice = Term("person", (("female", "woman"), ("male", "he")))
    words = replace(WORDS, terms=(*WORDS.terms, twice))
    measure, result = read("seat", lexicon=words)
    for seed in range(20):
        subset = permute(measure, result, seed)
        assert subset["A: she"] == subset["A: woman"] != subset["B: he"] == subset["B: man"]


def test_a_word_whose_counterpart_was_not_read_changes_sides_by_itself():
    measure, result = read("seat")
    fewer = result.select(lambda item: item.id != "B: man")
    maps = [permute(measure, fewer, seed) for seed in range(40)]
    assert {(item["A: woman"], item["A: she"]) for item in maps} == {
        *zip("AABB", "ABAB", strict=True)
    }
    assert all(item["A: she"] != item["B: he"] for item in maps)


@pytest.mark.parametrize("name", ["cloze", "cloze_probability", "lpbs"])
def test_dealing_is_the_permutation_of_the_measures_own_null(name):
    """The same value as a Draw gives, whose units are dealt out in this way.

    But for its sign: the side that comes first among the items is the first of a design.
    """
    measure, result = read(name)
    head, design = measure.primary_metric, measure.design(result, measure.primary_metric)
    sampled = measure.select_sampled(result)
    before = [
        sampled.items[int(np.flatnonzero(design.group_of_item == g)[0])].group for g in (0, 1)
    ]
    for seed in range(5):
        change, per_item = sample_relabelling(measure, result, np.random.default_rng(seed))
        subset = change(result)
        value = head.aggregate(per_item(subset), measure.design(subset, head).full_sample)
        group = {item.id: item.group for item in subset.items}
        (factor,) = design.factors
        unit = {
            int(u): group[item.id]
            for u, item in zip(factor.unit_of_item, sampled.items, strict=True)
        }
        samples = tuple(np.array([u for u in unit if unit[u] == side]) for side in before)
        literal = head.aggregate(
            head.per_item_values(result), Resample(design, samples, permuted=True)
        )
        assert abs(float(value)) == pytest.approx(abs(float(literal)))


@pytest.mark.parametrize("name", ["crows_margin", "contrast", "stereotype_margin"])
def test_twins_are_exchanged_unit_by_unit(name):
    measure, result = read(name)
    head = measure.primary_metric
    change, per_item = sample_relabelling(measure, result, np.random.default_rng(1))
    assert change(result) is result
    factor = measure.design(result, head).factors[0]
    signs = np.random.default_rng(1).choice([-1.0, 1.0], factor.n_units)
    expected = head.flip(head.per_item_values(result), torch.from_numpy(signs[factor.unit_of_item]))
    assert torch.equal(per_item(result), expected)
    if name == "crows_margin":
        base = head.per_item_values(result)
        assert torch.equal(per_item(result).abs(), base.abs())
        assert not torch.equal(per_item(result), base)


def test_the_same_labels_are_dealt_to_every_variant():
    measure, result = read("seat")
    change, _ = sample_relabelling(measure, result, np.random.default_rng(0))
    other = replace(result, values=2 * result.values)
    assert [item.group for item in change(other).items] == [
        item.group for item in change(result).items
    ]
    assert torch.equal(change(other).values, other.values)


def test_without_labels_there_is_nothing_to_deal():
    measure, result = read("pppl")
    with pytest.raises(LevelheadError, match="pppl has no labels that could be permuted"):
        sample_relabelling(measure, result, np.random.default_rng(0))
