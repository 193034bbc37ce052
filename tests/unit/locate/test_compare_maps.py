from dataclasses import replace

import numpy as np
import pytest
import zoo
from metric_cases import INFERENCE, made, model

from levelhead.core.errors import LevelheadError
from levelhead.locate.compare_maps import NOISE_NOTE, MapComparison, compare_maps
from levelhead.locate.head_map import UndeterminedSignError
from levelhead.locate.score_heads import locate
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.stats.designs import grouped_design
from levelhead.stats.paired_effects import PairedEffects

RULER = made("crows_margin")
LM = model("crows_margin")


def mapped(lm=LM, measure=RULER, **options):
    return locate(
        lm, measure, bias_direction="+", ablate_top="none", inference=INFERENCE, **options
    )


BASE = mapped()
CHILD = mapped(LM.edited(HeadScale([Site("head_out", 0, 0)], 2)))


def effects(values, seed):
    subset = np.array(values)
    noise = 0.5 * np.random.default_rng(seed).normal(size=(199, len(subset)))
    return PairedEffects(
        subset, subset + noise, np.zeros(199), grouped_design(12, name="pairs"), 0.9
    )


FIRST = effects([1.0, 0.5, -1.0, -0.5, 2.0, 0.0], 1)
SECOND = effects([1.5, -0.5, 1.0, -0.2, 0.5, 3.0], 2)


def test_counts_by_hand():
    (child,) = compare_maps([("base", BASE), ("child", CHILD)], [FIRST, SECOND]).compared_maps
    assert child.fewer_positive.value == 3 - 4
    assert child.larger_positive.value == 1  # 1.0 -> 1.5
    assert child.negative_to_positive.value == 1  # -1.0 -> 1.0
    assert child.total.value == pytest.approx(5.3 - 2.0)
    assert child.fewer_positive.n == 6


def test_their_intervals_are_of_the_same_draws():
    (child,) = compare_maps([("base", BASE), ("child", CHILD)], [FIRST, SECOND]).compared_maps
    pairs = list(zip(FIRST.resamples, SECOND.resamples, strict=True))
    literal = {
        "fewer_positive": [sum(a > 0) - sum(b > 0) for a, b in pairs],
        "larger_positive": [
            sum((x > 0) and (y > x) for x, y in zip(a, b, strict=True)) for a, b in pairs
        ],
        "negative_to_positive": [
            sum((x < 0) and (y > 0) for x, y in zip(a, b, strict=True)) for a, b in pairs
        ],
        "total": [sum(b) - sum(a) for a, b in pairs],
    }
    for name, draws in literal.items():
        subset = getattr(child, name)
        low, high = np.quantile(draws, [0.05, 0.95])
        ends = (min(low, subset.value), max(high, subset.value))
        assert (subset.interval.low, subset.interval.high) == pytest.approx(ends)
        assert subset.interval.level == 0.9


def test_the_bases_most_negative_heads_are_boxed():
    output = compare_maps([("base", BASE), ("child", CHILD)])
    scores = {site: value for site, value in np.ndenumerate(BASE.grid()) if value < 0}
    worst = sorted(scores, key=scores.get)[:5]
    assert output.anti_bias_in_base == tuple(f"{layer + 1}-{head + 1}" for layer, head in worst)
    turned = sum(CHILD.grid()[place] > 0 for place in worst)
    assert output.compared_maps[0].anti_bias_now_positive == turned
    assert output.compared_maps[0].fewer_positive is None
    assert output.notes == (NOISE_NOTE,)
    assert output.compared_maps[0].head_map == CHILD


def test_a_child_is_compared_in_the_bases_direction():
    """Its own sign turned round: the same measure goes up."""
    turned = locate(LM.edited(HeadScale([Site("head_out", 0, 0)], 2)), RULER, bias_direction="-",
                    ablate_top="none", inference=INFERENCE)  # fmt: skip
    assert np.allclose(turned.grid(), -CHILD.grid())
    opposite = replace(SECOND, values=-SECOND.values, resamples=-SECOND.resamples)
    base = compare_maps([("base", BASE), ("child", CHILD)], [FIRST, SECOND]).compared_maps[0]
    output = compare_maps([("base", BASE), ("child", turned)], [FIRST, opposite])
    child = output.compared_maps[0]
    assert child.anti_bias_now_positive == base.anti_bias_now_positive
    counts = (child.fewer_positive, child.larger_positive, child.negative_to_positive, child.total)
    assert counts == (
        base.fewer_positive, base.larger_positive, base.negative_to_positive, base.total,
    )  # fmt: skip
    assert "its own sign is -1; compared as the base's" in output.notes[0]


def test_a_model_of_another_shape_has_no_such_heads():
    other = load(zoo.folder("bert", "BertForPreTraining", num_hidden_layers=2))
    output = compare_maps([("base", BASE), ("child", mapped(other))], [FIRST, SECOND])
    (child,) = output.compared_maps
    assert child.anti_bias_now_positive is None
    assert (child.fewer_positive, child.total) == (None, None)
    assert "nothing is counted" in output.notes[-2]


def test_effects_of_other_items_are_not_paired():
    effects = [
        replace(single, items=items) for single, items in ((FIRST, ("a",)), (SECOND, ("b",)))
    ]
    output = compare_maps([("base", BASE), ("child", CHILD)], effects)
    assert output.compared_maps[0].fewer_positive is None
    assert "other heads or other items" in output.notes[0]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"method": "ablation", "ablate_top": "all"}, "way to locate"),
        ({"ablation": "mean"}, "ablation"),
     ({"split": "words"}, "halves"), ({"inference": replace(INFERENCE, seed=2)}, "seed")],
)  # fmt: skip
def test_maps_that_were_made_otherwise_are_refused(options, what):
    other = locate(
        LM,
        RULER,
        **({"bias_direction": "+", "ablate_top": "none", "inference": INFERENCE} | options),
    )
    with pytest.raises(LevelheadError, match=f"child has another {what} than base"):
        compare_maps([("base", BASE), ("child", other)])


def test_a_base_without_a_sign_has_no_anti_bias_heads():
    unknown = locate(LM, RULER, ablate_top="none", inference=INFERENCE)
    assert unknown.bias_sign.sign == 0
    with pytest.raises(UndeterminedSignError):
        compare_maps([("base", unknown), ("child", CHILD)])
    output = compare_maps([("base", BASE), ("child", unknown)])
    assert "its own sign is 0" in output.notes[0]


def test_it_is_read_back_from_json():
    output = compare_maps([("base", BASE), ("child", CHILD)], [FIRST, SECOND])
    assert MapComparison.from_json(output.to_json()) == output


def test_one_map_is_no_comparison():
    with pytest.raises(LevelheadError, match="1 maps with 0 sets of effects are no comparison"):
        compare_maps([("base", BASE)])


def test_maps_of_other_items_are_refused():
    other = mapped(measure=made("crows_margin", word="a"))
    with pytest.raises(LevelheadError, match="child was not located by the same measure as base"):
        compare_maps([("base", BASE), ("child", other)])
