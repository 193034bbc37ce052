"""Levels of models of several families: the right sites, and nothing left along a direction."""

from itertools import pairwise

import pytest
import torch
from contrasts import MODELS, lm, texts

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.mitigate.projection.config_grid import EDIT_POINTS, ProjectionConfig, projection_grid
from levelhead.mitigate.projection.edit_points import (
    build_edits,
    edit_point_sites,
    fit_subspaces,
    has_pooled,
    list_edit_points,
    project,
    resolve_config,
    resolve_edit_point,
    select_tokens,
)
from levelhead.mitigate.projection.subspace import fit_site_subspaces
from levelhead.models.sites import Site

LAST, INNER, SENT = Site("block_out", 2), Site("block_out", 1), Site("pooled")
KV = {"llama": 2}
CAUSAL = ("gpt2", "llama")


@pytest.mark.parametrize("family", MODELS)
def test_the_sites_of_a_family(family):
    model = lm(family)
    sites = edit_point_sites(model)
    kv = KV.get(family, 4)
    assert sites["attn"] == (
        *(Site("query", 1, head) for head in range(4)),
        *(Site("key", 1, head) for head in range(kv)),
        *(Site("value", 1, head) for head in range(kv)),
    )
    assert sites["penultimate"] == (INNER,)
    assert sites["last"] == (LAST,)
    assert has_pooled(model) == (family not in CAUSAL) == ("sent" in sites)
    assert select_tokens(model, "last") == ("all" if family in CAUSAL else "first")
    assert select_tokens(model, "penultimate") == "all"


@pytest.mark.parametrize("family", MODELS)
def test_nothing_is_left_along_the_directions(family):
    model, pairs = lm(family), texts()
    edits = project(model, "penultimate+attn", pairs, weighted=False, n_components=2)
    assert len(edits) == 4 + 2 * KV.get(family, 4) + 2 + has_pooled(model)
    edited = model.edited(*edits)
    responses = [pair.first for pair in pairs]
    for edit in edits:
        ways = ("first",) if edit.tokens == "first" else ("first", "mean", "last")
        for pooling in ways:
            seen = edited.read(responses, [edit.site], pooling=pooling)[edit.site].double()
            assert float((seen @ edit.basis.T).abs().max()) < 1e-4
            base = model.read(responses, [edit.site], pooling=pooling)[edit.site].double()
        assert float((base @ edit.basis.T).abs().max()) > 1e-2
    dims = [len(edit.basis) for edit in edits if edit.site.stream == "block_out"]
    assert dims == [2, 2]
    assert {len(edit.basis) for edit in edits if edit.site.stream != "block_out"} == {1}


def test_an_earlier_level_implies_all_later():
    model, pairs = lm("bert"), texts()
    result = {level: project(model, level, pairs) for level in EDIT_POINTS}
    for earlier, later in pairwise(EDIT_POINTS):
        assert result[later][-len(result[earlier]) :] == result[earlier]
    assert [edit.site for edit in result["penultimate"]] == [INNER, LAST, SENT]
    assert [edit.tokens for edit in result["penultimate"]] == ["all", "first", "all"]


def test_weights_are_the_shares_but_for_the_attention():
    model, pairs = lm("bert"), texts()
    shares = fit_subspaces(model, pairs)
    for edit in project(model, "penultimate+attn", pairs, n_components=2):
        single = shares[edit.site]
        dims = 2 if edit.site.stream == "block_out" else 1
        torch.testing.assert_close(edit.basis, single.basis[:dims])
        if edit.site.layer == 1 and edit.site.head is not None:
            assert edit.weights.tolist() == [1.0]
        else:
            torch.testing.assert_close(edit.weights, single.explained_variance_ratio[:dims])


def test_every_setting_is_another_model():
    model = lm("bert")
    result = fit_subspaces(model, texts())
    made = {build_edits(model, setting, result) for setting in projection_grid()}
    assert len(made) == 74
    decoder = lm("llama")
    result = fit_subspaces(decoder, texts())
    assert (
        len({build_edits(decoder, setting, result) for setting in projection_grid(pooled=False)})
        == 36
    )


def test_a_setting_and_its_name_are_the_same():
    model, pairs = lm("bert"), texts()
    setting = ProjectionConfig.from_name("last 0,1,1")
    edits = project(model, setting, pairs)
    assert project(model, "last 0,1,1", pairs) == edits
    assert project(model, "layer3 (0,1,1)", pairs) == edits
    assert [edit.weights.tolist() == [1, 1] for edit in edits] == [True, False]
    assert str(resolve_config(model, "[layer 3] (0,1,1)")) == "last 0,1,1"
    assert str(resolve_config(model, "layer 3")) == "last 1,0,1"
    assert str(resolve_config(model, "last (0, 1, 1)")) == "last 0,1,1"
    with pytest.raises(LevelheadError, match="'0,1,2' are no 3 marks of the level last"):
        resolve_config(model, "last 0,1,2")
    assert str(resolve_config(model, "last", weighted=False, n_components=2)) == "last 0,1,0"
    assert str(resolve_config(lm("gpt2"), "last", weighted=False, n_components=2)) == "last 0,1"


def test_cumulative_is_fitted_on_what_is_left():
    model, pairs = lm("bert"), texts()
    edits = project(model, "penultimate+attn 0,1,0,0,0", pairs, fit_on="cumulative")
    original = project(model, "penultimate+attn 0,1,0,0,0", pairs)
    assert [edit.site for edit in edits] == [edit.site for edit in original]
    assert edits[:12] == original[:12]
    before = model.edited(*edits[:12])
    assert edits[12] == fit_site_subspaces(before, pairs, [INNER])[INNER].to_projection(
        weighted=False, n_components=2
    )
    assert edits[12] != original[12]
    before = model.edited(*edits[:14])
    assert edits[14] == fit_site_subspaces(before, pairs, [SENT], n_components=1)[
        SENT
    ].to_projection(weighted=False, n_components=1)


def test_base_is_one_pass_and_cumulative_one_a_part():
    model, pairs = lm("bert"), texts()
    for fitted, passes in (("base", 1), ("cumulative", 4)):
        done = []
        telling = model.with_progress(lambda at, total, done=done: done.append(at == total))
        project(telling, "penultimate+attn", pairs, fit_on=fitted)
        assert sum(done) == passes


def test_layers_have_the_papers_names_by_depth():
    model = lm("bert")
    assert resolve_edit_point(model, "layer3") == "last"
    assert resolve_edit_point(model, "[layer 2]") == "penultimate"
    assert resolve_edit_point(model, "layer2+attn") == "penultimate+attn"
    assert resolve_edit_point(model, "SENT") == "sent"
    deep = lm("bert", "BertForPreTraining", num_hidden_layers=12)
    assert resolve_edit_point(deep, "layer11+attn") == "penultimate+attn"
    assert edit_point_sites(deep, "layer11")["penultimate"] == (Site("block_out", 10),)
    for name in ("layer11+attn", "layer12", "layer1"):
        with pytest.raises(LevelheadError, match="this model has 3 layers") as refused:
            resolve_edit_point(model, name)
        assert refused.value.hint.startswith("use layer3, layer2, layer2+attn, or the names")
    with pytest.raises(UnknownNameError, match="did you mean 'penultimate'"):
        resolve_edit_point(model, "penultimat")


def test_a_shallow_model_has_no_layer_before_the_last():
    model = lm("bert", "BertForPreTraining", num_hidden_layers=1)
    assert [edit.site for edit in project(model, "layer1", texts())] == [Site("block_out", 0), SENT]
    assert list_edit_points(model) == ("sent", "last")
    assert set(fit_subspaces(model, texts())) == {Site("block_out", 0), SENT}
    with pytest.raises(LevelheadError, match="this model has one layer, and none before it"):
        project(model, "penultimate", texts())


def test_a_model_without_a_pooled_vector_starts_at_last():
    model, pairs = lm("gpt2"), texts()
    assert [edit.site for edit in project(model, "last", pairs)] == [LAST]
    with pytest.raises(LevelheadError, match="GPT2LMHeadModel has no pooled vector, so its levels"):
        project(model, "sent", pairs)
    for fitted in ("base", "cumulative"):
        with pytest.raises(LevelheadError, match="the setting last 0,1,1 does not fit") as refused:
            project(model, "last 0,1,1", pairs, fit_on=fitted)
        assert refused.value.hint == "take one of projection_grid(pooled=False)"
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
    with pytest.raises(UnknownNameError, match="there is no way of fitting named 'orignal'"):
        project(model, "last", pairs, fit_on="orignal")
    for given in ({"weighted": True}, {"n_components": 1}):
        with pytest.raises(LevelheadError, match="last 0,1,1 says itself what is weighted"):
            project(model, "last 0,1,1", pairs, **given)
    with pytest.raises(LevelheadError, match="sent has one dimension"):
        project(model, "sent", pairs, n_components=2)
    with pytest.raises(LevelheadError, match="3 dimensions"):
        project(model, "last", pairs, n_components=3)
    with pytest.raises(LevelheadError, match=r"no subspace was fitted at query 1\.0") as refused:
        build_edits(model, projection_grid()[-1], fit_subspaces(model, pairs, edit_point="last"))
    assert "edit_point='penultimate+attn'" in refused.value.hint


def test_levels_that_plain_weights_can_carry_are_baked():
    model, pairs = lm("bert"), texts()
    edited = model.edited(*project(model, "last", pairs, n_components=2))
    responses = [(pair.first, pair.second) for pair in pairs]
    close = torch.testing.assert_close
    close(
        edited.merged().next_sentence(responses), edited.next_sentence(responses), atol=1e-5, rtol=0
    )
