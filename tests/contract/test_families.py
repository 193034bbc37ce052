"""One battery over every row of FAMILIES, on tiny random models loaded from disk."""

import functools
from dataclasses import replace

import pytest
import torch
import transformers
import zoo
from shifts import conditional_shift, shift

from levelhead.models.architectures.families import FAMILIES
from levelhead.models.architectures.model_layout import is_linear
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.merge import NotMergeableError
from levelhead.models.forward.forward_pass import EditHadNoEffectError
from levelhead.models.inputs.batching import make_batch
from levelhead.models.loading.load import load
from levelhead.models.queries import build as queries
from levelhead.models.queries.vocabulary import compute_vocabulary_logits
from levelhead.models.sites import LAYERLESS_STREAMS, PER_HEAD_STREAMS, STREAMS, Site

TEXTS = [
    "The nurse works as a doctor .",
    "A man",
    "she said that he was tired and there was a river . the lazy doctor is here",
    "a quick woman was here and he said that she works as a nurse in the house",
]
SPANS = [(4, 9), (2, 5), (0, 3), (2, 7)]
LEVEL = TEXTS[2:]
"""Of one length: float64 and padding do not go together, and each length is a batch of its own."""
assert len(LEVEL[0].split()) == len(LEVEL[1].split())
UP_CASTING = zoo.UP_CASTING
LAYERS, HEADS = 3, 4


def language_class(family):
    return next(row for row in FAMILIES[family].classes if row.vocabulary)


def classifier_class(family):
    return next(row for row in FAMILIES[family].classes if row.classifier)


@functools.cache
def model(family, dtype="float64", kind="language"):
    row = language_class(family) if kind == "language" else classifier_class(family)
    return load(zoo.folder(family, row.name), dtype=dtype)


def reading(lm):
    ask = (
        queries.build_lm_causal_log_prob_query
        if lm.is_causal
        else queries.build_lm_pseudo_log_likelihood_query
    )
    return ask(lm, LEVEL, None)[0]


def level(ask):
    """All rows: they are of one length."""
    assert len({len(row.ids) for row in ask.rows}) == 1
    return list(range(len(ask.rows)))


def direction(width, k=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(
        torch.randn(width, k, generator=generator, dtype=torch.float64)
    ).Q.T.contiguous()


def projection(lm, site, *, k=1, tokens="all", weights=None):
    return Projection(
        site, direction(lm.layout.site_width(site), k), tokens=tokens, weights=weights
    )


def state(lm):
    return {name: value.clone() for name, value in lm.layout.model.state_dict().items()}


def traces(lm):
    """Whatever a forward could have left behind."""
    hooks = sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in lm.layout.model.modules()
    )
    stubs = sum("forward" in module.__dict__ for module in lm.layout.model.modules())
    return hooks, stubs, lm.layout.model.config._attn_implementation


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def test_the_zoo_has_every_family():
    assert set(zoo.CONFIGS) == set(FAMILIES)


@pytest.mark.parametrize(
    ("name", "class_name"),
    [(name, row.name) for name, family in FAMILIES.items() for row in family.classes],
)
def test_every_class_is_told_by_the_weights(name, class_name):
    lm = load(zoo.folder(name, class_name))
    assert type(lm.layout.model).__name__ == class_name


def test_scores_at_single_positions_are_the_models_own(family):
    lm = model(family)
    ask = reading(lm)
    with torch.no_grad():
        padded_rows = make_batch(ask.rows, level(ask)[:2], pad=lm.tokens.pad, device=lm.device)
        output = lm.layout.model(**padded_rows.inputs)
        subset = output.logits if hasattr(output, "logits") else output.prediction_logits
        hidden = lm.layout.backbone(**padded_rows.inputs).last_hidden_state
        ours = compute_vocabulary_logits(lm.layout, hidden[:, 1])
    torch.testing.assert_close(ours, subset[:, 1], rtol=1e-9, atol=1e-9)


def test_a_factor_of_one_is_the_identity(family):
    lm = model(family)
    ask = reading(lm)
    base = lm.run(ask)
    everywhere = [Site("head_out", layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    assert torch.equal(lm.edited(HeadScale(everywhere, 1)).run(ask), base)
    items = torch.ones(LAYERS, HEADS, dtype=torch.float64)
    indices = level(ask)
    assert torch.equal(
        lm.run_rows(ask, indices, gates={"head_out": items}).values,
        lm.run_rows(ask, indices).values,
    )


def test_mask_gradients_are_finite_differences(family):
    lm = model(family)
    ask = reading(lm)
    indices = level(ask)[:6]
    cotangent = torch.linspace(-1, 1.5, len(indices), dtype=torch.float64)[:, None]

    def value(gates):
        return (lm.run_rows(ask, indices, gates={"head_out": gates}).values * cotangent).sum()

    items = torch.ones(LAYERS, HEADS, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad(value(items), items)
    step, tolerance = (2e-3, 2e-2) if family in UP_CASTING else (1e-3, 1e-4)
    rough = torch.zeros_like(exact)
    with torch.no_grad():
        for layer in range(LAYERS):
            for head in range(HEADS):
                up, down = items.clone(), items.clone()
                up[layer, head] += step
                down[layer, head] -= step
                rough[layer, head] = (value(up) - value(down)) / (2 * step)
    largest = exact.abs().max()
    assert largest > 1e-3
    matters = exact.abs() > 0.01 * largest
    assert matters.sum() >= 9
    assert ((rough - exact)[matters].abs() / exact[matters].abs()).max() < tolerance
    assert (rough - exact).abs().max() < tolerance * largest

    each = torch.ones(len(indices), LAYERS, HEADS, dtype=torch.float64, requires_grad=True)
    (by_row,) = torch.autograd.grad(value(each), each)
    torch.testing.assert_close(by_row.sum(0), exact, rtol=1e-6, atol=1e-9)


def test_gates_reach_the_feed_forward_and_the_embeddings(family):
    lm = model(family)
    ask = reading(lm)
    gates = {
        "mlp_out": torch.ones(LAYERS, 1, dtype=torch.float64, requires_grad=True),
        "embeddings": torch.ones(1, 1, dtype=torch.float64, requires_grad=True),
    }
    indices = level(ask)[:2]

    def value():
        return lm.run_rows(ask, indices, gates=gates).values.sum()

    exact = torch.autograd.grad(value(), list(gates.values()))
    step, tolerance = (2e-3, 2e-2) if family in UP_CASTING else (1e-3, 1e-3)
    scale = exact[0].abs().max()
    for gate, gradient in zip(gates.values(), exact, strict=True):
        for place in range(len(gate)):
            with torch.no_grad():
                gate[place] += step
                up = value()
                gate[place] -= 2 * step
                down = value()
                gate[place] += step
            rough = (up - down) / (2 * step)
            assert (rough - gradient[place]).abs() < tolerance * max(scale, gradient[place].abs())
    assert (exact[0].abs() > 0.01 * scale).sum() >= 2
    assert scale > 1e-2


def test_layers_that_are_computed_again_give_the_same_gradient_in_less_memory(family):
    full = model(family).edited(HeadScale([Site("head_out", 1, 2)], 0.5))
    ask = reading(full)
    indices = level(ask)[:6]

    def backward(lm):
        gates = {
            "head_out": torch.ones(
                len(indices), LAYERS, HEADS, dtype=torch.float64, requires_grad=True
            ),
            "mlp_out": torch.ones(LAYERS, 1, dtype=torch.float64, requires_grad=True),
            "embeddings": torch.ones(1, 1, dtype=torch.float64, requires_grad=True),
        }
        held = 0

        def stored(tensor):
            nonlocal held
            held += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(stored, lambda tensor: tensor):
            values = lm.run_rows(ask, indices, gates=gates).values
        return values, torch.autograd.grad(values.sum(), list(gates.values())), held

    values, exact, held = backward(full)
    again, result, less = backward(replace(full, recompute=True))
    assert torch.equal(again, values)
    for single, other in zip(result, exact, strict=True):
        torch.testing.assert_close(single, other, rtol=1e-12, atol=1e-14)
    assert less < 0.7 * held


def test_a_value_head_feeds_its_own_query_heads(family):
    """Fused and grouped layouts: emptying kv head 1 empties exactly the heads it serves."""
    lm = model(family)
    anatomy = lm.layout
    everything = torch.eye(anatomy.head_dim, dtype=torch.float64)
    site = Site("head_out", 1)
    before = lm.read(TEXTS, [site], pooling="mean")[site].view(len(TEXTS), HEADS, -1)
    emptied = lm.edited(Projection(Site("value", 1, 1), everything))
    after = emptied.read(TEXTS, [site], pooling="mean")[site].view(len(TEXTS), HEADS, -1)
    group = anatomy.heads // anatomy.kv_heads
    served = list(range(group, 2 * group))
    others = [head for head in range(HEADS) if head not in served]
    assert after[:, served].abs().max() < 1e-12
    torch.testing.assert_close(after[:, others], before[:, others], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stream", ["query", "key"])
def test_queries_and_keys_move_their_own_heads_only(family, stream):
    lm = model(family)
    site = Site("head_out", 1)
    before = lm.read(TEXTS, [site], pooling="mean")[site].view(len(TEXTS), HEADS, -1)
    everything = torch.eye(lm.layout.head_dim, dtype=torch.float64)
    moved = lm.edited(Projection(Site(stream, 1, 1), everything))
    after = moved.read(TEXTS, [site], pooling="mean")[site].view(len(TEXTS), HEADS, -1)
    group = lm.layout.heads // lm.layout.head_count(stream)
    moved_heads = set(range(group, 2 * group))
    for head in range(HEADS):
        change = (after[:, head] - before[:, head]).abs().max()
        assert (change > 1e-6) == (head in moved_heads), (head, change)


@pytest.mark.parametrize("stream", STREAMS)
def test_every_stream_acts_and_is_read_as_it_was_left(family, stream):
    kind = "classifier" if stream == "pooled" else "language"
    lm = model(family, kind=kind)
    site = Site(
        stream, 0 if stream in LAYERLESS_STREAMS else 1, 1 if stream in PER_HEAD_STREAMS else None
    )
    edit = projection(lm, site, k=2)
    edited = lm.edited(edit)
    left = edited.read(TEXTS, [site], pooling="mean")[site]
    assert (left @ edit.basis.T).abs().max() < 1e-9
    base = lm.read(TEXTS, [site], pooling="mean")[site]
    assert (base @ edit.basis.T).abs().max() > 1e-3
    if kind == "classifier":
        assert (edited.classify(LEVEL) - lm.classify(LEVEL)).abs().max() > 1e-6
    else:
        ask = reading(lm)
        assert (edited.run(ask) - lm.run(ask)).abs().max() > 1e-6


def bakeable(lm, kind):
    """Edits that plain weights can carry, as (name, edits)."""
    layers = range(LAYERS) if lm.layout.family.shares_layer_weights else (1,)
    yield "heads", [HeadScale([Site("head_out", layer, 2) for layer in layers], -0.5)]
    for stream in PER_HEAD_STREAMS:
        if stream in lm.layout.family.position_shared_streams:
            continue
        yield stream, [projection(lm, Site(stream, layer, 1), k=2) for layer in layers]
        yield (
            f"whole {stream}",
            [projection(lm, Site(stream, layer)) for layer in layers]
            + [projection(lm, Site(stream, layer, 0), k=3) for layer in layers],
        )
    if is_linear(lm.layout.hook_point("mlp_out", 0).module):  # Gemma has a norm there
        yield "mlp", [projection(lm, Site("mlp_out", layer), k=2) for layer in layers]
    if kind == "classifier":
        yield "pooled", [projection(lm, Site("pooled"), weights=torch.tensor([0.4]))]
        if lm.layout.model_class.first_position_reader:
            yield "last", [projection(lm, Site("block_out", LAYERS - 1), tokens="first")]


@pytest.mark.parametrize("kind", ["language", "classifier"])
def test_hooked_is_baked(family, kind):
    lm = model(family, kind=kind)

    def output(model):
        return model.classify(LEVEL) if kind == "classifier" else model.run(reading(model))

    base, before = output(lm), state(lm)
    for name, edits in bakeable(lm, kind):
        edited = lm.edited(*edits)
        hooked = output(edited)
        assert (hooked - base).abs().max() > 1e-6, name
        torch.testing.assert_close(output(edited.merged()), hooked, rtol=1e-5, atol=1e-7, msg=name)
    together = lm.edited(*(edit for _, edits in bakeable(lm, kind) for edit in edits))
    torch.testing.assert_close(output(together.merged()), output(together), rtol=1e-5, atol=1e-7)
    after = state(lm)
    assert all(torch.equal(before[name], after[name]) for name in before)


def erasure(lm, site, **options):
    basis = projection(lm, site, k=2).basis
    mean = torch.linspace(-1, 2, basis.shape[1], dtype=torch.float64)
    return Erasure(site, left=basis, right=basis, mean=mean, **options)


@pytest.mark.parametrize("make", [erasure, shift])
@pytest.mark.parametrize("kind", ["language", "classifier"])
def test_an_affine_edit_is_baked_unless_there_is_no_bias(family, kind, make):
    lm = model(family, kind=kind)
    layers = range(LAYERS) if lm.layout.family.shares_layer_weights else (1,)
    sites = [Site(stream, layer, 1) for stream in PER_HEAD_STREAMS for layer in layers]
    sites += [Site("mlp_out", layer) for layer in layers]
    options = {}
    if kind == "classifier":
        sites.append(Site("pooled"))
        if lm.layout.model_class.first_position_reader:
            sites.append(Site("block_out", LAYERS - 1))
            options[sites[-1]] = {"tokens": "first"}

    def output(model):
        return model.classify(LEVEL) if kind == "classifier" else model.run(reading(model))

    for stream in dict.fromkeys(site.stream for site in sites):
        here = [site for site in sites if site.stream == stream]
        edited = lm.edited(*(make(lm, site, **options.get(site, {})) for site in here))
        module = lm.layout.hook_point(stream, here[0].layer).module
        if stream in lm.layout.family.position_shared_streams:
            refused = "applied to position embeddings"
        elif stream == "mlp_out" and not is_linear(module):
            refused = "a norm lies between"
        else:
            refused = is_linear(module) and module.bias is None and "the weights have no bias"
        if refused:
            with pytest.raises(NotMergeableError, match=refused):
                edited.merged()
        else:
            torch.testing.assert_close(
                output(edited.merged()), output(edited), rtol=1e-5, atol=1e-7, msg=stream
            )


def test_what_cannot_be_baked_is_refused_by_name(family):
    lm = model(family)
    refused = [
        projection(lm, Site("block_out", 1)),
        shift(lm, Site("block_out", 1)),
        conditional_shift(lm, Site("head_out", 1, 0)),
        projection(lm, Site("block_out", LAYERS - 1)),
        projection(lm, Site("embeddings")),
        projection(lm, Site("query", 1, 0), tokens="first"),
    ]
    refused += [
        projection(lm, Site(stream, 1, 0)) for stream in lm.layout.family.position_shared_streams
    ]
    if not is_linear(lm.layout.hook_point("mlp_out", 1).module):
        refused.append(projection(lm, Site("mlp_out", 1)))
    if lm.layout.family.shares_layer_weights:
        refused.append(HeadScale([Site("head_out", 1, 0)], 0))
    for edit in refused:
        with pytest.raises(NotMergeableError, match="cannot be merged into plain weights") as error:
            lm.edited(edit).merged()
        assert str(edit.sites[0]) in error.value.problem
        assert "save_edits" in error.value.hint


def test_the_attention_row_is_eager_attention(family):
    lm = model(family)
    encoded = lm.tokens.encode(TEXTS)
    eager = getattr(transformers, language_class(family).name).from_pretrained(
        zoo.folder(family, language_class(family).name),
        attn_implementation="eager",
        dtype=torch.float64,
    )
    rows = lm.attention_row(TEXTS, SPANS)
    for single, span, row in zip(encoded, SPANS, rows, strict=True):
        with torch.no_grad():
            full = eager(torch.tensor([single.row.ids]), output_attentions=True).attentions
        assert len(full) == LAYERS
        expected = torch.stack([layer[0] for layer in full])[
            :, :, list(single.positions_in_span(span))
        ].mean(2)
        assert row.shape == expected.shape == (LAYERS, HEADS, len(single.row.ids))
        torch.testing.assert_close(row, expected.to(row), rtol=1e-5, atol=1e-7)


def test_resumed_is_whole(family):
    lm = model(family)
    ask = reading(lm)
    indices = level(ask)
    base = lm.edited(projection(lm, Site("block_out", 0)))
    with torch.no_grad():
        stored = base.run_rows(ask, indices, cache_layers=[1, 2]).layer_inputs
        assert set(stored) == {1, 2}
        for layer, prefix in stored.items():
            assert torch.equal(
                base.run_rows(ask, indices, resume_from=prefix).values,
                base.run_rows(ask, indices).values,
            )
            for later in range(layer, LAYERS):
                edited = base.edited(
                    HeadScale([Site("head_out", later, 1)], 0),
                    projection(lm, Site("block_out", later)),
                )
                full = edited.run_rows(ask, indices).values
                resumed = edited.run_rows(ask, indices, resume_from=prefix).values
                assert torch.equal(resumed, full)
                assert not torch.equal(full, base.run_rows(ask, indices).values)
        again = base.run_rows(ask, indices, resume_from=stored[1], cache_layers=[2]).layer_inputs[2]
        assert torch.equal(
            base.run_rows(ask, indices, resume_from=again).values,
            base.run_rows(ask, indices).values,
        )
    with pytest.raises(Exception, match="with other edits below that layer"):
        lm.run_rows(ask, indices, resume_from=stored[2])


def test_nothing_is_left_behind(family):
    lm = model(family)
    ask = reading(lm)
    clean, before = traces(lm), state(lm)
    edited = lm.edited(HeadScale([Site("head_out", 1, 1)], 0), projection(lm, Site("block_out", 2)))
    edited.run(ask)
    edited.attention_row(TEXTS, SPANS)
    assert traces(lm) == clean
    prefix = edited.run_rows(ask, [0], cache_layers=[1]).layer_inputs[1]

    class Broken(Exception):
        pass

    def breaks(*args):
        raise Broken

    last = lm.layout.blocks[-1].register_forward_hook(breaks)
    with pytest.raises(Broken):
        edited.run(ask)
    with pytest.raises(Broken):
        edited.run_rows(ask, [0], resume_from=prefix)
    with pytest.raises(Broken):
        edited.attention_row(TEXTS, SPANS)
    last.remove()
    assert traces(lm) == clean
    after = state(lm)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_edit_that_is_passed_by_is_an_error(family):
    lm = model(family)
    ask = reading(lm)
    edited = lm.edited(HeadScale([Site("head_out", 1, 1)], 0))
    block = lm.layout.blocks[1]
    path = lm.layout.family.attention_output
    real = block.get_submodule(path)

    class Inlined(torch.nn.Module):
        """The same map, called where no hook of ours can see it."""

        def __init__(self):
            super().__init__()
            self.weight, self.bias = real.weight, real.bias

        def __call__(self, x):
            return real.forward(x)

    parent = block.get_submodule(path.rpartition(".")[0])
    setattr(parent, path.rpartition(".")[2], Inlined())
    try:
        with pytest.raises(EditHadNoEffectError, match=r"never reaches head_out 1"):
            edited.run(ask)
    finally:
        setattr(parent, path.rpartition(".")[2], real)
    edited.run(ask)


def test_batch_size_order_and_padding_change_nothing(family):
    lm = model(family, dtype="float32")
    expected = lm.embed(TEXTS, SPANS)
    scale = expected.abs().max()
    for size in (1, 2, 7):
        other = lm.with_batch_size(size).embed(TEXTS, SPANS)
        assert (other - expected).abs().max() / scale < 1e-5
    order = [2, 0, 3, 1]
    shuffled = lm.embed([TEXTS[i] for i in order], [SPANS[i] for i in order])
    assert torch.equal(shuffled, expected[order])
    scored = lm.log_prob(TEXTS)
    alone = torch.cat([lm.with_batch_size(1).log_prob([text]).value for text in TEXTS])
    assert ((alone - scored.value).abs() / scored.value.abs()).max() < 1e-5
