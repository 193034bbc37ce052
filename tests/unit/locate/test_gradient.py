"""The gradient against a plain backward through transformers' own forward."""

import pytest
import torch
from metric_cases import made, model

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import RunContext
from levelhead.engine.events import TaskStored
from levelhead.locate.attribution.gradient import compute_cotangents, compute_gradient
from levelhead.measures.embedding.seat import seat_effect_size
from levelhead.models.edits.base import HeadScale
from levelhead.models.sites import Site


def states(lm, text, span):
    """A word's vector by a plain forward, and what each layer's heads handed on."""
    (encoded,) = lm.tokens.encode([text])
    handed = []
    hooks = [
        layer.attention.output.dense.register_forward_pre_hook(
            lambda _, given: handed.append(given[0])
        )
        for layer in lm.layout.model.bert.encoder.layer
    ]
    ids = torch.tensor([encoded.row.ids])
    with torch.enable_grad():
        gate = torch.zeros(1, 1, 24, dtype=torch.float64, requires_grad=True)
        words = lm.layout.model.bert.embeddings.word_embeddings
        hook = words.register_forward_hook(lambda _, given, out: out + gate)
        try:
            hidden = lm.layout.model.bert(input_ids=ids).last_hidden_state[0]
        finally:
            for item in (hook, *hooks):
                item.remove()
    start, end = span
    inside = [i for i in encoded.word_positions() if start <= encoded.offsets[i][0] < end]
    return hidden[inside].mean(0), handed


def test_a_score_is_the_sum_of_gradient_times_context():
    """Michel et al. 2019: sum over positions of <dL/dctx, ctx> is the derivative by the mask."""
    lm, measure = model("seat", dtype="float64"), made("seat", contexts_per_word=2)
    result = measure.read(lm)[0]
    total = torch.zeros_like(result.values)
    contexts = []
    for subset, (text, *span) in zip(result.owner, result.queries, strict=True):
        vector, handed = states(lm, text, span)
        share = vector / result.owner.count(subset)
        total = total.index_add(0, torch.tensor([subset]), share[None])
        contexts.append(handed)
    at = {side: torch.from_numpy(rows) for side, rows in result.groups.items()}
    s = torch.nn.functional.normalize(total, dim=1)
    pull = s[at["A"]].mean(0) - s[at["B"]].mean(0)
    x, y = s[at["X"]] @ pull, s[at["Y"]] @ pull
    level = (x.mean() - y.mean()) / torch.cat([x, y]).std()
    sides = (total[at[side]].detach() for side in "XYAB")
    assert level.item() == pytest.approx(seat_effect_size(*sides))
    flat = [item for handed in contexts for item in handed]
    back = torch.autograd.grad(level, flat)
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for number, (grad, ctx) in enumerate(zip(back, flat, strict=True)):
        expected[number % 3] += (grad * ctx).unflatten(-1, (4, 6)).sum((0, 1, 3))
    scores = compute_gradient(lm, measure, result).total()
    assert torch.allclose(scores, expected, atol=1e-9)


def test_parts_beside_heads_are_derivatives_too():
    lm, measure = model("crows_margin", dtype="float64"), made("crows_margin")
    result = measure.read(lm)[0]
    parts = ("heads", "mlp", "embeddings")
    shares = compute_gradient(lm, measure, result, components=parts)
    shapes = {part: tuple(shares.total(part).shape) for part in parts}
    assert shapes == {"heads": (3, 4), "mlp": (3, 1), "embeddings": (1, 1)}
    assert torch.allclose(shares.total(), compute_gradient(lm, measure, result).total())


def test_a_masked_head_has_no_score():
    site = Site("head_out", 1, 2)
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    masked = lm.edited(HeadScale([site], 0))
    scores = compute_gradient(masked, measure, measure.read(masked)[0]).total()
    assert scores[1, 2] == 0
    assert (scores != 0).sum() == 11


def test_one_set_of_cotangents_without_a_gradient_is_refused():
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    result = measure.read(lm)[0]
    cotangents = compute_cotangents(measure, result)
    with pytest.raises(NotMeasurableError, match="zero everywhere"):
        compute_gradient(
            lm,
            measure,
            result,
            value_cotangents=torch.stack([cotangents, torch.zeros_like(cotangents)]),
        )


def test_what_is_stored_is_used_again(tmp_path):
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    result = measure.read(lm)[0]
    events = [[], []]
    totals = [
        compute_gradient(
            lm, measure, result, context=RunContext(store=tmp_path, progress=event.append)
        ).total()
        for event in events
    ]
    assert torch.equal(*totals)
    assert any(isinstance(event, TaskStored) for event in events[0])
    assert not any(isinstance(event, TaskStored) for event in events[1])
