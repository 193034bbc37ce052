"""Words of several tokens in one row with branches, beside a row for each of them."""

import pytest
import torch
import zoo

from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.inputs import token_tree as branches
from levelhead.models.loading.load import load
from levelhead.models.queries import cloze
from levelhead.models.queries.query import HiddenStates, LogProbs, Query
from levelhead.models.sites import Site

STEMS = ((5, 6, 7, 8), (9, 6, 11, 12, 13, 14))
WORDS = ((10,), (20, 21), (20, 22, 23), (24, 21, 20), (25, 26, 27, 28))
CAUSAL = [name for name, family in FAMILIES.items() if family.is_causal]
MEASURED = ["gpt2", "gpt_neox", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3"]
WINDOWED, WIDE = ("mistral", "gemma3_text", "phi3"), {"sliding_window": 64}
"""Families whose layers may see a few tokens only; here: all of these."""


def queries_of(lm, stem, *, apart):
    """Rows, targets level."""
    placed = [
        cloze.WordPlacement(
            cloze.TokenRow((*stem, *word), None), range(len(stem), len(stem) + len(word))
        )
        for word in WORDS
    ]
    if apart:
        return cloze._separate_rows(stem, range(len(WORDS)), WORDS)
    return cloze.build_causal_rows(lm, placed)


def values(lm, *, apart):
    pairs = [
        (i, *item) for i, stem in enumerate(STEMS) for item in queries_of(lm, stem, apart=apart)
    ]
    most = max(len(target.ids) for _, _, subset in pairs for target in subset)
    level = tuple(
        tuple(
            cloze.ScoredPosition(
                item.position,
                item.ids + item.ids[-1:] * (most - len(item.ids)),
                item.columns + (len(WORDS),) * (most - len(item.ids)),
            )
            for item in subset
        )
        for _, _, subset in pairs
    )
    rows, items = tuple(row for _, row, _ in pairs), tuple(item for item, _, _ in pairs)
    result = lm.run(Query(rows, LogProbs(level, len(WORDS) + 1), items))
    return rows, result[:, : len(WORDS)]


def model(name, **config):
    head = next(row.name for row in FAMILIES[name].classes if row.causal)
    return load(zoo.folder(name, head, **config), dtype="float64")


@pytest.mark.parametrize(
    ("name", "config"), [*((name, {}) for name in CAUSAL), *((name, WIDE) for name in WINDOWED)]
)
def test_one_row_for_all_words_says_what_a_row_for_each_says(name, config):
    lm = model(name, **config)
    if config:
        assert len(values(lm, apart=False)[0]) == len(STEMS)
    basis = torch.linalg.qr(torch.randn(lm.layout.site_width(Site("block_out", 0)), 1).double()).Q.T
    edits = (
        HeadScale([Site("head_out", 0, 1)], 0.0),
        Projection(Site("block_out", 0), basis, tokens="first"),
        Projection(Site("block_out", 1), basis),
    )
    for item in (lm, lm.edited(*edits)):
        _, slow = values(item, apart=True)
        _, fast = values(item, apart=False)
        torch.testing.assert_close(fast, slow, rtol=0, atol=1e-10)
    assert not torch.allclose(values(lm.edited(*edits), apart=False)[1], values(lm, apart=False)[1])


@pytest.mark.parametrize("name", CAUSAL)
def test_which_families_have_branches(name):
    """All but those that take no such mask; windows that are shorter than a row prevent it, too."""
    lm = model(name)
    window = getattr(lm.layout.model.config, "sliding_window", None) or 99
    rows, _ = values(lm, apart=False)
    few = name in MEASURED and window >= len(STEMS[1]) + 6
    assert len(rows) == (2 if few else 2 * len(WORDS))
    assert bool(branches.max_tree_length(lm.layout, lm.tokens)) == (name in MEASURED)


def test_rows_with_branches_share_a_batch_with_plain_and_shorter_ones():
    """In float32, where rows of several lengths share a batch: padding is not seen."""
    lm = load(model("llama").identity.checkpoint.folder, batch_size=8)
    shared = [branches.build_token_tree(stem, WORDS)[0] for stem in STEMS]
    rows = (
        shared[1],
        shared[0],
        cloze.TokenRow(STEMS[1][:2], None),
        cloze.TokenRow(STEMS[0] * 3, None),
    )
    ends = HiddenStates(tuple((len(row.ids) - 1,) for row in rows))
    assert len(list(lm.iterate_batches(Query(rows, ends)))) == 1
    alone = torch.cat(
        [
            lm.run(Query((row,), HiddenStates((token,))))
            for row, token in zip(rows, ends.tokens, strict=True)
        ]
    )
    torch.testing.assert_close(lm.run(Query(rows, ends)), alone, rtol=0, atol=1e-5)
    mask, places = branches.tree_attention_mask(rows, 13)
    assert mask.any(-1).all()
    assert places[2].tolist() == list(range(13))


def test_no_branches_where_the_mask_would_be_another():
    lm = model("llama")
    lm.layout.model.config._attn_implementation = "eager"
    assert branches.max_tree_length(lm.layout, lm.tokens) == 0
