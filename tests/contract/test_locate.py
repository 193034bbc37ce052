"""Locating, for every metric and every family: exact, or refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo
from metric_cases import CAUSAL, made, model
from one_graph import compute_gradient_in_one_graph

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import compute_cotangents, compute_gradient
from levelhead.locate.attribution.variants import read_variants
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.registry import metric_texts
from levelhead.measures.responses import build_query
from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

SMOOTH = [name for name in metric_texts() if not made(name).primary_metric.is_step]
STEPS = [name for name in metric_texts() if made(name).primary_metric.is_step]


def loaded(family, **options):
    row = next(row for row in FAMILIES[family].classes if row.vocabulary)
    return load(zoo.folder(family, row.name), **options)


def valued(lm, measure):
    return float(measure.reduce(measure.read(lm)[0]))


def difference(lm, measure, site, step):
    ends = [valued(lm.edited(HeadScale([site], 1 + way * step)), measure) for way in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


def every_head(lm):
    return [
        Site("head_out", layer, head)
        for layer in range(lm.layout.layers)
        for head in range(lm.layout.heads)
    ]


@pytest.mark.parametrize("name", [name for name in SMOOTH if name != "continuation"])
def test_the_gradient_of_every_smooth_measure_is_its_derivative(name):
    measure, lm = made(name), model(name, dtype="float64")
    result = measure.read(lm)[0]
    shares = compute_gradient(lm, measure, result)
    scores = shares.total()
    full = compute_gradient_in_one_graph(lm, measure, result)
    largest = float(scores.abs().max())
    assert torch.allclose(full.total(), scores, atol=1e-9 * largest)
    assert torch.allclose(
        full.by_component["heads"], shares.by_component["heads"], atol=1e-9 * largest
    )
    assert shares.items == tuple(item.id for item in result.items)
    ranked = sorted(every_head(lm), key=lambda site: -abs(scores[site.layer, site.head]))
    rough = name in CAUSAL  # a llama-like model takes its norms in float32
    step, tolerance = (2e-3, 2e-2) if rough else (1e-3, 1e-4)
    for site in (ranked[0], ranked[1], ranked[-1]):
        literal = difference(lm, measure, site, step)
        subset = float(scores[site.layer, site.head])
        assert literal == pytest.approx(subset, abs=tolerance * largest)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_measure_names_its_companion(name):
    measure, lm = made(name), model(name)
    result = measure.read(lm)[0]
    for refused in (compute_gradient, compute_gradient_in_one_graph):
        with pytest.raises(LevelheadError, match="step function") as error:
            refused(lm, measure, result)
        assert measure.primary_metric.smooth_surrogate in error.value.hint


def test_sampled_text_has_no_gradient():
    measure, lm = made("continuation"), model("continuation")
    with pytest.raises(LevelheadError, match=r"sampled text|step function"):
        compute_gradient(lm, measure, measure.read(lm)[0])


@pytest.mark.parametrize("name", ["seat", "contrast", "pppl", "lpbs", "nli_gap"])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_do_not_move_it(name, size):
    measure, lm = made(name), model(name)
    base = compute_gradient(lm, measure, measure.read(lm)[0]).total()
    other = lm.with_batch_size(size)
    result = compute_gradient(other, measure, measure.read(other)[0]).total()
    assert torch.allclose(result, base, atol=1e-5 * float(base.abs().max()))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_is_located_exactly(family):
    lm = loaded(family, dtype="float64")
    measure = made("seat", contexts_per_word=2)
    assert isinstance(measure, Seat)
    result = measure.read(lm)[0]
    scores = compute_gradient(lm, measure, result).total()
    largest = float(scores.abs().max())
    step, tolerance = (2e-3, 2e-2) if family in zoo.UP_CASTING else (1e-3, 1e-4)
    ranked = sorted(every_head(lm), key=lambda site: -abs(scores[site.layer, site.head]))
    for site in (ranked[0], ranked[-1]):
        literal = difference(lm, measure, site, step)
        subset = float(scores[site.layer, site.head])
        assert literal == pytest.approx(subset, abs=tolerance * largest)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_variant_is_the_edited_model_bit_for_bit(family):
    lm = loaded(family)
    measure = made("seat", contexts_per_word=2)
    result = measure.read(lm)[0]
    sites = every_head(lm)
    variants = [
        *(AblationVariant((site,)) for site in sites[:: len(sites) // 4]),
        AblationVariant((sites[1], sites[-1]), 2.0),
    ]
    varied = read_variants(lm, measure, result, variants)
    requested = index_answers(lm, measure, result)
    question, _ = build_query(lm, "embed", requested.queries, requested.query_set.settings)
    for number, variant in enumerate(variants):
        literal = question.run(lm.edited(HeadScale(variant.sites, variant.factor)))
        expected = requested.values(literal, result.values)
        got = varied.responses_of(number).values
        assert torch.allclose(got, expected, atol=1e-6 * float(expected.abs().max()))
        assert not torch.equal(got, varied.responses_of(None).values)
    assert torch.allclose(varied.responses_of(None).values, result.values, atol=1e-6)


def test_resumed_answers_are_those_of_whole_forwards(tmp_path):
    """One shard, so that batches are the same: equal to the last bit."""
    lm, measure = model("contrast"), made("contrast")
    result = measure.read(lm)[0]
    variants = [AblationVariant((site,)) for site in every_head(lm)]
    varied = read_variants(lm, measure, result, variants, context=RunContext(store=tmp_path))
    asks = [ask for cell in varied.cells for ask in cell.queries]
    question, _ = build_query(lm, "score", asks, {})
    for number, variant in enumerate(variants):
        literal = question.run(lm.edited(HeadScale(variant.sites, 0)))
        shaped = literal.numpy().reshape(varied.answers[number + 1].shape)
        assert np.allclose(varied.answers[number + 1], shaped, atol=1e-5)
    again = read_variants(lm, measure, result, variants, context=RunContext(store=tmp_path))
    assert np.array_equal(again.answers, varied.answers)


def test_stacked_cotangents_share_a_forward():
    lm, measure = model("seat", dtype="float64"), made("seat")
    result = measure.read(lm)[0]
    cotangents = compute_cotangents(measure, result)
    several = compute_gradient(
        lm, measure, result, value_cotangents=torch.stack([cotangents, -2 * cotangents])
    ).total()
    assert torch.allclose(several[0], compute_gradient(lm, measure, result).total())
    assert torch.allclose(several[1], -2 * several[0])


def test_attributes_may_be_held_fixed():
    lm, measure = model("seat", dtype="float64"), made("seat")
    result = measure.read(lm)[0]
    fixed = compute_cotangents(measure, result, detach_attributes=True)
    full = compute_cotangents(measure, result)
    for item, single, other in zip(result.items, fixed, full, strict=True):
        assert torch.equal(single, other) if measure.is_sampled(item) else not single.any()


def test_a_gradient_of_nothing_is_refused():
    lm, measure = model("seat"), made("seat")
    result = measure.read(lm)[0]
    with pytest.raises(LevelheadError, match="zero everywhere"):
        compute_gradient(lm, measure, result, value_cotangents=torch.zeros_like(result.values))
    bad = torch.full_like(result.values, float("nan"))
    with pytest.raises(LevelheadError):
        compute_cotangents(measure, replace(result, values=bad))
