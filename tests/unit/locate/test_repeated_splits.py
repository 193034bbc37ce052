from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from metric_cases import made, model
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.gradient import compute_gradient
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.validation.repeated_splits import (
    RepeatedSplitConfig,
    SplitRange,
    SplitStability,
    repeat_splits,
)
from levelhead.locate.validation.split import split_items
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site

HEADS = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
SPLITS = 4


def valued(measure, readouts):
    return float(measure.reduce(readouts))


@pytest.mark.parametrize("by", ["words", "contexts"])
@pytest.mark.parametrize("sign", [1, -1])
def test_every_split_is_located_as_if_it_were_alone(by, sign):
    """Twenty gradients from shared forwards, against one after another of each find half."""
    lm, measure = model("seat", dtype="float64"), made("seat")
    result = measure.read(lm)[0]
    blocks = split_items(measure, result, split_by=by).block_of
    ablated = read_variants(
        lm, measure, result, [AblationVariant((site,)) for site in HEADS], block_of=blocks
    )
    output = repeat_splits(
        lm,
        measure,
        result,
        config=RepeatedSplitConfig(SPLITS, by, 2),
        sign=sign,
        ablation_responses=ablated,
        inference=Inference(seed=5),
    )
    tops, joint, replication = [], [], []
    for i in range(SPLITS):
        cut = split_items(measure, result, split_by=by, seed=5 + i)
        scores = (
            sign * compute_gradient(lm, measure, cut.discovery.select(result)).total().flatten()
        )
        assert scores.sort(descending=True).values[1] > 0
        top = {HEADS[int(place)] for place in scores.argsort(descending=True)[:2]}
        tops.append(top)
        masked = cut.confirmation.select(measure.read(lm.edited(HeadScale(sorted(top), 0)))[0])
        base = valued(measure, cut.confirmation.select(result))
        joint.append(sign * (base - valued(measure, masked)))
        effects = [
            sign * (base - valued(measure, cut.confirmation.select_variant(ablated, head)))
            for head in range(12)
        ]
        replication.append(stats.spearmanr(scores, effects).statistic)
    assert (output.n_splits, output.k) == (SPLITS, 2)
    for spread, literal in ((output.joint_effect, joint), (output.replication, replication)):
        expected = (np.median(literal), min(literal), max(literal), SPLITS)
        ours = (spread.median, spread.low, spread.high, spread.n_splits)
        assert ours == pytest.approx(expected, abs=1e-8)
    shared = [len(a & b) for a, b in combinations(tops, 2)]
    assert (output.overlap.median, output.overlap.low, output.overlap.high) == (
        np.median(shared),
        min(shared),
        max(shared),
    )
    counted = Counter(f"{site.layer + 1}-{site.head + 1}" for top in tops for site in top)
    assert dict(output.selection_counts) == counted
    assert [times for _, times in output.selection_counts] == sorted(counted.values(), reverse=True)
    assert f"split by {by}" in output.notes[0]


def test_it_is_the_same_again_and_read_back(tmp_path):
    lm, measure = model("seat"), made("seat", contexts_per_word=4)
    result = measure.read(lm)[0]
    ours, again = (
        repeat_splits(
            lm,
            measure,
            result,
            config=RepeatedSplitConfig(3, k=1),
            context=RunContext(store=tmp_path / name),
        ).to_json()
        for name in "ab"
    )
    assert ours == again
    assert SplitStability.from_json(ours).to_json() == ours
    assert SplitStability.from_json(ours).replication is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"config": RepeatedSplitConfig(n_splits=1)}, "one split"),
        ({"config": RepeatedSplitConfig(split_by="none")}, "no halves"),
        ({"sign": 0}, "undetermined"),
    ],
)
def test_what_cannot_be_repeated_is_refused(options, why):
    lm, measure = model("seat"), made("seat", contexts_per_word=4)
    with pytest.raises(LevelheadError, match=why):
        repeat_splits(lm, measure, measure.read(lm)[0], **options)


def test_heads_that_take_from_the_bias_are_not_among_the_top():
    lm, measure = model("seat"), made("seat", contexts_per_word=4)
    result = measure.read(lm)[0]
    output = repeat_splits(lm, measure, result, config=RepeatedSplitConfig(2, k=12))
    positive = [
        int(
            (
                compute_gradient(
                    lm,
                    measure,
                    split_items(measure, result, split_by="words", seed=i).discovery.select(result),
                ).total()
                > 0
            ).sum()
        )
        for i in range(2)
    ]
    assert sum(times for _, times in output.selection_counts) == sum(positive) < 24


def test_a_spread_of_nothing_is_refused():
    subset = SplitRange.from_values("effect", [3.0, 1.0, 2.0, 7.0])
    assert (subset.median, subset.low, subset.high, subset.n_splits) == (2.5, 1.0, 7.0, 4)
    with pytest.raises(NotMeasurableError, match="no split has effect"):
        SplitRange.from_values("effect", [])


def test_shares_of_all_splits_come_from_the_same_forwards(monkeypatch):
    """Three splits need no more forwards with a gradient than one does."""
    lm, measure = model("seat"), made("seat", contexts_per_word=4)
    result = measure.read(lm)[0]
    calls = []
    answer = type(lm).run_rows

    def counting(self, reading, indices, **options):
        calls.append(torch.is_grad_enabled())
        return answer(self, reading, indices, **options)

    monkeypatch.setattr(type(lm), "run_rows", counting)
    seen = []
    for splits in (2, 6):
        calls.clear()
        config = RepeatedSplitConfig(splits, k=1)
        repeat_splits(lm, measure, result, config=config, inference=Inference(seed=splits))
        seen.append(sum(calls))
    assert 0 < seen[0] == seen[1]
