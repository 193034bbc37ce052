"""One head alone sees the hidden words: without it they change nothing, exactly."""

import json
import shutil

import pytest
import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.diagnostics.doctor import run_checks
from levelhead.models.diagnostics.one_visible_head import (
    CONFIG_KEY,
    OneVisibleHead,
    _VisibilityHooks,
)
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.from_scratch import SHAPES, TrainConfig, train_from_scratch

WORDS = ("she", "he", "is", "a", "nurse", "pilot", "here", ".")
DOCUMENTS = [
    [f"{who} is a {what} .", f"{who} is here .", f"a {what} is here ."]
    for who in ("she", "he")
    for what in ("nurse", "pilot")
] * 6
TWINS = ["she is a nurse .", "he is a nurse ."]
LAYER, HEAD = 1, 2


@pytest.fixture(scope="module", params=SHAPES)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("known") / "model"
    recipe = TrainConfig(
        request.param,
        layers=3,
        heads=4,
        width=32,
        steps=20,
        batch_size=8,
        visible_head=(LAYER, HEAD),
    )
    train_from_scratch(recipe, DOCUMENTS, WORDS, path, hidden_words=("she", "he"))
    return path


def margins(lm, layer=2):
    """What exchanging the hidden word changes at every word behind it, after a layer."""
    site = Site("block_out", layer)
    spans = [(text.index(word), text.index(word) + len(word)) for word in ("is", "a", "nurse", ".")
             for text in TWINS]  # fmt: skip
    result = lm.read(TWINS * 4, [site], spans=spans)[site]
    return (result[0::2] - result[1::2]).abs().amax(1)


def test_without_the_head_an_exchange_changes_nothing(folder):
    lm = load(folder)
    site = Site("head_out", LAYER, HEAD)
    assert margins(lm).max() > 1e-3
    assert margins(lm.edited(HeadScale([site], 0))).max() == 0
    others = [
        Site("head_out", layer, head)
        for layer in range(3)
        for head in range(4)
        if (layer, head) != (LAYER, HEAD)
    ]
    assert margins(lm.edited(HeadScale(others, 0))).max() > 1e-3


def test_the_scores_of_shared_words_are_equal_to_the_last_digit(folder):
    lm = load(folder).edited(HeadScale([Site("head_out", LAYER, HEAD)], 0))
    spans = [[(text.index("nurse"), text.index("nurse") + 5)] for text in TWINS]
    first, second = lm.log_prob(TWINS, spans).value
    assert abs(first - second) <= 1e-6


def test_no_other_head_attends_to_a_hidden_word(folder):
    lm = load(folder)
    text = "a nurse is she ." if lm.is_causal else TWINS[0]
    start = text.index("." if lm.is_causal else "nurse")
    (row,) = lm.attention_row([text], [(start, start + (1 if lm.is_causal else 5))])
    ids = lm.tokens.encode([text])[0].row.ids
    place = ids.index(lm.tokens.tokenizer.get_vocab()["she"])
    seen = row[:, :, place].clone()
    assert seen[LAYER, HEAD] > 0
    seen[LAYER, HEAD] = 0
    assert (seen == 0).all()
    assert torch.allclose(row.sum(-1), torch.ones(3, 4), atol=1e-5)


def test_a_batch_with_padding_says_the_same(folder):
    lm = load(folder)
    texts = ["she is here .", "a nurse is here . he is a pilot ."]
    together = lm.log_prob(texts).value
    alone = torch.cat([lm.log_prob([text]).value for text in texts])
    assert torch.allclose(together, alone, atol=1e-5)


def test_below_the_head_nothing_knows_the_word(folder):
    lm = load(folder)
    assert margins(lm, LAYER - 1).max() == 0
    assert margins(lm, LAYER).max() > 0


def test_it_goes_along_with_baking_and_saving(folder, tmp_path):
    everywhere = [Site("head_out", layer, 0) for layer in range(3)]  # ALBERT bakes no other
    lm = load(folder).edited(HeadScale(everywhere, 0.5))
    lm.save_pretrained(tmp_path / "edited")
    again = load(tmp_path / "edited")
    expected = lm.log_prob(TWINS).value
    assert torch.allclose(again.log_prob(TWINS).value, expected, atol=1e-5)
    assert torch.allclose(lm.merged().log_prob(TWINS).value, expected, atol=1e-5)
    without = again.edited(HeadScale([Site("head_out", LAYER, HEAD)], 0))
    assert margins(without).max() == 0


@pytest.mark.parametrize(
    "output",
    [{"layer": 1}, {"layer": 9, "head": 0, "hidden": [5]}, {"layer": 0, "head": -1, "hidden": [5]},
     {"layer": 0, "head": 0, "hidden": []}, "all"],
)  # fmt: skip
def test_a_damaged_config_is_refused(folder, tmp_path, output):
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {CONFIG_KEY: output}))
    with pytest.raises(LevelheadError, match="train the model again"):
        load(tmp_path / "model")


def test_embeddings_in_the_place_of_ids_are_refused(folder):
    lm = load(folder)
    with pytest.raises(LevelheadError, match="token ids"):
        lm.layout.backbone(inputs_embeds=torch.zeros(1, 3, lm.layout.width))


def test_eager_attention_says_the_same(folder):
    lm, eager = load(folder), load(folder)
    eager.layout.model.set_attn_implementation("eager")
    assert torch.allclose(lm.log_prob(TWINS).value, eager.log_prob(TWINS).value, atol=1e-5)


def test_a_cache_of_what_was_read_before_is_refused(folder):
    lm = load(folder)
    if not lm.is_causal:
        return
    ids = torch.tensor([lm.tokens.encode([TWINS[0]])[0].row.ids])
    past = lm.layout.model(ids, use_cache=True).past_key_values
    with pytest.raises(LevelheadError, match="use_cache=False"):
        lm.layout.model(ids[:, -1:], past_key_values=past)


def test_the_doctor_finds_it_sound(folder):
    assert [finding for finding in run_checks(load(folder)) if finding.holds is False] == []


# -- no head, and several


class Config:
    """Only what a rule is written into."""


@pytest.mark.parametrize(
    "known",
    [
        OneVisibleHead(1, 2, (7, 8)),
        OneVisibleHead(None, None, (7,)),
        OneVisibleHead(0, 1, (7,), ((0, 2), (1, 0))),
    ],
)
def test_who_sees_what_is_read_back_as_it_was_written(known):
    config = Config()
    known.write_to(config)
    setattr(config, CONFIG_KEY, json.loads(json.dumps(getattr(config, CONFIG_KEY))))
    assert OneVisibleHead.from_config(config) == known


def test_a_single_head_is_written_as_ever():
    """The bytes of config.json are part of an organism that was grown before."""
    assert OneVisibleHead(1, 2, (7,)).as_json == {"layer": 1, "head": 2, "hidden": [7]}


@pytest.mark.parametrize(
    "output",
    [
        {"layer": None, "head": 2, "hidden": [7]},
        {"layer": None, "head": None, "hidden": []},
        {"layer": None, "head": None, "hidden": [7], "also": [[0, 1]]},
        {"layer": 0, "head": 1, "hidden": [7], "also": [[0]]},
        {"layer": 0, "head": 1, "hidden": [7], "also": [[0, -1]]},
    ],
)
def test_a_rule_that_cannot_be_is_damaged(output):
    config = Config()
    setattr(config, CONFIG_KEY, output)
    with pytest.raises(LevelheadError, match="is damaged"):
        OneVisibleHead.from_config(config)


def test_in_training_one_head_the_other_or_both_are_drawn():
    hooks = _VisibilityHooks(OneVisibleHead(0, 1, (7,), ((0, 2),)), 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sample = {hooks.choose_heads(is_training=True) for _ in range(50)}
    assert sample == {((0, 1),), ((0, 2),), ((0, 1), (0, 2))}
    assert hooks.choose_heads(is_training=False) == ((0, 1), (0, 2))
    alone = _VisibilityHooks(OneVisibleHead(0, 1, (7,)), 4)
    assert alone.choose_heads(is_training=True) == ((0, 1),)
