"""The door: where a model comes from, in which precision, on which devices."""

import pytest
import torch
import zoo

from levelhead.core.errors import LevelheadError, MissingExtra
from levelhead.models import gguf
from levelhead.models.edits import HeadScale
from levelhead.models.load import cache_folder, load
from levelhead.models.sites import Site

TEXTS = ["The nurse works as a doctor .", "a man"]
BERT = ("bert", "BertForPreTraining")


def test_precision_is_as_asked_whatever_is_stored(tmp_path):
    zoo.built(*BERT).half().save_pretrained(tmp_path)
    zoo.tokenizer().save_pretrained(tmp_path)
    for dtype in ("float32", "float64", "bfloat16"):
        lm = load(tmp_path, dtype=dtype)
        assert lm.anatomy.model.dtype == getattr(torch, dtype)
        assert lm.settings["dtype"] == dtype
    with pytest.raises(LevelheadError, match="no dtype named 'fp32'") as error:
        load(tmp_path, dtype="fp32")
    assert "float32" in error.value.mend


def test_nothing_learns():
    lm = load(zoo.folder(*BERT))
    assert not lm.anatomy.model.training
    assert not any(p.requires_grad for p in lm.anatomy.model.parameters())


@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}])
def test_a_device_map_changes_nothing(device_map):
    whole = load(zoo.folder(*BERT))
    mapped = load(zoo.folder(*BERT), device_map=device_map)
    assert torch.equal(mapped.embed(TEXTS), whole.embed(TEXTS))


def test_a_split_model_is_read_edited_and_resumed(tmp_path):
    """Layers kept on disk and fetched by accelerate's hooks while they run: hooks of ours too."""
    from accelerate import disk_offload

    family = ("llama", "LlamaForCausalLM")
    whole, split = load(zoo.folder(*family)), load(zoo.folder(*family))
    disk_offload(split.anatomy.model, str(tmp_path), execution_device="cpu")
    assert any(p.is_meta for p in split.anatomy.model.parameters())
    edit = HeadScale([Site("head_out", 1, 1)], 0)
    for one, other in ((whole, split), (whole.edited(edit), split.edited(edit))):
        assert torch.equal(one.log_prob(TEXTS).value, other.log_prob(TEXTS).value)
        spans = [(4, 9), (2, 5)]
        for row, same in zip(
            one.attention_row(TEXTS, spans), other.attention_row(TEXTS, spans), strict=True
        ):
            assert torch.equal(row, same)
    from levelhead.models import asks

    reading = asks.embedding(split, TEXTS, None, None)
    prefix = split.answer(reading, [0], keep=[1]).prefixes[1]
    resumed = split.edited(edit).answer(reading, [0], start=prefix).values
    torch.testing.assert_close(resumed, whole.edited(edit).answer(reading, [0]).values)
    gates = torch.ones(3, 4, requires_grad=True)
    split.answer(reading, [0], gates={"head_out": gates}).values.sum().backward()
    assert (gates.grad != 0).all()
    with pytest.raises(LevelheadError, match="offloaded by device_map"):
        split.edited(edit).baked()


def test_device_and_map_exclude_each_other():
    with pytest.raises(LevelheadError, match="both device and device_map"):
        load(zoo.folder(*BERT), device="cpu", device_map="auto")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no such folder/with/many/parts", "neither a folder here nor a Hub id"),
        ("nobody/nothing-at-all", "the Hub did not give it"),
        ("gone.gguf", "there is no file"),
    ],
)
def test_a_name_that_leads_nowhere_says_so(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LevelheadError, match=said) as error:
        load(name)
    assert error.value.mend


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(LevelheadError, match="is a file") as error:
        load(tmp_path / "model.safetensors")
    assert "folder" in error.value.mend


def test_the_identity_is_the_content():
    lm = load(zoo.folder(*BERT))
    assert lm.identity.revision is None
    assert len(lm.identity.checkpoint.hash) == 64


def test_the_cache_is_where_it_is_told_to_be(monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("LEVELHEAD_CACHE")
    assert cache_folder().name == "levelhead"


def test_a_gguf_that_is_none_leaves_nothing_behind(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    with pytest.raises((LevelheadError, MissingExtra)):
        gguf.converted(tmp_path / "x.gguf", tmp_path / "cache")
    left = [path for path in (tmp_path / "cache" / "gguf").iterdir() if path.suffix != ".lock"]
    assert left == []


def test_without_the_extra_gguf_says_which(tmp_path, monkeypatch):
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"levelhead\[gguf\]"):
        gguf.converted(tmp_path / "x.gguf", tmp_path / "cache")


def test_a_saved_model_goes_into_a_new_folder(tmp_path):
    lm = load(zoo.folder(*BERT))
    (tmp_path / "out").mkdir()
    lm.save_pretrained(tmp_path / "out")
    assert torch.equal(load(tmp_path / "out").embed(TEXTS), lm.embed(TEXTS))
    with pytest.raises(LevelheadError, match="is not empty"):
        lm.save_pretrained(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
