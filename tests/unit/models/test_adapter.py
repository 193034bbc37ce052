"""Edits as LoRA adapters: PEFT gives the numbers of the hooked model, and switches them off."""

import json

import exports
import pytest
import torch
import zoo
from safetensors.torch import load_file
from shifts import shift

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.merge import NotMergeableError
from levelhead.models.export.adapter import find_low_rank_updates
from levelhead.models.loading.load import load
from levelhead.models.sites import Site


def save(lm, folder):
    lm.save_pretrained(folder, file_format="peft")
    return json.loads((folder / "adapter_config.json").read_text())


@pytest.mark.parametrize("family", exports.MODELS)
@pytest.mark.parametrize("name", ["masked heads", "projection", "LEACE", "shift"])
def test_peft_gives_the_numbers_of_the_hooked_model(family, name, tmp_path):
    lm = load(zoo.folder(family, exports.MODELS[family]))
    edited = lm.edited(*exports.make_edits(lm)[name])
    inputs = exports.encode(lm)
    save(edited, tmp_path / "adapter")
    model = exports.load_peft(lm, tmp_path / "adapter")
    hooked, base = exports.run_hooked(edited, inputs), lm.layout.model(**inputs).logits
    assert (hooked - base).abs().max() > 0.05
    torch.testing.assert_close(model(**inputs).logits, hooked, rtol=1e-5, atol=1e-5)
    with model.disable_adapter():
        assert torch.equal(model(**inputs).logits, base)


def test_edits_before_and_after_a_map_and_of_some_columns_join(tmp_path):
    """An input and an output edit of one map; of a fused projection only the query's columns."""
    lm = load(zoo.folder("bert", "BertForSequenceClassification"))
    width = lm.layout.width
    basis = torch.linalg.qr(torch.randn(width, 2, dtype=torch.float64)).Q.T
    both = lm.edited(
        Projection(Site("block_out", 2), basis, tokens="first"),
        Projection(Site("pooled"), basis),
        HeadScale([Site("head_out", 0, 1)], 2),
    )
    inputs = exports.encode(lm)
    assert save(both, tmp_path / "both")["r"] == lm.layout.head_dim
    scores = exports.run_exported(both, tmp_path / "both", "peft", inputs)
    torch.testing.assert_close(scores, exports.run_hooked(both, inputs), rtol=1e-5, atol=1e-5)
    gpt = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    query = gpt.edited(Projection(Site("query", 1, 2), basis[:1, :6] / basis[:1, :6].norm()))
    (update,) = find_low_rank_updates(query).values()
    assert update.up[width:].abs().max() == 0  # keys and values stay the base's
    assert exports.max_difference(query, "peft", exports.encode(gpt)) < 1e-5


def test_the_rank_is_that_of_the_edit(tmp_path):
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    edits = exports.make_edits(lm)
    config = save(lm.edited(*edits["projection"]), tmp_path / "projection")
    assert (config["r"], config["lora_alpha"], config["lora_bias"]) == (2, 2, False)
    assert config["target_modules"] == ["model.layers.1.mlp.down_proj"]
    heads = save(lm.edited(*edits["masked heads"]), tmp_path / "heads")
    assert heads["r"] == lm.layout.head_dim
    tensors = load_file(tmp_path / "heads" / "adapter_model.safetensors")
    assert sorted(tensors) == [
        f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora_{part}.weight"
        for layer in (1, 2)
        for part in "AB"
    ]


def test_a_change_of_biases_is_stated(tmp_path):
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    save(lm.edited(shift(lm, Site("mlp_out", 1))), tmp_path / "adapter")
    text = (tmp_path / "adapter" / "README.md").read_text()
    assert "vLLM refuses adapters with biases" in text
    assert "PeftModel.from_pretrained" in text


def test_what_no_adapter_can_hold_is_refused_by_name(tmp_path):
    lm = load(zoo.folder("bert", "BertForSequenceClassification"))
    edits = exports.make_edits(lm)
    with pytest.raises(NotMergeableError, match="conditional_shift at mlp_out 1 cannot be merged"):
        save(lm.edited(*edits["conditional shift"]), tmp_path / "out")
    every = HeadScale([Site("head_out", 1, head) for head in range(lm.layout.heads)], 0)
    with pytest.raises(LevelheadError, match="changes all 24 directions of the activation"):
        save(lm.edited(every), tmp_path / "out")
    with pytest.raises(LevelheadError, match="no edit to write as peft"):
        save(lm, tmp_path / "out")
    assert not (tmp_path / "out").exists()
