"""Edited models as graphs: torch.export and onnxruntime give the numbers of the hooked model."""

import sys

import exports
import pytest
import torch
import zoo

from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.models.edits.base import Projection
from levelhead.models.loading.load import load
from levelhead.models.sites import Site


def check(family, name, file_format, folder):
    """Compare texts of another number and length than those that were traced, and a single one."""
    lm = load(zoo.folder(family, exports.MODELS[family]))
    edited = lm.edited(*exports.make_edits(lm)[name])
    edited.save_pretrained(folder, file_format=file_format)
    for texts in (exports.TEXTS, [*exports.TEXTS, "she is here"], exports.TEXTS[:1]):
        inputs = exports.encode(lm, texts)
        hooked, base = exports.run_hooked(edited, inputs), lm.layout.model(**inputs).logits
        assert (hooked - base).abs().max() > 0.05
        scores = exports.run_exported(edited, folder, file_format, inputs)
        torch.testing.assert_close(scores, hooked, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", exports.GRAPH_EDITS)
def test_torch_export_gives_the_numbers_of_the_hooked_model(name, tmp_path):
    check("bert", name, "torch", tmp_path / "out")
    assert "torch.export.load" in (tmp_path / "out" / "README.md").read_text()


# The export to ONNX compiles for seconds, even of a tiny model.
def test_onnxruntime_gives_the_numbers_of_the_hooked_model(tmp_path):
    check("bert", "conditional shift", "onnx", tmp_path / "out")


@pytest.mark.full
@pytest.mark.parametrize("family", exports.MODELS)
@pytest.mark.parametrize("name", exports.GRAPH_EDITS)
@pytest.mark.parametrize("file_format", ["torch", "onnx"])
def test_graphs_of_every_family(family, name, file_format, tmp_path):
    check(family, name, file_format, tmp_path / "out")


def test_an_edit_that_no_graph_can_hold_is_refused(tmp_path):
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    basis = torch.eye(lm.layout.width, dtype=torch.float64)[:1]
    first = lm.edited(Projection(Site("block_out", 1), basis, tokens="first"))
    with pytest.raises(LevelheadError, match="acts on the first token, which a plain hook cannot"):
        first.save_pretrained(tmp_path / "out", file_format="torch")
    assert not (tmp_path / "out").exists()


def test_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    edited = lm.edited(*exports.make_edits(lm)["projection"])
    with pytest.raises(MissingExtraError, match=r"pip install 'levelhead\[onnx\]'"):
        edited.save_pretrained(tmp_path / "out", file_format="onnx")


def test_unknown_formats_and_separate_edits_are_refused(tmp_path):
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    edited = lm.edited(*exports.make_edits(lm)["projection"])
    with pytest.raises(LevelheadError, match="no format of a model named 'tensorrt'"):
        edited.save_pretrained(tmp_path / "out", file_format="tensorrt")
    with pytest.raises(LevelheadError, match="peft has the edit inside"):
        edited.save_pretrained(tmp_path / "out", file_format="peft", with_edit_file=True)
