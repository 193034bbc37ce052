"""Value-weighted attention over every row of FAMILIES, against a loop written out."""

import functools

import pytest
import torch
import transformers
import zoo

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.loading.load import load
from levelhead.models.queries.query import HiddenStates, Query, _value_norms
from levelhead.models.sites import Site

TEXTS = ["The nurse works as a doctor .", "a quick woman was here and he said that she works"]
SPANS = [(4, 9), (8, 13)]
LAYERS, HEADS = 3, 4


def class_name(family):
    return next(row.name for row in FAMILIES[family].classes if row.vocabulary)


@functools.cache
def model(family):
    return load(zoo.folder(family, class_name(family)), dtype="float64")


@functools.cache
def eager(family):
    """The same weights in transformers alone, with its own attention."""
    return getattr(transformers, class_name(family)).from_pretrained(
        zoo.folder(family, class_name(family)), attn_implementation="eager", dtype=torch.float64
    )


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def test_weighted_attention_is_the_norm_of_what_is_moved(family):
    lm, base = model(family), eager(family)
    rows = lm.attention_row(TEXTS, SPANS, weighted=True)
    for text, span, row in zip(TEXTS, SPANS, rows, strict=True):
        (single,) = lm.tokens.encode([text])
        (query,) = single.positions_in_span(span)
        with torch.no_grad():
            full = base(torch.tensor([single.row.ids]), output_attentions=True).attentions
        tokens = len(single.row.ids)
        assert row.shape == (2, LAYERS, HEADS, tokens)
        kv = lm.layout.kv_heads
        for layer in range(LAYERS):
            out = lm.layout.blocks[layer].get_submodule(lm.layout.family.attention_output)
            weight = out.weight.T if family == "gpt2" else out.weight  # [width, heads * size]
            size = weight.shape[1] // HEADS
            for head in range(HEADS):
                site = Site("value", layer, head * kv // HEADS)
                for j in range(tokens):
                    # What reaches the stream from token j, if all of the attention were on it.
                    value = at(lm, text, site, j)
                    moved = weight[:, head * size : (head + 1) * size] @ value
                    a = full[layer][0, head, query, j]
                    assert float(row[0, layer, head, j]) == pytest.approx(float(a), abs=1e-6)
                    expected = float((a * moved).norm())
                    assert float(row[1, layer, head, j]) == pytest.approx(expected, rel=1e-4)


@functools.cache
def _values(family_model, text, site):
    (single,) = family_model.tokens.encode([text])
    places = [[i] for i in range(len(single.row.ids))]
    return torch.stack(
        [
            family_model.run(Query((single.row,), HiddenStates((tuple(place),), (site,))))[0]
            for place in places
        ]
    )


def at(lm, text, site, j):
    return _values(lm, text, site)[j]


def test_without_weights_nothing_changes(family):
    lm = model(family)
    base = lm.attention_row(TEXTS, SPANS)
    both = lm.attention_row(TEXTS, SPANS, weighted=True)
    for single, two in zip(base, both, strict=True):
        assert torch.equal(single, two[0])


def test_values_are_as_edits_have_left_them():
    lm = model("bert")
    size = lm.layout.head_dim
    gone = Projection(Site("value", 0, 1), torch.eye(size, dtype=torch.float64))
    (row,) = lm.edited(gone).attention_row(TEXTS[:1], SPANS[:1], weighted=True)
    (base,) = lm.attention_row(TEXTS[:1], SPANS[:1], weighted=True)
    assert row[1, 0, 1].abs().max() < 1e-12
    assert torch.allclose(row[1, 0, [0, 2, 3]], base[1, 0, [0, 2, 3]])
    scaled = lm.edited(HeadScale([Site("head_out", 0, 1)], 0))
    (later,) = scaled.attention_row(TEXTS[:1], SPANS[:1], weighted=True)
    assert torch.allclose(later[1, 0], base[1, 0])  # said in the docstring


def test_weights_that_are_not_in_memory_are_refused():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    out = lm.layout.blocks[0].get_submodule(lm.layout.family.attention_output)
    values = torch.zeros(1, 2, HEADS, lm.layout.head_dim)
    out.weight = torch.nn.Parameter(out.weight.to("meta"))
    with pytest.raises(LevelheadError, match="not in memory") as error:
        _value_norms(lm.layout, 0, values)
    assert "without offloading" in error.value.hint
