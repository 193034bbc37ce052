"""Sweeps of random grids of edits, on every family, against each edited model by itself."""

import functools
from itertools import product

import pytest
import torch
import zoo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.forward.edit_sweep import can_have_effect, run_edit_sets
from levelhead.models.forward.forward_pass import EditHadNoEffectError
from levelhead.models.forward.last_layer_cache import can_restrict_tokens
from levelhead.models.loading.load import load
from levelhead.models.queries import build as queries
from levelhead.models.sites import LAYERLESS_STREAMS, PER_HEAD_STREAMS, STREAMS, Site

TEXTS = [
    "The nurse works as a doctor .",
    "A man",
    "she said that he was tired and there was a river . the lazy doctor is here",
    "a quick woman was here",
]
SPANS = [(4, 9), (2, 5), (0, 3), (2, 7)]
PAIRS = [("The nurse works", text) for text in TEXTS]
LAYERS, HEADS = 3, 4
THREE = ("bert", "llama", "albert")
"""An encoder, a decoder, and one whose layers share their weights."""


@functools.cache
def model(family, kind):
    row = next(row for row in FAMILIES[family].classes if getattr(row, kind))
    return load(zoo.folder(family, row.name))


def readings(family):
    """Of every head that a family has, and of words' vectors."""
    for kind in ("vocabulary", "classifier", "next_sentence"):
        if any(getattr(row, kind) for row in FAMILIES[family].classes):
            lm = model(family, kind)
            if kind == "vocabulary":
                yield lm, queries.build_lm_hidden_states_query(lm, TEXTS, [], SPANS, None)
                ask = (
                    queries.build_lm_causal_log_prob_query
                    if lm.is_causal
                    else queries.build_lm_pseudo_log_likelihood_query
                )
                yield lm, ask(lm, TEXTS, None)[0]
            elif kind == "classifier":
                yield lm, queries.build_lm_classify_query(lm, TEXTS)
            else:
                yield lm, queries.build_lm_next_sentence_query(lm, PAIRS)


def direction(width, k, seed):
    generator = torch.Generator().manual_seed(seed)
    given = torch.randn(width, k, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(given).Q.T.contiguous()


@st.composite
def edits(draw, lm):
    stream = draw(st.sampled_from(STREAMS))
    if stream == "pooled" and not (
        lm.layout.model_class.classifier or lm.layout.model_class.next_sentence
    ):
        stream = "block_out"
    layer = 0 if stream in LAYERLESS_STREAMS else draw(st.integers(0, LAYERS - 1))
    head = (
        draw(st.integers(0, lm.layout.head_count(stream) - 1))
        if stream in PER_HEAD_STREAMS
        else None
    )
    site = Site(stream, layer, head)
    if stream == "head_out" and draw(st.booleans()):
        return HeadScale([site], draw(st.sampled_from([0.0, 2.0])))
    k = draw(st.integers(1, 2))
    weights = torch.tensor([0.7, 0.2][:k]) if draw(st.booleans()) else None
    tokens = draw(st.sampled_from(["all", "first"]))
    basis = direction(lm.layout.site_width(site), k, draw(st.integers(0, 2)))
    return Projection(site, basis, weights=weights, tokens=tokens)


def compared(lm, reading, edit_sets):
    acting = [item for item in edit_sets if not item or can_have_effect(reading, lm, item)]
    result = run_edit_sets(lm, reading, [(), *acting])
    for subset, answer in zip([(), *acting], result, strict=True):
        naive = lm.edited(*subset).run(reading)
        if can_restrict_tokens(lm.layout, reading):
            # The log-probability of a text is a sum of many.
            torch.testing.assert_close(answer, naive, rtol=1e-6, atol=1e-5)
        else:
            assert torch.equal(answer, naive)


@pytest.mark.parametrize("family", THREE)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_grid_is_that_of_each_model_by_itself(family, data):
    lm, reading = data.draw(st.sampled_from(list(readings(family))))
    pool = data.draw(st.lists(edits(lm), min_size=2, max_size=5))
    grid = st.lists(st.lists(st.sampled_from(pool), max_size=4).map(tuple), min_size=1, max_size=8)
    compared(lm, reading, data.draw(grid))


def nested(lm):
    """The levels of Dawkins et al. 2024 in small: penultimate layer, last layer, classifier."""
    width, last = lm.layout.width, LAYERS - 1
    token = "first" if lm.layout.model_class.first_position_reader else "all"
    inner = [Projection(Site("block_out", last - 1), direction(width, k, 0)) for k in (1, 2)]
    outer = [Projection(Site("block_out", last), direction(width, k, 1), tokens=token)
             for k in (1, 2)]  # fmt: skip
    sets = [(item,) for item in outer] + list(product(inner, outer))
    keys = Projection(Site("key", last - 1, 1), direction(lm.layout.head_dim, 1, 2))
    sets += [(keys, *item) for item in product(inner, outer)]
    if lm.layout.model_class.classifier or lm.layout.model_class.next_sentence:
        size = lm.layout.site_width(Site("pooled"))
        ends = [Projection(Site("pooled"), direction(size, 1, seed)) for seed in (3, 4)]
        sets = [(end,) for end in ends] + [(*item, end) for item in sets for end in ends]
    return sets


@pytest.mark.parametrize("family", FAMILIES)
def test_nested_levels_are_those_of_each_model_by_itself(family):
    for lm, reading in readings(family):
        compared(lm, reading, nested(lm))


@pytest.mark.parametrize(
    "family", [name for name, row in FAMILIES.items() if row.keys_linear_in_input]
)
def test_the_last_layer_is_run_for_the_first_token_alone(family):
    """And equal to 1e-12 in float64: it is the same algebra."""
    row = next(row for row in FAMILIES[family].classes if row.classifier)
    lm = load(zoo.folder(family, row.name), dtype="float64")
    reading = queries.build_lm_classify_query(lm, TEXTS)
    assert can_restrict_tokens(lm.layout, reading)
    seen = []
    hook = lm.layout.blocks[-1].register_forward_hook(
        lambda module, args, output: seen.append(
            (output[0] if isinstance(output, tuple) else output).shape[1]
        )
    )
    sets = nested(lm)
    result = run_edit_sets(lm, reading, sets)
    hook.remove()
    assert 1 in seen
    for subset, answer in zip(sets, result, strict=True):
        naive = lm.edited(*subset).run(reading)
        torch.testing.assert_close(answer, naive, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["states", "masking"])
@pytest.mark.parametrize(
    "family", [name for name, row in FAMILIES.items() if row.keys_linear_in_input]
)
def test_the_last_layer_is_run_for_the_tokens_alone_that_are_read(family, kind):
    row = next(row for row in FAMILIES[family].classes if row.vocabulary)
    lm = load(zoo.folder(family, row.name), dtype="float64")
    if kind == "states":
        reading = queries.build_lm_hidden_states_query(lm, TEXTS, [], SPANS, None)
    else:
        reading = queries.build_lm_pseudo_log_likelihood_query(lm, TEXTS, None)[0]
    assert can_restrict_tokens(lm.layout, reading)
    out, seen = lm.layout.hook_point("head_out", LAYERS - 1).module, []
    hook = out.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[1]))
    last = LAYERS - 1
    head = HeadScale([Site("head_out", last, 0)], 0)
    first = Projection(
        Site("head_out", last, 1), direction(lm.layout.head_dim, 1, 0), tokens="first"
    )
    keys = Projection(Site("key", last, 1), direction(lm.layout.head_dim, 1, 0))
    sets = [(), (head,), (first, head), (keys,)]
    sets += [item for item in nested(lm) if can_have_effect(reading, lm, item)]
    result = run_edit_sets(lm, reading, sets)
    hook.remove()
    most = max(map(len, reading.readout.read_positions))
    assert most in seen
    if kind == "states":
        assert most < 4 < max(seen)  # edits of first tokens and of keys need all
    for subset, answer in zip(sets, result, strict=True):
        naive = lm.edited(*subset).run(reading)
        torch.testing.assert_close(answer, naive, rtol=0, atol=1e-12)


def test_where_most_tokens_are_read_the_last_layer_is_run_for_all():
    lm = model("bert", "vocabulary")
    assert not can_restrict_tokens(
        lm.layout, queries.build_lm_hidden_states_query(lm, TEXTS, [], None, "mean")
    )
    assert not can_restrict_tokens(lm.layout, queries.build_lm_attention_query(lm, TEXTS, SPANS))


def test_each_layer_input_is_computed_once():
    lm = model("bert", "next_sentence").with_batch_size(99)
    reading = queries.build_lm_next_sentence_query(lm, PAIRS)
    real = [0] * LAYERS
    blocks = lm.layout.blocks
    hooks = [
        block.attention.register_forward_hook(
            lambda module, args, output, i=i: real.__setitem__(i, real[i] + 1)
        )
        for i, block in enumerate(blocks)
    ]
    run_edit_sets(lm, reading, [(), *nested(lm)])
    for hook in hooks:
        hook.remove()
    # Keys edited or not in the penultimate layer; behind it no projection or one of two.
    assert real == [1, 2, 1 + 2 + 2]


def test_what_a_model_answers_does_not_depend_on_the_others():
    lm = model("bert", "next_sentence")
    reading, sets = queries.build_lm_next_sentence_query(lm, PAIRS), nested(lm)
    full = run_edit_sets(lm, reading, sets)
    for i in (0, 3, len(sets) - 1):
        assert torch.equal(run_edit_sets(lm, reading, [sets[i]])[0], full[i])
    assert torch.equal(run_edit_sets(lm, reading, sets[::-1]), full.flip(0))


def test_what_is_pooled_is_reached_by_the_first_token():
    lm = load(zoo.folder("bert", "BertModel"))
    reading = queries.build_lm_hidden_states_query(lm, TEXTS, [Site("pooled")], SPANS, None)
    inner = Projection(Site("block_out", 0), direction(lm.layout.width, 1, 0))
    outer = Projection(
        Site("block_out", LAYERS - 1), direction(lm.layout.width, 1, 1), tokens="first"
    )
    assert can_have_effect(reading, lm, (outer,))
    compared(lm, reading, [(inner,), (inner, outer), (outer,)])


def test_what_lies_below_the_edit_is_not_reached():
    lm = model("bert", "next_sentence")
    reading = queries.build_lm_hidden_states_query(
        lm, TEXTS, [Site("block_out", 0), Site("key", 1, 0)], SPANS, None
    )
    above = HeadScale([Site("head_out", 1, 0)], 0)
    assert not can_have_effect(reading, lm, (above,))
    assert can_have_effect(reading, lm, (HeadScale([Site("head_out", 0, 0)], 0),))
    with pytest.raises(EditHadNoEffectError, match="acts after everything that is read"):
        lm.edited(above).run(reading)
    # Told not to refuse, it gives what the model as it is says.
    assert torch.equal(
        run_edit_sets(lm, reading, [(above,)], raise_on_no_effect=False)[0], lm.run(reading)
    )


def test_offloaded_weights_are_not_taken_for_weights(tmp_path):
    """On meta they hold whatever lies in memory."""
    folder = zoo.folder("bert", "BertForPreTraining")
    parts = {"bert.embeddings": "cpu", "bert.encoder": "disk", "bert.pooler": "cpu", "cls": "cpu"}
    lm = load(folder, device_map=parts)
    full = load(folder)
    reading = queries.build_lm_next_sentence_query(lm, PAIRS)
    assert not can_restrict_tokens(lm.layout, reading)
    sets = nested(full)
    torch.testing.assert_close(
        run_edit_sets(lm, reading, sets), run_edit_sets(full, reading, sets), rtol=0, atol=1e-5
    )


def test_an_edit_behind_all_that_is_read_is_refused():
    lm = model("bert", "next_sentence")
    reading = queries.build_lm_hidden_states_query(lm, TEXTS, [], SPANS, None)
    end = Projection(Site("pooled"), direction(lm.layout.width, 1, 0))
    first = Projection(
        Site("block_out", LAYERS - 1), direction(lm.layout.width, 1, 0), tokens="first"
    )
    for edit in (end, first):
        assert not can_have_effect(reading, lm, (edit,))
        with pytest.raises(EditHadNoEffectError, match="acts after everything that is read"):
            run_edit_sets(lm, reading, [(edit,)])
        with pytest.raises(EditHadNoEffectError, match="acts after everything that is read"):
            lm.edited(edit).run(reading)
    with pytest.raises(Exception, match="the list of edit sets is empty"):
        run_edit_sets(lm, reading, [])
