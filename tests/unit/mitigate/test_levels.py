"""Levels of models of several families: the right sites, and nothing left along a direction."""

from itertools import pairwise

import pytest
import torch
from contrasts import MODELS, lm, texts

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.mitigate.projection.config_grid import LEVELS, Setting, grid
from levelhead.mitigate.projection.edit_points import (
    edits_of,
    has_sent,
    level_of,
    levels_of,
    project,
    setting_of,
    sites_of,
    subspaces,
    tokens_of,
)
from levelhead.mitigate.projection.subspace import fit
from levelhead.models.sites import Site

LAST, INNER, SENT = Site("block_out", 2), Site("block_out", 1), Site("pooled")
KV = {"llama": 2}
CAUSAL = ("gpt2", "llama")


@pytest.mark.parametrize("family", MODELS)
def test_the_sites_of_a_family(family):
    model = lm(family)
    sites = sites_of(model)
    kv = KV.get(family, 4)
    assert sites["attn"] == (
        *(Site("query", 1, head) for head in range(4)),
        *(Site("key", 1, head) for head in range(kv)),
        *(Site("value", 1, head) for head in range(kv)),
    )
    assert sites["penultimate"] == (INNER,)
    assert sites["last"] == (LAST,)
    assert has_sent(model) == (family not in CAUSAL) == ("sent" in sites)
    assert tokens_of(model, "last") == ("all" if family in CAUSAL else "first")
    assert tokens_of(model, "penultimate") == "all"


@pytest.mark.parametrize("family", MODELS)
def test_nothing_is_left_along_the_directions(family):
    model, pairs = lm(family), texts()
    edits = project(model, "penultimate+attn", pairs, weighted=False, dims=2)
    assert len(edits) == 4 + 2 * KV.get(family, 4) + 2 + has_sent(model)
    edited = model.edited(*edits)
    said = [pair.first for pair in pairs]
    for edit in edits:
        ways = ("first",) if edit.tokens == "first" else ("first", "mean", "last")
        for pooling in ways:
            seen = edited.read(said, [edit.site], pooling=pooling)[edit.site].double()
            assert float((seen @ edit.basis.T).abs().max()) < 1e-4
            plain = model.read(said, [edit.site], pooling=pooling)[edit.site].double()
        assert float((plain @ edit.basis.T).abs().max()) > 1e-2
    dims = [len(edit.basis) for edit in edits if edit.site.stream == "block_out"]
    assert dims == [2, 2]
    assert {len(edit.basis) for edit in edits if edit.site.stream != "block_out"} == {1}


def test_an_earlier_level_implies_all_later():
    model, pairs = lm("bert"), texts()
    found = {level: project(model, level, pairs) for level in LEVELS}
    for earlier, later in pairwise(LEVELS):
        assert found[later][-len(found[earlier]) :] == found[earlier]
    assert [edit.site for edit in found["penultimate"]] == [INNER, LAST, SENT]
    assert [edit.tokens for edit in found["penultimate"]] == ["all", "first", "all"]


def test_weights_are_the_shares_but_for_the_attention():
    model, pairs = lm("bert"), texts()
    shares = subspaces(model, pairs)
    for edit in project(model, "penultimate+attn", pairs, dims=2):
        one = shares[edit.site]
        dims = 2 if edit.site.stream == "block_out" else 1
        torch.testing.assert_close(edit.basis, one.basis[:dims])
        if edit.site.layer == 1 and edit.site.head is not None:
            assert edit.weights.tolist() == [1.0]
        else:
            torch.testing.assert_close(edit.weights, one.shares[:dims])


def test_every_setting_is_another_model():
    model = lm("bert")
    found = subspaces(model, texts())
    made = {edits_of(model, setting, found) for setting in grid()}
    assert len(made) == 74
    decoder = lm("llama")
    found = subspaces(decoder, texts())
    assert len({edits_of(decoder, setting, found) for setting in grid(sent=False)}) == 36


def test_a_setting_and_its_name_are_the_same():
    model, pairs = lm("bert"), texts()
    setting = Setting.named("last 0,1,1")
    edits = project(model, setting, pairs)
    assert project(model, "last 0,1,1", pairs) == edits
    assert project(model, "layer3 (0,1,1)", pairs) == edits
    assert [edit.weights.tolist() == [1, 1] for edit in edits] == [True, False]
    assert str(setting_of(model, "[layer 3] (0,1,1)")) == "last 0,1,1"
    assert str(setting_of(model, "layer 3")) == "last 1,0,1"
    assert str(setting_of(model, "last (0, 1, 1)")) == "last 0,1,1"
    with pytest.raises(LevelheadError, match="'0,1,2' are no 3 marks of the level last"):
        setting_of(model, "last 0,1,2")
    assert str(setting_of(model, "last", weighted=False, dims=2)) == "last 0,1,0"
    assert str(setting_of(lm("gpt2"), "last", weighted=False, dims=2)) == "last 0,1"


def test_sequential_is_fitted_on_what_is_left():
    model, pairs = lm("bert"), texts()
    edits = project(model, "penultimate+attn 0,1,0,0,0", pairs, fitted="sequential")
    original = project(model, "penultimate+attn 0,1,0,0,0", pairs)
    assert [edit.site for edit in edits] == [edit.site for edit in original]
    assert edits[:12] == original[:12]
    before = model.edited(*edits[:12])
    assert edits[12] == fit(before, pairs, [INNER])[INNER].edit(weighted=False, dims=2)
    assert edits[12] != original[12]
    before = model.edited(*edits[:14])
    assert edits[14] == fit(before, pairs, [SENT], dims=1)[SENT].edit(weighted=False, dims=1)


def test_original_is_one_pass_and_sequential_one_a_part():
    model, pairs = lm("bert"), texts()
    for fitted, passes in (("original", 1), ("sequential", 4)):
        done = []
        telling = model.telling(lambda at, total, done=done: done.append(at == total))
        project(telling, "penultimate+attn", pairs, fitted=fitted)
        assert sum(done) == passes


def test_layers_have_the_papers_names_by_depth():
    model = lm("bert")
    assert level_of(model, "layer3") == "last"
    assert level_of(model, "[layer 2]") == "penultimate"
    assert level_of(model, "layer2+attn") == "penultimate+attn"
    assert level_of(model, "SENT") == "sent"
    deep = lm("bert", "BertForPreTraining", num_hidden_layers=12)
    assert level_of(deep, "layer11+attn") == "penultimate+attn"
    assert sites_of(deep, "layer11")["penultimate"] == (Site("block_out", 10),)
    for name in ("layer11+attn", "layer12", "layer1"):
        with pytest.raises(LevelheadError, match="this model has 3 layers") as refused:
            level_of(model, name)
        assert refused.value.mend.startswith("use layer3, layer2, layer2+attn, or the names")
    with pytest.raises(UnknownName, match="did you mean 'penultimate'"):
        level_of(model, "penultimat")


def test_a_shallow_model_has_no_layer_before_the_last():
    model = lm("bert", "BertForPreTraining", num_hidden_layers=1)
    assert [edit.site for edit in project(model, "layer1", texts())] == [Site("block_out", 0), SENT]
    assert levels_of(model) == ("sent", "last")
    assert set(subspaces(model, texts())) == {Site("block_out", 0), SENT}
    with pytest.raises(LevelheadError, match="this model has one layer, and none before it"):
        project(model, "penultimate", texts())


def test_a_model_without_a_pooled_vector_starts_at_last():
    model, pairs = lm("gpt2"), texts()
    assert [edit.site for edit in project(model, "last", pairs)] == [LAST]
    with pytest.raises(LevelheadError, match="GPT2LMHeadModel has no pooled vector, so its levels"):
        project(model, "sent", pairs)
    for fitted in ("original", "sequential"):
        with pytest.raises(LevelheadError, match="the setting last 0,1,1 does not fit") as refused:
            project(model, "last 0,1,1", pairs, fitted=fitted)
        assert refused.value.mend == "take one of grid(sent=False)"
    with pytest.raises(LevelheadError, match="BertForPreTraining has a pooled vector"):
        project(lm("bert"), "last 0,1", pairs)
    masked = lm("bert", "BertForMaskedLM")
    assert [(edit.site, edit.tokens) for edit in project(masked, "last", pairs)] == [(LAST, "all")]


def test_a_decoder_with_a_classifier_has_all_levels():
    model = lm("gpt2", "GPT2ForSequenceClassification")
    edits = project(model, "penultimate", texts(), weighted=False)
    assert [(edit.site, edit.tokens) for edit in edits] == [
        (INNER, "all"),
        (LAST, "all"),
        (SENT, "all"),
    ]
    seen = model.edited(*edits).read(["she was here ."], [SENT])[SENT].double()
    assert float((seen @ edits[-1].basis.T).abs().max()) < 1e-4


def test_wrong_words_are_refused():
    model, pairs = lm("bert"), texts()
    with pytest.raises(UnknownName, match="there is no way of fitting named 'orignal'"):
        project(model, "last", pairs, fitted="orignal")
    for given in ({"weighted": True}, {"dims": 1}):
        with pytest.raises(LevelheadError, match="last 0,1,1 says itself what is weighted"):
            project(model, "last 0,1,1", pairs, **given)
    with pytest.raises(LevelheadError, match="sent has one dimension"):
        project(model, "sent", pairs, dims=2)
    with pytest.raises(LevelheadError, match="3 dimensions"):
        project(model, "last", pairs, dims=3)
    with pytest.raises(LevelheadError, match=r"no subspace was fitted at query 1\.0") as refused:
        edits_of(model, grid()[-1], subspaces(model, pairs, level="last"))
    assert "level='penultimate+attn'" in refused.value.mend


def test_levels_that_plain_weights_can_carry_are_baked():
    model, pairs = lm("bert"), texts()
    edited = model.edited(*project(model, "last", pairs, dims=2))
    said = [(pair.first, pair.second) for pair in pairs]
    close = torch.testing.assert_close
    close(edited.baked().next_sentence(said), edited.next_sentence(said), atol=1e-5, rtol=0)
