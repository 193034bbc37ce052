"""Masks of a map: what each way of masking changes, against literal comparisons."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from calibrations import marks
from metric_cases import made, model
from simulated import Plain, read

from levelhead.core.calibration import DAGGER
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.locate.head_map import UndeterminedSignError, head_label
from levelhead.locate.score_heads import locate
from levelhead.mitigate.evaluation.change import measure_change
from levelhead.mitigate.heads.amplify import ScalingGrid, _bias_aggregate, amplify
from levelhead.mitigate.heads.mask import mask_heads, scale_heads
from levelhead.mitigate.heads.mask_top_heads import compare_masked_heads, select_heads
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

INFERENCE = Inference(seed=1, resamples=99, permutations=99)


@functools.cache
def located():
    measure, lm = made("seat"), model("seat")
    return (
        measure,
        lm,
        locate(lm, measure, split="contexts", bias_direction="+", inference=INFERENCE),
    )


@functools.cache
def masked():
    measure, lm, heads = located()
    return compare_masked_heads(
        lm, heads, [measure, made("pppl")], k=2, n_random_sets=2, inference=INFERENCE
    )


def test_masks_and_scales_are_edits():
    sites = [Site("head_out", 1, 2)]
    assert mask_heads(sites) == HeadScale(sites, 0)
    assert scale_heads(sites, 2) == HeadScale(sites, 2)


def test_heads_are_chosen_by_name():
    _, _, heads = located()
    assert select_heads(heads, "top", 2) == heads.top(2)
    assert select_heads(heads, "bottom", 2) == heads.bottom(2)
    assert (
        select_heads(heads, "top", "all")
        == select_heads(heads, "positive", "all")
        == heads.positive_heads()
    )
    assert select_heads(heads, "bottom", "all") == heads.negative_heads()
    sample = select_heads(heads, "random", "all", rng=np.random.default_rng(0))
    assert len(set(sample)) == len(heads.positive_heads())
    with pytest.raises(LevelheadError, match="need chance"):
        select_heads(heads, "random", 2)
    unsure = heads.model_copy(update={"bias_sign": heads.bias_sign.model_copy(update={"sign": 0})})
    with pytest.raises(UndeterminedSignError):
        select_heads(unsure, "top", 2)


def test_every_way_of_masking_is_its_edited_model():
    measure, lm, heads = located()
    price = made("pppl")
    result = masked()
    positive = len(heads.positive_heads())
    names = ["top 2", "bottom 2", f"all positive ({positive})", "random 2", f"random {positive}"]
    assert [row.name for row in result.rows] == names
    assert result.map == heads.content_hash
    base = [float(item.reduce(item.read(lm)[0])) for item in (measure, price)]
    assert [item.value.value for item in result.base] == pytest.approx(base)
    top = result.rows[0]
    assert top.heads == tuple(map(head_label, sorted(heads.top(2))))
    for single, change, before in zip((measure, price), top.changes, base, strict=True):
        after = float(single.reduce(single.read(lm.edited(mask_heads(heads.top(2))))[0]))
        assert change.value.value == pytest.approx(after)
        assert change.change.value == pytest.approx(after - before, abs=1e-9)
        assert change.change.value in change.change.interval
    assert top.interval_over == ""
    assert top.changes[0].change.n == len(measure.select_sampled(measure.read(lm)[0]).items)
    for row in result.rows[3:]:
        # The number beside the interval is that of what it is over.
        assert row.interval_over == "2 random head sets"
        assert {item.change.interval.method for item in row.changes} == {
            "student, 2 random head sets"
        }
        assert {item.change.n for item in row.changes} == {2}
    assert "2 random head sets with the items held fixed" in result.notes[0]
    with pytest.raises(LevelheadError, match="1 random sets have no spread"):
        compare_masked_heads(lm, heads, [measure, price], k=2, n_random_sets=1, inference=INFERENCE)
    assert top.changes[0].confirmed_change is not None
    assert [change.name for change in top.changes[0].extra_changes] == [
        "change of difference of means"
    ]
    assert top.changes[1].confirmed_change is None


def test_a_measure_that_failed_is_marked_and_a_price_is_not():
    measure, lm, heads = located()
    price = made("pppl")
    assert marks(masked(), "seat") == ({DAGGER}, {""})
    assert marks(masked(), "pppl") == ({DAGGER}, {""})
    result = amplify(
        lm, heads, measure, price, k=2, grid=ScalingGrid((1,), (1.5,)), inference=INFERENCE
    )
    assert marks(result, "seat") == ({DAGGER}, {""})


def test_amplifying_is_chosen_on_one_half_and_judged_on_the_other():
    measure, lm, heads = located()
    result = amplify(
        lm,
        heads,
        measure,
        made("pppl"),
        k=2,
        grid=ScalingGrid((1, 2), (1.5, 2.0)),
        inference=INFERENCE,
    )
    assert [candidate.factor for candidate in result.candidates] == [1.5, 2.0, 1.5, 2.0]
    assert result.masking.factor == 0
    cheap = [
        candidate
        for candidate in result.candidates
        if candidate.cost <= max(result.masking.cost, 0)
    ]
    if cheap:
        assert result.chosen == max(cheap, key=lambda single: single.gain)
        assert result.difference.value == pytest.approx(
            result.gain.value - result.masking_gain.value, abs=1e-9
        )
    else:
        assert result.chosen is None
        assert "no amplification" in result.notes[0]


def test_beyond_parity_is_bias_again_on_both_halves():
    measure, values = Plain(parity=0.5), ([0.9] * 4, [0.2] * 4)
    head = measure.primary_metric
    for way in (1, -1):
        formula = replace(head, aggregate=_bias_aggregate(head, way))
        result = [formula.value(read(item), measure.design(read(item), head)) for item in values]
        assert result == pytest.approx([0.4, 0.3])
    bare = replace(head, parity=None)
    formula = replace(bare, aggregate=_bias_aggregate(bare, -1))
    assert formula.value(read(values[0]), measure.design(read(values[0]), head)) == pytest.approx(
        -0.9
    )


def test_what_is_no_price_is_refused_before_anything_is_asked():
    measure, lm, heads = located()
    with pytest.raises(LevelheadError, match="does not say whether higher or lower is worse"):
        amplify(lm, heads, measure, made("lpbs"), inference=INFERENCE)


def test_an_edit_without_effect_is_no_edit():
    measure, lm, _ = located()
    readouts = measure.read(lm)[0]
    with pytest.raises(NotMeasurableError, match=r"no part changes|changes no answer"):
        measure_change(measure, readouts, readouts, inference=INFERENCE)
    assert torch.isfinite(readouts.values).all()
