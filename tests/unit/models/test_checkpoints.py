"""Hostile and broken checkpoints are refused, each with its mend; nothing in them is run."""

import json
import os
import shutil

import pytest
import torch
import zoo
from safetensors.torch import load_file, save_file

from levelhead.core.errors import LevelheadError
from levelhead.models.loading.checkpoints import Checkpoint, MissingHeadError, UnsafeCheckpointError
from levelhead.models.loading.load import load


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(zoo.folder("bert", "BertForPreTraining"), tmp_path / "model")


def change(path, **changes):
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | changes))


def rewrite(folder, keep):
    weights = load_file(folder / "model.safetensors")
    stored = {key: value for key, value in weights.items() if keep(key)}
    assert len(stored) < len(weights)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


class Payload:
    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return os.mkdir, (str(self.flag),)


@pytest.mark.parametrize("allow_pickle", [False, True])
def test_a_payload_in_a_pickle_is_not_run(folder, tmp_path, allow_pickle):
    flag = tmp_path / "executed"
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights | {"extra": Payload(flag)}, folder / "pytorch_model.bin")
    with pytest.raises(UnsafeCheckpointError) as error:
        load(folder, allow_pickle=allow_pickle)
    assert not flag.exists()
    assert "safetensors" in error.value.hint
    # The payload is real: the ordinary reader runs it.
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert flag.exists()


def test_an_honest_pickle_is_read_when_asked_for(folder):
    expected = load(folder).embed(["the nurse is here"])
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(UnsafeCheckpointError, match="a pickle can run any code") as error:
        load(folder)
    assert "allow_pickle=True" in error.value.hint
    assert torch.equal(load(folder, allow_pickle=True).embed(["the nurse is here"]), expected)


def test_safetensors_are_taken_where_both_lie(folder, tmp_path):
    torch.save({"extra": Payload(tmp_path / "executed")}, folder / "pytorch_model.bin")
    load(folder, allow_pickle=True)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_that_comes_along_is_refused(folder, tmp_path, name):
    flag = tmp_path / "executed"
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(flag)!r})\n")
    change(folder / name, auto_map={"AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]})
    with pytest.raises(UnsafeCheckpointError, match="requests to run code") as error:
        load(folder)
    assert not flag.exists()
    assert "auto_map" in error.value.hint


@pytest.mark.parametrize(
    "key", ["transformers_weights", "quantization_config", "attn_implementation"]
)
def test_settings_that_lead_elsewhere_are_refused(folder, key):
    change(folder / "config.json", **{key: "other.safetensors"})
    with pytest.raises(UnsafeCheckpointError, match=key) as error:
        load(folder)
    assert "remove it from a copy" in error.value.hint


@pytest.mark.parametrize(
    ("changes", "responses"),
    [
        ({"num_attention_heads": 0}, "transformers cannot load|has 0 heads"),
        ({"hidden_act": "nonsense"}, "transformers cannot load"),
    ],
)
def test_impossible_settings_are_refused(folder, changes, responses):
    change(folder / "config.json", **changes)
    with pytest.raises(LevelheadError, match=responses):
        load(folder)


def test_a_config_that_wants_tuples_is_read_all_the_same(folder):
    expected = load(folder).embed(["he"])
    change(folder / "config.json", return_dict=False)
    assert torch.equal(load(folder).embed(["he"]), expected)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"weight_map": ["a"]}', "{}"])
def test_a_strange_index_is_refused(folder, text):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(LevelheadError, match=r"is not valid JSON|names no files"):
        load(folder)


def test_a_checkpoint_without_the_head_is_refused_for_it(folder):
    rewrite(folder, lambda key: "seq_relationship" not in key)
    lm = load(folder)
    assert lm.heads == {"masked"}
    with pytest.raises(MissingHeadError, match="next_sentence needs a head that") as error:
        lm.next_sentence([("he was tired", "she was here")])
    assert "its heads: masked" in error.value.problem
    assert "random" in error.value.hint
    lm.fill(["the [MASK] works"], ["nurse"])


def test_a_bare_encoder_gives_embeddings_only():
    lm = load(zoo.folder("bert", "BertModel"))
    assert lm.heads == frozenset()
    for verb in (
        lambda: lm.fill(["the [MASK] works"], ["nurse"]),
        lambda: lm.log_prob(["the nurse"]),
        lambda: lm.classify(["the nurse"]),
        lambda: lm.labels,
    ):
        with pytest.raises(MissingHeadError, match="embeddings only"):
            verb()
    assert lm.embed(["the nurse"]).shape == (1, 24)


def test_half_a_head_is_no_head(folder):
    rewrite(folder, lambda key: "predictions.transform.LayerNorm" not in key)
    assert load(folder).heads == {"next_sentence"}


def test_a_missing_layer_is_refused(folder):
    rewrite(folder, lambda key: "encoder.layer.1.attention.self.query" not in key)
    with pytest.raises(
        LevelheadError, match="lacks weights of BertModel, which would be initialised at random"
    ):
        load(folder)


def test_a_layer_too_many_is_refused(folder):
    change(folder / "config.json", num_hidden_layers=2)
    with pytest.raises(LevelheadError, match=r"holds more layers than config\.json says") as error:
        load(folder)
    assert "num_hidden_layers" in error.value.hint


def test_wrong_shapes_are_refused(folder):
    change(folder / "config.json", intermediate_size=41)
    with pytest.raises(LevelheadError, match="transformers cannot load"):
        load(folder)


def test_a_token_classifier_is_not_taken_for_a_sentence_classifier(tmp_path):
    model = zoo.built("bert", "BertForTokenClassification")
    model.save_pretrained(tmp_path)
    zoo.tokenizer().save_pretrained(tmp_path)
    assert load(tmp_path).heads == frozenset()


def test_a_bare_decoder_is_not_given_a_head_by_tying(tmp_path):
    """Embedding models come as bare decoders; tied embeddings would look like a trained head."""
    model = zoo.built("qwen2", "Qwen2Model", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    zoo.tokenizer(decoder=True).save_pretrained(tmp_path)
    assert load(tmp_path).heads == frozenset()


def test_tied_causal_heads_are_found(tmp_path):
    model = zoo.built("llama", "LlamaForCausalLM", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    zoo.tokenizer(decoder=True).save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert load(tmp_path).heads == {"causal"}


def test_an_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(LevelheadError, match="adapter") as error:
        load(folder)
    assert "merge_and_unload" in error.value.hint


def test_shards_are_read_and_may_not_climb_out(folder, tmp_path):
    lm = load(folder)
    lm.layout.model.save_pretrained(tmp_path / "shards", max_shard_size="5KB")
    zoo.tokenizer().save_pretrained(tmp_path / "shards")
    index = tmp_path / "shards" / "model.safetensors.index.json"
    assert len(Checkpoint.inspect(tmp_path / "shards").weights) > 2
    assert torch.equal(load(tmp_path / "shards").embed(["he"]), lm.embed(["he"]))
    names = json.loads(index.read_text())
    first = next(iter(names["weight_map"]))
    change(index, weight_map=names["weight_map"] | {first: "../model/model.safetensors"})
    with pytest.raises(UnsafeCheckpointError, match="outside its folder"):
        load(tmp_path / "shards")
    change(index, weight_map=names["weight_map"] | {first: "gone.safetensors"})
    with pytest.raises(LevelheadError, match=r"shard gone\.safetensors .* is missing"):
        load(tmp_path / "shards")


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_damaged_weights_are_refused(folder, damage):
    path = folder / "model.safetensors"
    full = path.read_bytes()
    path.write_bytes({"cut": full[: len(full) // 2], "text": b"<html>", "empty": b""}[damage])
    with pytest.raises(LevelheadError, match="is damaged") as error:
        load(folder)
    assert error.value.hint == "download the model again"


@pytest.mark.parametrize(
    ("spoil", "responses"),
    [
        (lambda f: (f / "config.json").unlink(), r"has no config\.json"),
        (lambda f: (f / "config.json").write_text("{"), "is not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "holds no settings"),
        (lambda f: (f / "model.safetensors").unlink(), "holds no weights"),
        (lambda f: change(f / "config.json", model_type="brt"), "no architecture named 'brt'"),
        (lambda f: change(f / "config.json", is_decoder=True), "is_decoder"),
    ],
)
def test_broken_folders_say_what_is_wrong(folder, spoil, responses):
    spoil(folder)
    with pytest.raises(LevelheadError, match=responses):
        load(folder)


def test_the_hash_covers_weights_config_and_tokenizer(folder):
    before = Checkpoint.inspect(folder).hash
    assert Checkpoint.inspect(folder).hash == before
    (folder / "special_tokens_map.json").write_text("{}")
    before = Checkpoint.inspect(folder).hash
    for name in ("config.json", "tokenizer.json", "special_tokens_map.json"):
        old = (folder / name).read_text()
        (folder / name).write_text(old + " ")
        assert Checkpoint.inspect(folder).hash != before
        (folder / name).write_text(old)
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert Checkpoint.inspect(folder).hash != before
