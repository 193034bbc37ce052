"""Affine edits become weights and biases, exactly, or are refused by name."""

import pytest
import torch
import zoo
from shifts import conditional_shift, shift

from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.merge import NotMergeableError
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

TEXTS = ["the nurse works as a doctor .", "a man", "she said that he was tired"]
PAIRS = [("the nurse works", "she was tired"), ("a man", "he said that he was here .")]
LAST, INNER = Site("block_out", 2), Site("block_out", 1)


def draw_sample(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def projection(lm, site, k=1, **options):
    return Projection(
        site, torch.linalg.qr(draw_sample(lm.layout.site_width(site), k)).Q.T, **options
    )


def erasure(lm, site, k=2, **options):
    width = lm.layout.site_width(site)
    right = torch.linalg.qr(draw_sample(width, k)).Q.T
    left = right + 0.1 * draw_sample(k, width, seed=1)
    left = torch.linalg.solve((right @ left.T).T, left)
    return Erasure(site, left=left, right=right, mean=3 * draw_sample(width, seed=2), **options)


def shifted(lm, site, k=1, **options):
    return shift(lm, site, seed=k, **options)


def close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def levels(lm, make):
    """Every level of a model that plain weights can carry, for one kind of edit."""
    heads = {stream: lm.layout.head_count(stream) for stream in ("query", "key", "value")}
    attention = [make(lm, Site(s, 1, i), k=1) for s, n in heads.items() for i in range(n)]
    return {
        "sent": [make(lm, Site("pooled"))],
        "last": [make(lm, LAST, tokens="first"), make(lm, Site("pooled"))],
        "attention": attention,
        "heads": [make(lm, Site("head_out", 1, 2)), make(lm, Site("head_out", 0))],
        "mlp": [make(lm, Site("mlp_out", 1))],
        "all": [
            *attention,
            make(lm, Site("mlp_out", 1)),
            HeadScale([Site("head_out", 1, 0)], 0.5),
            make(lm, LAST, tokens="first"),
            make(lm, Site("pooled")),
        ],
    }


@pytest.mark.parametrize("make", [projection, erasure, shifted])
@pytest.mark.parametrize("level", ["sent", "last", "attention", "heads", "mlp", "all"])
def test_baked_is_hooked_for_next_sentences(level, make):
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    edited = lm.edited(*levels(lm, make)[level])
    hooked = edited.next_sentence(PAIRS)
    assert (hooked - lm.next_sentence(PAIRS)).abs().max() > 1e-3
    close(edited.merged().next_sentence(PAIRS), hooked)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("bert", "BertForSequenceClassification"),
        ("roberta", "RobertaForSequenceClassification"),
        ("distilbert", "DistilBertForSequenceClassification"),
    ],
)
def test_baked_is_hooked_for_classes(family, name):
    lm = load(zoo.folder(family, name))
    for level, edits in [*levels(lm, erasure).items(), *levels(lm, shifted).items()]:
        edited = lm.edited(*edits)
        hooked = edited.classify(TEXTS)
        assert (hooked - lm.classify(TEXTS)).abs().max() > 1e-4, level
        close(edited.merged().classify(TEXTS), hooked)


def test_a_fused_projection_carries_the_constant_at_its_own_columns():
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    for stream in ("query", "key", "value"):
        edited = lm.edited(
            erasure(lm, Site(stream, 1, 2)),
            erasure(lm, Site(stream, 2), k=3),
            shift(lm, Site(stream, 2, 1), strength=0.5),
        )
        hooked = edited.log_prob(TEXTS).value
        assert (hooked - lm.log_prob(TEXTS).value).abs().max() > 1e-3
        close(edited.merged().log_prob(TEXTS).value, hooked)


def test_edits_of_one_place_fold_in_their_order():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    single, other = erasure(lm, Site("pooled")), projection(lm, Site("pooled"), k=3)
    for edits in ((single, other), (other, single)):
        edited = lm.edited(*edits)
        close(edited.merged().next_sentence(PAIRS), edited.next_sentence(PAIRS))
    assert not torch.allclose(
        lm.edited(single, other).next_sentence(PAIRS), lm.edited(other, single).next_sentence(PAIRS)
    )


def test_a_shared_layer_carries_the_same_erasure_of_every_call_alone():
    lm = load(zoo.folder("albert", "AlbertForSequenceClassification"))
    every = lm.edited(*(erasure(lm, Site("query", layer, 1)) for layer in range(3)))
    close(every.merged().classify(TEXTS), every.classify(TEXTS))
    same = erasure(lm, Site("query", 0, 1))
    moved = [
        Erasure(Site("query", i, 1), left=same.left, right=same.right, mean=same.mean + i)
        for i in range(3)
    ]
    with pytest.raises(NotMergeableError, match="uses the same weights and is edited differently"):
        lm.edited(*moved).merged()


def test_a_constant_without_a_bias_is_refused_but_not_a_constant_of_zero():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    for site in (Site("query", 1, 2), Site("head_out", 1, 2), Site("mlp_out", 0)):
        for edit in (erasure(lm, site), shift(lm, site)):
            with pytest.raises(NotMergeableError) as error:
                lm.edited(projection(lm, site), edit).merged()
            assert error.value.problem == (
                f"the {edit.kind} at {site} cannot be merged into plain weights: it adds a "
                "constant, but the weights have no bias"
            )
        basis = projection(lm, site).basis
        base = Erasure(site, left=basis, right=basis, mean=torch.zeros(basis.shape[1]))
        close(
            lm.edited(base).merged().log_prob(TEXTS).value,
            lm.edited(projection(lm, site)).log_prob(TEXTS).value,
        )


def test_what_cannot_be_folded_names_the_way_out():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    with pytest.raises(NotMergeableError) as error:
        lm.edited(erasure(lm, INNER)).merged()
    assert error.value.problem == (
        "the erasure at block_out 1 cannot be merged into plain weights: the residual stream "
        "bypasses all weights here"
    )
    assert "save_pretrained(folder, with_edit_file=True)" in error.value.hint
    assert "levelhead export --with-edit-file" in error.value.hint
    assert "levelhead.load(model, edit=folder)" in error.value.hint


def test_a_conditional_shift_is_refused_where_a_shift_is_merged():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    for site in (Site("head_out", 1, 2), Site("mlp_out", 1), Site("pooled")):
        with pytest.raises(NotMergeableError, match="it is not one affine map of all tokens"):
            lm.edited(shift(lm, site), conditional_shift(lm, site)).merged()


@pytest.mark.parametrize("turned", [False, True])
def test_without_a_pooling_layer_the_head_itself_reads_the_first_token(turned):
    """MobileBERT as it was published; there the head reads both places."""
    lm = load(
        zoo.folder("mobilebert", "MobileBertForNextSentencePrediction", classifier_activation=False)
    )
    edits = [projection(lm, LAST, tokens="first"), erasure(lm, Site("pooled"))]
    edited = lm.edited(*(edits[::-1] if turned else edits))
    close(edited.merged().next_sentence(PAIRS), edited.next_sentence(PAIRS))
    assert (edited.next_sentence(PAIRS) - lm.next_sentence(PAIRS)).abs().max() > 1e-3
