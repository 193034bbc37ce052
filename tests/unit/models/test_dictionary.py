"""Sparse dictionaries: the definition in loops, files, those of SAELens, training, ablation."""

import json
import re

import pytest
import torch
import zoo
from dictionaries import dictionary, draw
from safetensors.torch import save_file
from slow_generation import generate_slowly

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.models.edits.dictionary import Encoder, SparseDictionary
from levelhead.models.edits.dictionary_files import (
    InvalidDictionaryError,
    load_dictionary,
    save_dictionary,
)
from levelhead.models.edits.feature_ablation import FeatureAblation
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.edits.merge import NotMergeableError
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.generation.in_process import generate_texts
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.models.training.dictionary import (
    DictionaryConfig,
    assess_dictionary,
    read_token_activations,
    train_dictionary,
)

KINDS = [
    (activation, normalization)
    for activation in ("relu", "topk", "jumprelu")
    for normalization in ("none", "constant_norm", "layer_norm")
]
HERE = Site("block_out", 0)


def features_in_loops(given, h):
    """The definition, for one vector: scaled features, and the factor of what they decode to."""
    encoder, scale = given.encoder, 1.0
    if encoder.normalization == "constant_norm":
        scale = float(h.norm()) / len(h) ** 0.5
        h = h / scale
    elif encoder.normalization == "layer_norm":
        h = h - h.mean()
        scale = float(h.std())
        h = h / (scale + 1e-5)
    before = [float(e @ h) + float(b) for e, b in zip(encoder.weight, encoder.bias, strict=True)]
    if encoder.activation == "topk":
        kept = sorted(range(len(before)), key=lambda i: -before[i])[: encoder.k]
        return [max(value, 0.0) if i in kept else 0.0 for i, value in enumerate(before)], scale
    if encoder.activation == "jumprelu":
        return [
            value if value > 0 and value > float(threshold) else 0.0
            for value, threshold in zip(before, encoder.threshold, strict=True)
        ], scale
    return [max(value, 0.0) for value in before], scale


@pytest.mark.parametrize(("activation", "normalization"), KINDS)
def test_features_reconstruction_and_ablation_are_those_of_the_definition(
    activation, normalization
):
    given, x = dictionary(activation, normalization), draw(2, 3, 6, seed=9) + 0.3
    ablated, strength = [4, 0, 7], 0.5
    edited = FeatureAblation.of(given, ablated, strength=strength)(x, HERE)
    n_active = 0
    for row in range(2):
        for token in range(3):
            h = x[row, token]
            features, scale = features_in_loops(given, h)
            assert given.encode(h).tolist() == pytest.approx(features, abs=1e-5)
            decoded = given.decoder_bias.clone()
            for value, d in zip(features, given.decoder, strict=True):
                decoded = decoded + value * d
            mean = h.mean() if normalization == "layer_norm" else 0.0
            torch.testing.assert_close(
                given.reconstruct(h), decoded * scale + mean, rtol=1e-4, atol=1e-4
            )
            removed = sum(strength * scale * features[i] * given.decoder[i] for i in ablated)
            torch.testing.assert_close(edited[row, token], h - removed, rtol=1e-4, atol=1e-4)
            lengths = [
                value * scale * float(d.norm())
                for value, d in zip(features, given.decoder, strict=True)
            ]
            assert given.contributions(h).tolist() == pytest.approx(lengths, abs=1e-4)
            n_active += sum(features[i] > 0 for i in ablated)
    # Otherwise nothing was compared.
    assert n_active


@pytest.mark.parametrize(("activation", "normalization"), KINDS)
def test_dictionaries_and_ablations_come_back_from_their_files(activation, normalization, tmp_path):
    given = dictionary(activation, normalization)
    save_dictionary(given, tmp_path / "dictionary")
    save_dictionary(given, tmp_path / "dictionary")  # the same again is harmless
    again = load_dictionary(tmp_path / "dictionary")
    assert again.content_hash == given.content_hash
    edits = [FeatureAblation.of(again, [3, 1]), FeatureAblation.of(given, [3], tokens="first")]
    assert edits[0] == FeatureAblation.of(given, [3, 1]) != edits[1]
    save_edits(edits, tmp_path / "edits")
    assert load_edits(tmp_path / "edits") == tuple(edits)
    with pytest.raises(LevelheadError, match="holds another dictionary"):
        save_dictionary(dictionary(n=13), tmp_path / "dictionary")


def test_an_exchanged_or_damaged_file_is_refused(tmp_path):
    save_dictionary(dictionary(), tmp_path / "a")
    save_dictionary(dictionary(n=13), tmp_path / "b")
    weights = (tmp_path / "b" / "dictionary.safetensors").read_bytes()
    (tmp_path / "a" / "dictionary.safetensors").write_bytes(weights)
    with pytest.raises(InvalidDictionaryError, match="not the file that was written"):
        load_dictionary(tmp_path / "a")
    contents = json.loads((tmp_path / "b" / "dictionary.json").read_text())
    for change, problem in (
        ({"activation": "tanh"}, "is no dictionary"),
        ({"site": ["block_out", -1, None]}, "not a valid index"),
        ({"site": ["nowhere", 0, None]}, "no stream named"),
        ({"activation": "topk", "k": 14}, "14 of 13 features"),
        ({"activation": "jumprelu"}, "needs them"),
    ):
        (tmp_path / "b" / "dictionary.json").write_text(json.dumps(contents | change))
        with pytest.raises(LevelheadError, match=problem):
            load_dictionary(tmp_path / "b")
    with pytest.raises(InvalidDictionaryError, match=r"contains no cfg\.json"):
        load_dictionary(tmp_path / "c")


def write_saelens(folder, config, *, n=10, width=6, threshold=False):
    folder.mkdir()
    tensors = {
        "W_enc": draw(width, n, seed=1),
        "b_enc": draw(n, seed=2),
        "W_dec": draw(n, width, seed=3),
        "b_dec": draw(width, seed=4),
    }
    if threshold:
        tensors["threshold"] = draw(n, seed=5).abs()
    save_file(tensors, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"d_in": width, "d_sae": n} | config))
    return tensors


# Of version 3, with the function's name, and of version 6, with metadata.
SAELENS = {
    "relu": (
        {"architecture": "standard", "hook_name": "blocks.1.hook_mlp_out"}
        | {"activation_fn_str": "relu", "apply_b_dec_to_input": True},
        Site("mlp_out", 1),
        torch.relu,
    ),
    "topk": (
        {"architecture": "topk", "k": 3, "apply_b_dec_to_input": False}
        | {"metadata": {"hook_name": "blocks.2.hook_resid_pre"}},
        Site("block_out", 1),
        None,
    ),
    "old topk": (
        {"architecture": "standard", "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 3}}
        | {"hook_name": "blocks.0.hook_resid_pre", "apply_b_dec_to_input": False},
        Site("embeddings"),
        None,
    ),
    "jumprelu": (
        {"architecture": "jumprelu", "normalize_activations": "none"}
        | {"metadata": {"hook_name": "blocks.4.hook_resid_post"}, "apply_b_dec_to_input": True},
        Site("block_out", 4),
        None,
    ),
}


@pytest.mark.parametrize("name", SAELENS)
def test_a_folder_of_saelens_gives_its_features(name, tmp_path):
    config, site, function = SAELENS[name]
    tensors = write_saelens(tmp_path / "sae", config, threshold=name == "jumprelu")
    given, x = load_dictionary(tmp_path / "sae"), draw(5, 6, seed=8)
    centred = x - tensors["b_dec"] if config["apply_b_dec_to_input"] else x
    before = centred @ tensors["W_enc"] + tensors["b_enc"]
    if name == "jumprelu":
        expected = before.relu() * (before > tensors["threshold"])
    elif function is not None:
        expected = function(before)
    else:
        third = before.sort(dim=1, descending=True).values[:, 2:3]
        expected = before.relu() * (before >= third)
    assert given.site == site
    torch.testing.assert_close(given.encode(x), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        given.reconstruct(x), expected @ tensors["W_dec"] + tensors["b_dec"], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"architecture": "gated"}, "architecture 'gated'"),
        ({"architecture": "topk", "k": None}, "architecture 'topk'"),
        ({"activation_fn_str": "tanh-relu"}, "with 'tanh-relu'"),
        ({"normalize_activations": "expected_average_only_in"}, "scale is not in the file"),
        ({"finetuning_scaling_factor": True}, "scale is not in the file"),
        ({"hook_name": "blocks.1.hook_attn_out"}, "no site for the hook"),
        ({"hook_name": None}, "no site for the hook"),
        ({"hook_head_index": 1}, "no site for the hook"),
    ],
)
def test_a_folder_of_saelens_that_would_be_misread_is_refused(change, problem, tmp_path):
    config = {"architecture": "standard", "hook_name": "blocks.1.hook_mlp_out"}
    write_saelens(tmp_path / "sae", config | change)
    with pytest.raises(InvalidDictionaryError, match=problem) as error:
        load_dictionary(tmp_path / "sae")
    assert error.value.hint
    if "hook" in problem:
        assert load_dictionary(tmp_path / "sae", site=HERE).site == HERE


@pytest.fixture(scope="module")
def gpt2():
    return load(zoo.folder("gpt2", "GPT2LMHeadModel"))


def ablation(lm, activation="relu", layer=1):
    site = Site("block_out", layer)
    given = dictionary(activation, site=site, n=40, width=lm.layout.site_width(site))
    return FeatureAblation.of(given, range(20), strength=0.3)


@pytest.mark.parametrize("activation", ["relu", "topk", "jumprelu"])
def test_features_are_ablated_in_every_step_of_decoding(gpt2, activation):
    config = GenerationConfig(max_tokens=6, temperature=0)
    prompts, edited = ["the nurse said that", "a man"], gpt2.edited(ablation(gpt2, activation))
    result = [text.ids for text in generate_texts(edited, prompts, [0, 1], config)]
    assert result == generate_slowly(edited, prompts, range(2), config)
    difference = (edited.log_prob(prompts).value - gpt2.log_prob(prompts).value).abs()
    assert difference.min() > 1e-4


def test_an_ablation_is_not_merged_and_the_error_names_it(gpt2):
    with pytest.raises(NotMergeableError, match=r"FeatureAblation|feature_ablation"):
        gpt2.edited(ablation(gpt2)).merged()


def test_the_exported_code_is_the_ablation(gpt2, tmp_path, monkeypatch):
    edited = gpt2.edited(
        ablation(gpt2, "topk", 0), ablation(gpt2, "jumprelu", 1), ablation(gpt2, "relu", 2)
    )
    edited.save_pretrained(tmp_path / "out", with_edit_file=True)
    readme = (tmp_path / "out" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert "levelhead" not in code
    monkeypatch.chdir(tmp_path / "out")
    names = {}
    exec(code, names)  # noqa: S102  # the lines of the README, as a user without levelhead runs them
    ids = torch.tensor([edited.tokens.encode(["the nurse is here"])[0].row.ids])
    with torch.no_grad():
        last = names["model"].base_model(ids).last_hidden_state[:, -1]
    expected = edited.embed(["the nurse is here"])
    torch.testing.assert_close(last, expected, rtol=1e-4, atol=1e-4)
    assert (last - gpt2.embed(["the nurse is here"])).abs().max() > 1e-3


def test_a_changed_file_of_an_ablation_is_refused(tmp_path):
    edit = FeatureAblation.of(dictionary(), [2, 5])
    parts = edit.to_parts()
    assert FeatureAblation.from_parts(parts) == edit
    for tensors, settings in (
        ({"rows": torch.tensor([0, 99])}, {}),
        ({"rows": torch.tensor([0.0, 1.0])}, {}),
        ({"decoder": torch.ones(2, 7)}, {}),
        ({"weight": torch.full((2, 6), float("nan"))}, {}),
        ({}, {"features": "2"}),
        ({}, {"activation": "tanh"}),
        ({}, {"tokens": "last"}),
    ):
        changed = parts._replace(
            tensors={**parts.tensors, **tensors}, settings={**parts.settings, **settings}
        )
        with pytest.raises((ValueError, LevelheadError)):
            FeatureAblation.from_parts(changed)
    lacking = parts._replace(tensors={"weight": parts.tensors["weight"]})
    with pytest.raises(ValueError, match="lacks bias"):
        FeatureAblation.from_parts(lacking)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: FeatureAblation.of(dictionary(), [12]), "features \\[12\\] of a dictionary of 12"),
        (lambda: FeatureAblation.of(dictionary(), []), "features \\[\\]"),
        (lambda: SparseDictionary(HERE, Encoder(draw(3, 2), draw(4)), draw(3, 2), draw(2)), "bias"),
        (lambda: dictionary("topk", k=99), "99 of 12 features"),
        (lambda: dictionary("tanh"), "no activation function named"),
        (lambda: DictionaryConfig(n_features=4, k=5), "cannot be trained"),
    ],
)
def test_impossible_ones_are_refused(make, problem):
    with pytest.raises(LevelheadError, match=problem):
        make()


def test_training_finds_the_directions_that_made_the_activations():
    """16 sparse directions in 12 dimensions, 2 active at a time."""
    directions = torch.nn.functional.normalize(draw(16, 12, seed=0), dim=1)
    generator = torch.Generator().manual_seed(1)
    active = torch.rand(6000, 16, generator=generator).topk(2, dim=1).indices
    sizes = 1 + torch.rand(6000, 2, generator=generator)
    codes = torch.zeros(6000, 16).scatter(1, active, sizes)
    rows = 3 * (codes @ directions) + 1
    config = DictionaryConfig(n_features=32, k=2, steps=800, batch_size=256, learning_rate=3e-3)
    given = train_dictionary(rows[:5000], HERE, config=config)
    quality = assess_dictionary(given, rows[5000:])
    assert quality.variance_explained > 0.9
    assert quality.l0 <= 2
    cosines = (directions @ given.decoder.T).max(dim=1).values
    assert (cosines > 0.9).sum() >= 12
    torch.testing.assert_close(given.decoder.norm(dim=1), torch.ones(32))
    again = train_dictionary(rows[:5000], HERE, config=config)
    assert again.content_hash == given.content_hash
    # Other activations are not described.
    assert assess_dictionary(given, draw(500, 12, seed=7)).variance_explained < 0.5


def test_token_activations_are_those_of_single_tokens(gpt2):
    texts = ["the nurse said that", "a man"]
    rows = read_token_activations(gpt2, texts, HERE)
    by_word = []
    for text in texts:
        start = 0
        for word in text.split():
            span = (text.index(word, start), text.index(word, start) + len(word))
            by_word.append(gpt2.read([text], [HERE], spans=[span])[HERE][0])
            start = span[1]
    assert len(rows) == len(by_word)
    torch.testing.assert_close(rows, torch.stack(by_word), rtol=1e-5, atol=1e-5)
    assert len(read_token_activations(gpt2, texts, HERE, limit=3)) == 3
    with pytest.raises(NotMeasurableError, match="too few"):
        train_dictionary(rows, HERE)
