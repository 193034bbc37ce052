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
    ruler = made(name, **options)
    return ruler, ruler.read(model(name))[0]


def dealt(ruler, found, seed):
    change, _ = sample_relabelling(ruler, found, np.random.default_rng(seed))
    own = change(found)
    assert own.values is found.values
    assert [item.id for item in own.items] == [item.id for item in found.items]
    return {item.id: item.group for item in own.items}


def sizes(groups, sides):
    return Counter(group for group in groups.values() if group in sides)


def test_sides_stay_as_large_as_they_were():
    ruler, found = read("seat")
    before = {item.id: item.group for item in found.items}
    maps = [dealt(ruler, found, seed) for seed in range(40)]
    for own in maps:
        assert sizes(own, "XY") == {"X": 5, "Y": 5}
        assert sizes(own, "AB") == {"A": 2, "B": 2}
        for name, group in own.items():
            assert (group in "XY") == (before[name] in "XY")
    moved = [sum(own[name] != before[name] for name in own if name[0] in "XY") for own in maps]
    assert 4 < np.mean(moved) < 6  # half of ten words, on average
    assert dealt(ruler, found, 3) == maps[3]


def test_members_of_a_pair_change_sides_together():
    ruler, found = read("seat")
    turned = Counter()
    for seed in range(60):
        own = dealt(ruler, found, seed)
        for a, b in (("A: she", "B: he"), ("A: woman", "B: man")):
            assert {own[a], own[b]} == {"A", "B"}
            turned[a] += own[a] == "B"
    assert all(15 <= times <= 45 for times in turned.values())
    both = [(own["A: she"], own["A: woman"]) for own in (dealt(ruler, found, s) for s in range(60))]
    assert len(set(both)) == 4  # pair by pair, not all at once


def test_pairs_that_share_a_word_move_as_one():
    twice = Term("person", (("female", "woman"), ("male", "he")))
    words = replace(WORDS, terms=(*WORDS.terms, twice))
    ruler, found = read("seat", lexicon=words)
    for seed in range(20):
        own = dealt(ruler, found, seed)
        assert own["A: she"] == own["A: woman"] != own["B: he"] == own["B: man"]


def test_a_word_whose_counterpart_was_not_read_changes_sides_by_itself():
    ruler, found = read("seat")
    fewer = found.select(lambda item: item.id != "B: man")
    maps = [dealt(ruler, fewer, seed) for seed in range(40)]
    assert {(own["A: woman"], own["A: she"]) for own in maps} == {*zip("AABB", "ABAB", strict=True)}
    assert all(own["A: she"] != own["B: he"] for own in maps)


@pytest.mark.parametrize("name", ["cloze", "cloze_probability", "lpbs"])
def test_dealing_is_the_permutation_of_the_measures_own_null(name):
    """The same value as a Draw gives, whose units are dealt out in this way.

    But for its sign: the side that comes first among the items is the first of a design.
    """
    ruler, found = read(name)
    head, design = ruler.primary_metric, ruler.design(found, ruler.primary_metric)
    sampled = ruler.select_sampled(found)
    before = [
        sampled.items[int(np.flatnonzero(design.group_of_item == g)[0])].group for g in (0, 1)
    ]
    for seed in range(5):
        change, per_item = sample_relabelling(ruler, found, np.random.default_rng(seed))
        own = change(found)
        value = head.aggregate(per_item(own), ruler.design(own, head).full_sample)
        group = {item.id: item.group for item in own.items}
        (factor,) = design.factors
        unit = {
            int(u): group[item.id]
            for u, item in zip(factor.unit_of_item, sampled.items, strict=True)
        }
        samples = tuple(np.array([u for u in unit if unit[u] == side]) for side in before)
        literal = head.aggregate(
            head.per_item_values(found), Resample(design, samples, permuted=True)
        )
        assert abs(float(value)) == pytest.approx(abs(float(literal)))


@pytest.mark.parametrize("name", ["crows_margin", "contrast", "stereotype_margin"])
def test_twins_are_exchanged_unit_by_unit(name):
    ruler, found = read(name)
    head = ruler.primary_metric
    change, per_item = sample_relabelling(ruler, found, np.random.default_rng(1))
    assert change(found) is found
    factor = ruler.design(found, head).factors[0]
    signs = np.random.default_rng(1).choice([-1.0, 1.0], factor.n_units)
    expected = head.flip(head.per_item_values(found), torch.from_numpy(signs[factor.unit_of_item]))
    assert torch.equal(per_item(found), expected)
    if name == "crows_margin":
        plain = head.per_item_values(found)
        assert torch.equal(per_item(found).abs(), plain.abs())
        assert not torch.equal(per_item(found), plain)


def test_the_same_labels_are_dealt_to_every_variant():
    ruler, found = read("seat")
    change, _ = sample_relabelling(ruler, found, np.random.default_rng(0))
    other = replace(found, values=2 * found.values)
    assert [item.group for item in change(other).items] == [
        item.group for item in change(found).items
    ]
    assert torch.equal(change(other).values, other.values)


def test_without_labels_there_is_nothing_to_deal():
    ruler, found = read("pppl")
    with pytest.raises(LevelheadError, match="pppl has no labels that could be permuted"):
        sample_relabelling(ruler, found, np.random.default_rng(0))
