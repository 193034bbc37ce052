"""GGUF files: converted once, from the file alone, with the beginning token it asks for."""

import json

import numpy as np
import pytest
import torch
import zoo
from gguf import GGUFWriter

from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.models.loading import gguf
from levelhead.models.loading.load import load

TEXTS = ["the nurse works", "she was here"]


@pytest.fixture
def written(tmp_path):
    """A tiny Llama as GGUF; the beginning token as asked for."""

    def write(*, bos, without=""):
        path = tmp_path / "model.gguf"
        file = GGUFWriter(path, "llama")
        width, inner, heads = 32, 64, 4
        words = ["<unk>", "<s>", "</s>", "\u2581", *(f"\u2581{word}" for word in zoo.WORDS)]
        file.add_context_length(64)
        file.add_embedding_length(width)
        file.add_block_count(2)
        file.add_feed_forward_length(inner)
        file.add_head_count(heads)
        file.add_head_count_kv(heads)
        file.add_layer_norm_rms_eps(1e-5)
        file.add_rope_dimension_count(width // heads)
        file.add_vocab_size(len(words))
        file.add_tokenizer_model("llama")
        file.add_token_list(words)
        file.add_token_scores([float(-i) for i in range(len(words))])
        file.add_token_types([2, 3, 3] + [1] * (len(words) - 3))
        file.add_bos_token_id(1)
        file.add_eos_token_id(2)
        file.add_unk_token_id(0)
        file.add_add_bos_token(bos)
        rng = np.random.default_rng(0)

        def add(name, *shape):
            if name == without:
                return
            items = len(shape) == 1
            data = np.ones(shape) if items else rng.normal(0, 0.2, shape)
            file.add_tensor(f"{name}.weight", data.astype(np.float32))

        add("token_embd", len(words), width)
        add("output_norm", width)
        add("output", len(words), width)
        for i in range(2):
            for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                add(f"blk.{i}.{name}", width, width)
            add(f"blk.{i}.ffn_gate", inner, width)
            add(f"blk.{i}.ffn_up", inner, width)
            add(f"blk.{i}.ffn_down", width, inner)
            add(f"blk.{i}.attn_norm", width)
            add(f"blk.{i}.ffn_norm", width)
        file.write_header_to_file()
        file.write_kv_data_to_file()
        file.write_tensors_to_file()
        file.close()
        return path

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gguf"


@pytest.mark.parametrize("bos", [True, False])
def test_the_file_says_whether_a_beginning_token_is_put(written, bos):
    lm = load(written(bos=bos))
    assert lm.heads == {"causal"}
    (encoded,) = lm.tokens.encode(TEXTS[:1])
    assert (encoded.row.ids[0] == 1) is bos
    assert lm.log_prob(TEXTS[:1]).token_counts.tolist() == [3 if bos else 2]


def test_it_is_converted_once(written, cache):
    path = written(bos=True)
    first = load(path).log_prob(TEXTS).value
    (folder,) = (entry for entry in cache.iterdir() if entry.is_dir())
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert torch.equal(load(path).log_prob(TEXTS).value, first)
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert [entry.name for entry in cache.iterdir() if entry.is_dir()] == [folder.name]


def test_what_lies_beside_it_is_not_read(written, tmp_path):
    path = written(bos=True)
    expected = load(path).log_prob(TEXTS).value
    flag = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(f"import os\nos.mkdir({str(flag)!r})\n")
    zoo.tokenizer(decoder=True).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["evil.E", "evil.E"]}, "tokenizer_class": "E"})
    )
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    other = tmp_path / "other"
    assert torch.equal(load(gguf.convert_gguf(path, other)).log_prob(TEXTS).value, expected)
    assert not flag.exists()


def test_a_file_that_is_none_leaves_nothing_behind(tmp_path, cache):
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    with pytest.raises(LevelheadError, match="cannot read this GGUF file"):
        load(tmp_path / "x.gguf")
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []


@pytest.mark.parametrize("name", ["blk.1.attn_q", "blk.0.ffn_up", "output_norm", "token_embd"])
def test_a_file_that_lacks_weights_is_refused(written, name):
    """transformers would take random ones, which show no bias."""
    path = written(bos=True, without=name)
    with pytest.raises(LevelheadError, match=r"initialised at random|cannot read this GGUF file"):
        load(path)


def test_without_the_extra_it_says_which(tmp_path, monkeypatch):
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"levelhead\[gguf\]"):
        load(tmp_path / "x.gguf")
