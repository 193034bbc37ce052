"""Edits as files: what was written comes back; what was tampered with does not."""

import hashlib
import json

import pytest
import torch
import zoo
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.edits.files import (
    EditOrigin,
    InvalidEditFileError,
    load_edits,
    read_edit_origin,
    save_edits,
)
from levelhead.models.loading.load import load
from levelhead.models.sites import Site


def projection(width=24, k=2, **options):
    sample = torch.randn(width, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Projection(Site("block_out", 1), torch.linalg.qr(sample).Q.T, **options)


@pytest.fixture
def folder(tmp_path):
    save_edits(
        [HeadScale([Site("head_out", 1, 2)], 0), projection(weights=torch.tensor([0.5, 1]))],
        tmp_path / "edit",
    )
    return tmp_path / "edit"


def rewrite(folder, data=None, **changes):
    """Change an edit file and make its hashes right again, as a forger would."""
    contents = json.loads((folder / "edits.json").read_text())["contents"]
    if data is not None:
        data = save(data)
        (folder / "edits.safetensors").write_bytes(data)
        contents["tensors_sha256"] = hashlib.sha256(data).hexdigest()
    contents |= changes
    (folder / "edits.json").write_bytes(
        to_canonical_json({"sha256": content_hash(contents), "contents": contents})
    )


def test_edits_come_back_equal(folder):
    first, second = load_edits(folder)
    assert first == HeadScale([Site("head_out", 1, 2)], 0)
    assert second == projection(weights=torch.tensor([0.5, 1]))
    assert second.content_hash == projection(weights=torch.tensor([0.5, 1])).content_hash


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, unique=True),
    st.floats(-10, 10),
)
def test_head_scales_come_back_equal(tmp_path_factory, heads, factor):
    edit = HeadScale([Site("head_out", layer, head) for layer, head in heads], factor)
    folder = tmp_path_factory.mktemp("edit")
    save_edits([edit], folder)
    assert load_edits(folder) == (edit,)


def test_edits_of_other_weights_are_told_when_they_are_loaded(tmp_path):
    first = zoo.folder("bert", "BertModel")
    second = zoo.folder("bert", "BertModel", seed=1)
    origin = EditOrigin.from_model(load(first), setting="last 0,0,0")
    save_edits([projection()], tmp_path / "edit", origin=origin)
    assert read_edit_origin(tmp_path / "edit") == origin
    assert dict(origin.how) == {"setting": "last 0,0,0"}
    load(first, edit=tmp_path / "edit", dtype="bfloat16")  # the same weights
    with pytest.warns(UserWarning, match="whose weights differ from those"):
        result = load(second, edit=tmp_path / "edit")
    assert result.edits == (projection(),)
    rewrite(tmp_path / "edit", origin={"model": "x", "checkpoint": "no hash", "how": {}})
    with pytest.raises(InvalidEditFileError, match="is not an edit file"):
        load_edits(tmp_path / "edit")


def test_the_same_edit_gives_the_same_bytes(folder, tmp_path):
    save_edits(load_edits(folder), tmp_path / "again")
    for name in ("edits.json", "edits.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_model_is_loaded_with_its_edit(folder):
    path = zoo.folder("bert", "BertForPreTraining")
    texts = ["the nurse is here"]
    edited = load(path).edited(*load_edits(folder))
    assert torch.equal(load(path, edit=folder).embed(texts), edited.embed(texts))
    assert torch.equal(load(path, edit=str(folder)).embed(texts), edited.embed(texts))
    assert not torch.equal(load(path).embed(texts), edited.embed(texts))


def test_an_erasure_comes_back_equal(tmp_path):
    (basis,) = projection(k=1).basis
    edit = Erasure(
        Site("block_out", 1),
        left=2 * basis[None],
        right=basis[None] / 2,
        mean=torch.arange(24.0),
        tokens="first",
    )
    save_edits([edit, projection()], tmp_path)
    assert load_edits(tmp_path) == (edit, projection())
    tensors = load_file(tmp_path / "edits.safetensors")
    del tensors["0.mean"]
    rewrite(tmp_path, tensors)
    refused(tmp_path, "edit 0 lacks its tensor mean")


def refused(folder, responses, kind=InvalidEditFileError):
    with pytest.raises(kind, match=responses) as error:
        load_edits(folder)
    assert error.value.hint


def test_a_wrong_hash_is_refused(folder):
    data = bytearray((folder / "edits.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "edits.safetensors").write_bytes(data)
    refused(folder, "is not the file that was written with edits.json")


def test_a_changed_text_is_refused(folder):
    text = (folder / "edits.json").read_text()
    assert '"factor":0.0' in text
    (folder / "edits.json").write_text(text.replace('"factor":0.0', '"factor":2.0'))
    refused(folder, "was changed after it was written")


@pytest.mark.parametrize(
    "name", ["../stolen.safetensors", "/etc/hosts", "a/b.safetensors", "..", "", "a\\..\\b/c"]
)
def test_a_path_that_climbs_out_is_refused(folder, name):
    (folder.parent / "stolen.safetensors").write_bytes((folder / "edits.safetensors").read_bytes())
    rewrite(folder, None, tensors=name)
    refused(folder, "names a file outside its folder")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(folder, value):
    tensors = load_file(folder / "edits.safetensors")
    tensors["1.basis"][0, 0] = value
    rewrite(folder, tensors)
    refused(folder, "hold NaN or infinity", LevelheadError)


def test_a_wrong_shape_is_refused(folder):
    tensors = load_file(folder / "edits.safetensors")
    rewrite(folder, tensors | {"1.weights": torch.ones(3, dtype=torch.float64)})
    refused(
        folder, r"directions of shape \(2, 24\) do not fit weights of shape \(3,\)", LevelheadError
    )
    rewrite(folder, tensors | {"1.basis": tensors["1.basis"][:, :, None].contiguous()})
    refused(folder, r"directions of shape \(2, 24, 1\)", LevelheadError)


def test_a_width_that_is_not_the_models_is_refused(tmp_path):
    save_edits([projection(width=32)], tmp_path)
    with pytest.raises(
        LevelheadError, match="has width 32, but the model has width 24 there"
    ) as error:
        load(zoo.folder("bert", "BertModel"), edit=tmp_path)
    assert error.value.hint == "fit the edit on this model"


def test_other_numbers_than_were_saved_are_refused(folder):
    tensors = load_file(folder / "edits.safetensors")
    rewrite(folder, tensors | {"1.basis": tensors["1.basis"].flip(0).contiguous()})
    refused(folder, "the hash of edit 1 differs from the stored one")


def test_missing_pieces_are_refused(folder):
    tensors = load_file(folder / "edits.safetensors")
    del tensors["1.weights"]
    rewrite(folder, tensors)
    refused(folder, "edit 1 lacks its tensor weights")
    (folder / "edits.safetensors").unlink()
    refused(folder, r"contains no edits\.safetensors")
    (folder / "edits.json").unlink()
    refused(folder, r"contains no edits\.json")


def entry(folder):
    return json.loads((folder / "edits.json").read_text())["contents"]["edits"][0]


@pytest.mark.parametrize(
    ("changes", "responses"),
    [
        ({"kind": "pickle"}, "has the unknown kind 'pickle'"),
        ({"at": []}, "is not an edit file"),
        ({"at": [["head_out", -1, 0]]}, "is not a valid index"),
        ({"at": [["heads", 0, 0]]}, "no stream named 'heads'"),
        ({"settings": {"factor": "lots"}}, "is not a valid head_scale"),
        ({"settings": {"factor": 1.0, "exec": "x"}}, "is not a valid head_scale"),
        ({"extra": 1}, "is not an edit file"),
    ],
)
def test_strange_entries_are_refused(folder, changes, responses):
    rewrite(folder, edits=[entry(folder) | changes])
    refused(folder, responses, LevelheadError)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", '{"contents": 3}'])
def test_other_files_are_refused(folder, text):
    (folder / "edits.json").write_text(text)
    refused(folder, "is not an edit file")


def test_other_edits_are_not_written_over(folder):
    save_edits(load_edits(folder), folder)
    with pytest.raises(LevelheadError, match="holds other edits"):
        save_edits([projection()], folder)
    assert len(load_edits(folder)) == 2


def test_nothing_is_not_saved(tmp_path):
    with pytest.raises(LevelheadError, match="edits must be a non-empty list"):
        save_edits([], tmp_path)
