"""Locating, for every metric and every family: exact, or refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo
from rulers import made, model

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.answer_index import uses
from levelhead.locate.attribution.gradient import cotangents, gradient
from levelhead.locate.attribution.one_graph import one_graph
from levelhead.locate.attribution.variants import vary
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.registry import metric_texts
from levelhead.measures.responses import questioned
from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

SMOOTH = [name for name in metric_texts() if not made(name).headline.is_step]
STEPS = [name for name in metric_texts() if made(name).headline.is_step]


def loaded(family, **options):
    row = next(row for row in FAMILIES[family].classes if row.vocabulary)
    return load(zoo.folder(family, row.name), **options)


def valued(lm, ruler):
    return float(ruler.reduce(ruler.read(lm)[0]))


def difference(lm, ruler, site, step):
    ends = [valued(lm.edited(HeadScale([site], 1 + way * step)), ruler) for way in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


def every_head(lm):
    return [
        Site("head_out", layer, head)
        for layer in range(lm.anatomy.layers)
        for head in range(lm.anatomy.heads)
    ]


@pytest.mark.parametrize("name", [name for name in SMOOTH if name != "continuation"])
def test_the_gradient_of_every_smooth_measure_is_its_derivative(name):
    ruler, lm = made(name), model(name, dtype="float64")
    found = ruler.read(lm)[0]
    shares = gradient(lm, ruler, found)
    scores = shares.total()
    whole = one_graph(lm, ruler, found)
    largest = float(scores.abs().max())
    assert torch.allclose(whole.total(), scores, atol=1e-9 * largest)
    assert torch.allclose(whole.shares["heads"], shares.shares["heads"], atol=1e-9 * largest)
    assert shares.items == tuple(item.id for item in found.items)
    ranked = sorted(every_head(lm), key=lambda site: -abs(scores[site.layer, site.head]))
    rough = name == "ppl"  # a llama-like model takes its norms in float32
    step, tolerance = (2e-3, 2e-2) if rough else (1e-3, 1e-4)
    for site in (ranked[0], ranked[1], ranked[-1]):
        literal = difference(lm, ruler, site, step)
        own = float(scores[site.layer, site.head])
        assert literal == pytest.approx(own, abs=tolerance * largest)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_measure_names_its_companion(name):
    ruler, lm = made(name), model(name)
    found = ruler.read(lm)[0]
    for refused in (gradient, one_graph):
        with pytest.raises(LevelheadError, match="step function") as error:
            refused(lm, ruler, found)
        assert ruler.headline.companion in error.value.mend


def test_sampled_text_has_no_gradient():
    ruler, lm = made("continuation"), model("continuation")
    with pytest.raises(LevelheadError, match=r"sampled text|step function"):
        gradient(lm, ruler, ruler.read(lm)[0])


@pytest.mark.parametrize("name", ["seat", "contrast", "pppl", "lpbs", "nli_gap"])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_do_not_move_it(name, size):
    ruler, lm = made(name), model(name)
    plain = gradient(lm, ruler, ruler.read(lm)[0]).total()
    other = lm.batched(size)
    found = gradient(other, ruler, ruler.read(other)[0]).total()
    assert torch.allclose(found, plain, atol=1e-5 * float(plain.abs().max()))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_is_located_exactly(family):
    lm = loaded(family, dtype="float64")
    ruler = made("seat", quota=2)
    assert isinstance(ruler, Seat)
    found = ruler.read(lm)[0]
    scores = gradient(lm, ruler, found).total()
    largest = float(scores.abs().max())
    step, tolerance = (2e-3, 2e-2) if family in zoo.UP_CASTING else (1e-3, 1e-4)
    ranked = sorted(every_head(lm), key=lambda site: -abs(scores[site.layer, site.head]))
    for site in (ranked[0], ranked[-1]):
        literal = difference(lm, ruler, site, step)
        own = float(scores[site.layer, site.head])
        assert literal == pytest.approx(own, abs=tolerance * largest)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_variant_is_the_edited_model_bit_for_bit(family):
    lm = loaded(family)
    ruler = made("seat", quota=2)
    found = ruler.read(lm)[0]
    sites = every_head(lm)
    variants = [
        *(Variant((site,)) for site in sites[:: len(sites) // 4]),
        Variant((sites[1], sites[-1]), 2.0),
    ]
    varied = vary(lm, ruler, found, variants)
    asked = uses(lm, ruler, found)
    question, _ = questioned(lm, "embed", asked.asks, asked.asked.settings)
    for number, variant in enumerate(variants):
        literal = question.answered(lm.edited(HeadScale(variant.sites, variant.factor)))
        expected = asked.values(literal, found.values)
        got = varied.of(number).values
        assert torch.allclose(got, expected, atol=1e-6 * float(expected.abs().max()))
        assert not torch.equal(got, varied.of(None).values)
    assert torch.allclose(varied.of(None).values, found.values, atol=1e-6)


def test_resumed_answers_are_those_of_whole_forwards(tmp_path):
    """One shard, so that batches are the same: equal to the last bit."""
    lm, ruler = model("contrast"), made("contrast")
    found = ruler.read(lm)[0]
    variants = [Variant((site,)) for site in every_head(lm)]
    varied = vary(lm, ruler, found, variants, context=RunContext(store=tmp_path))
    asks = [ask for cell in varied.cells for ask in cell.asks]
    question, _ = questioned(lm, "score", asks, {})
    for number, variant in enumerate(variants):
        literal = question.answered(lm.edited(HeadScale(variant.sites, 0)))
        shaped = literal.numpy().reshape(varied.answers[number + 1].shape)
        assert np.allclose(varied.answers[number + 1], shaped, atol=1e-5)
    again = vary(lm, ruler, found, variants, context=RunContext(store=tmp_path))
    assert np.array_equal(again.answers, varied.answers)


def test_stacked_cotangents_share_a_forward():
    lm, ruler = model("seat", dtype="float64"), made("seat")
    found = ruler.read(lm)[0]
    own = cotangents(ruler, found)
    several = gradient(lm, ruler, found, of_values=torch.stack([own, -2 * own])).total()
    assert torch.allclose(several[0], gradient(lm, ruler, found).total())
    assert torch.allclose(several[1], -2 * several[0])


def test_attributes_may_be_held_fixed():
    lm, ruler = model("seat", dtype="float64"), made("seat")
    found = ruler.read(lm)[0]
    fixed = cotangents(ruler, found, detach_attributes=True)
    whole = cotangents(ruler, found)
    for item, one, other in zip(found.items, fixed, whole, strict=True):
        assert torch.equal(one, other) if ruler.samples(item) else not one.any()


def test_a_gradient_of_nothing_is_refused():
    lm, ruler = model("seat"), made("seat")
    found = ruler.read(lm)[0]
    with pytest.raises(LevelheadError, match="zero everywhere"):
        gradient(lm, ruler, found, of_values=torch.zeros_like(found.values))
    bad = torch.full_like(found.values, float("nan"))
    with pytest.raises(LevelheadError):
        cotangents(ruler, replace(found, values=bad))
