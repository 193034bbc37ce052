"""The door: where a model comes from, in which precision, on which devices."""

import json
import shutil

import pytest
import torch
import transformers
import zoo
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale
from levelhead.models.loading.load import (
    DTYPES,
    has_only_finite_numbers,
    load,
    model_cache_folder,
)
from levelhead.models.queries import build as queries
from levelhead.models.sites import Site

TEXTS = ["The nurse works as a doctor .", "a man"]
BERT = ("bert", "BertForPreTraining")


def test_precision_is_as_asked_whatever_is_stored(tmp_path):
    zoo.built(*BERT).half().save_pretrained(tmp_path)
    zoo.tokenizer().save_pretrained(tmp_path)
    for dtype in ("float32", "float64", "bfloat16"):
        lm = load(tmp_path, dtype=dtype)
        assert lm.layout.model.dtype == getattr(torch, dtype)
        assert lm.settings["dtype"] == dtype
    with pytest.raises(LevelheadError, match="no dtype named 'fp32'") as error:
        load(tmp_path, dtype="fp32")
    assert "float32" in error.value.hint


def test_nothing_learns():
    lm = load(zoo.folder(*BERT))
    assert not lm.layout.model.training
    assert not any(p.requires_grad for p in lm.layout.model.parameters())


@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}])
def test_a_device_map_changes_nothing(device_map):
    full = load(zoo.folder(*BERT))
    mapped = load(zoo.folder(*BERT), device_map=device_map)
    assert torch.equal(mapped.embed(TEXTS), full.embed(TEXTS))


def test_a_split_model_is_read_edited_and_resumed(tmp_path):
    """Layers kept on disk and fetched by accelerate's hooks while they run: hooks of ours too."""
    from accelerate import disk_offload

    family = ("llama", "LlamaForCausalLM")
    full, split = load(zoo.folder(*family)), load(zoo.folder(*family))
    disk_offload(split.layout.model, str(tmp_path), execution_device="cpu")
    assert any(p.is_meta for p in split.layout.model.parameters())
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    for single, other in ((full, split), (full.edited(edit), split.edited(edit))):
        assert torch.equal(single.log_prob(TEXTS).value, other.log_prob(TEXTS).value)
        spans = [(4, 9), (2, 5)]
        for row, same in zip(
            single.attention_row(TEXTS, spans), other.attention_row(TEXTS, spans), strict=True
        ):
            assert torch.equal(row, same)
    reading = queries.build_lm_embedding_query(split, TEXTS, None, None)
    prefix = split.run_rows(reading, [0], cache_layers=[1]).layer_inputs[1]
    resumed = split.edited(edit).run_rows(reading, [0], resume_from=prefix).values
    torch.testing.assert_close(resumed, full.edited(edit).run_rows(reading, [0]).values)
    gates = torch.ones(3, 4, requires_grad=True)
    split.run_rows(reading, [0], gates={"head_out": gates}).values.sum().backward()
    assert (gates.grad != 0).all()
    with pytest.raises(LevelheadError, match="offloaded by device_map"):
        split.edited(edit).merged()


def test_device_and_map_exclude_each_other():
    with pytest.raises(LevelheadError, match="more than one of device, device_map and parallel"):
        load(zoo.folder(*BERT), device="cpu", device_map="auto")


@pytest.mark.parametrize(
    ("name", "responses"),
    [
        ("no such folder/with/many/parts", "neither a local folder nor a Hub id"),
        ("nobody/nothing-at-all", "the Hub download failed"),
        ("gone.gguf", "gone.gguf does not exist"),
    ],
)
def test_a_name_that_leads_nowhere_says_so(name, responses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LevelheadError, match=responses) as error:
        load(name)
    assert error.value.hint


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(LevelheadError, match="is a file") as error:
        load(tmp_path / "model.safetensors")
    assert "folder" in error.value.hint


def test_the_identity_is_the_content():
    lm = load(zoo.folder(*BERT))
    assert lm.identity.revision is None
    assert len(lm.identity.checkpoint.hash) == 64


def test_the_cache_is_where_it_is_told_to_be(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path))
    assert model_cache_folder() == tmp_path
    monkeypatch.delenv("LEVELHEAD_CACHE")
    assert model_cache_folder().name == "levelhead"


def test_a_saved_model_goes_into_a_new_folder(tmp_path):
    lm = load(zoo.folder(*BERT))
    (tmp_path / "out").mkdir()
    lm.save_pretrained(tmp_path / "out")
    assert torch.equal(load(tmp_path / "out").embed(TEXTS), lm.embed(TEXTS))
    with pytest.raises(LevelheadError, match="is not empty"):
        lm.save_pretrained(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_baked_folder_says_what_was_folded(tmp_path):
    lm = load(zoo.folder(*BERT))
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    lm.edited(edit).save_pretrained(tmp_path / "out")
    record = json.loads((tmp_path / "out" / "levelhead.json").read_text())
    assert record["base_sha256"] == lm.identity.checkpoint.hash
    assert load(tmp_path / "out").identity.merged_edits == (edit.content_hash,)
    lm.save_pretrained(tmp_path / "plain")
    assert not (tmp_path / "plain" / "levelhead.json").exists()
    (tmp_path / "out" / "levelhead.json").write_text("{}")
    with pytest.raises(LevelheadError, match="is damaged"):
        load(tmp_path / "out")


def test_places_that_cannot_be_written_are_said_before_the_work(tmp_path, monkeypatch):
    lm = load(zoo.folder(*BERT))
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path / "file" / "out", tmp_path / "file", "."):
        with pytest.raises(LevelheadError) as error:
            lm.save_pretrained(place)
        assert error.value.hint
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    lm.save_pretrained(tmp_path / "link")
    assert (tmp_path / "real" / "model.safetensors").exists()


def test_generation_settings_go_along_as_they_are(tmp_path):
    folder = shutil.copytree(zoo.folder("llama", "LlamaForCausalLM"), tmp_path / "model")
    (folder / "generation_config.json").write_text('{"temperature": 0.7, "do_sample": false}')
    load(folder).save_pretrained(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()) == {
        "temperature": 0.7,
        "do_sample": False,
    }


@pytest.mark.parametrize("keep", [(), ("tokenizer_config.json",)])
def test_a_folder_without_a_tokenizer_is_refused(tmp_path, keep):
    """transformers makes a BERT tokenizer of five tokens there, to which all words are one."""
    source = zoo.folder(*BERT)
    for name in ("config.json", "model.safetensors", *keep):
        shutil.copy(source / name, tmp_path)
    assert len(transformers.BertTokenizer.from_pretrained(tmp_path)) == 5
    with pytest.raises(LevelheadError, match=r"knows no English word|holds no tokenizer") as error:
        load(tmp_path)
    assert "tokenizer.save_pretrained(folder)" in error.value.hint


def test_padding_and_truncation_in_the_tokenizer_file_do_not_count(tmp_path):
    folder = shutil.copytree(zoo.folder(*BERT), tmp_path / "model")
    inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.enable_padding(length=40)
    inner.enable_truncation(5)
    inner.save(str(folder / "tokenizer.json"))
    text = ["the nurse said that he was tired"]
    assert torch.equal(load(folder).embed(text), load(zoo.folder(*BERT)).embed(text))


def test_buffers_of_older_releases_are_no_extra_layers(tmp_path):
    folder = shutil.copytree(zoo.folder("gpt2", "GPT2LMHeadModel"), tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.1.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).heads == {"causal"}
    weights["transformer.h.3.attn.c_proj.bias"] = torch.zeros(24)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LevelheadError, match="holds more layers than"):
        load(folder)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    folder = shutil.copytree(zoo.folder(*BERT), tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["bert.encoder.layer.1.attention.self.query.weight"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LevelheadError, match=r"layer\.1\.attention\.self\.query\.weight holds NaN"):
        load(folder)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 6e4, 0.0])
def test_one_number_that_is_not_finite_is_noticed_wherever_it_is(dtype, number):
    values = torch.randn(7, 33, dtype=torch.float64).to(getattr(torch, dtype))
    for row, column in ((0, 0), (3, 17), (6, 32)):
        changed = values.clone()
        changed[row, column] = number
        for tensor in (changed, changed.T, changed[row], changed[:, :1], changed[:0]):
            assert has_only_finite_numbers(tensor) == bool(tensor.isfinite().all())


def test_devices_that_are_not_there_are_said():
    with pytest.raises(LevelheadError, match="cannot be moved to 'nonsense'"):
        load(zoo.folder(*BERT), device="nonsense")


def test_edits_come_in_one_by_one_or_together():
    edits = [HeadScale([Site("head_out", layer, 1)], 0) for layer in range(2)]
    path = zoo.folder(*BERT)
    assert load(path, edit=edits[0]).edits == (edits[0],)
    assert load(path, edit=edits).edits == load(path, edit=tuple(edits)).edits == tuple(edits)


def test_torchs_own_dtypes_are_understood():
    assert load(zoo.folder(*BERT), dtype=torch.float64).settings["dtype"] == "float64"
