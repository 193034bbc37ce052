"""A model that several processes share says what it says alone, heads and gradients included."""

from dataclasses import replace

import pytest
import metric_cases
import studies
import torch
import torchrun
import zoo

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.architectures.tensor_parallel import ModelParallel
from levelhead.models.loading.load import load

EIGHT = {"hidden_size": 64, "head_dim": 8, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    model = zoo.folder("llama", "LlamaForCausalLM", **EIGHT)
    lexicon = studies.lexicon(tmp_path_factory.mktemp("words"))
    ruler = f"seat:lexicon={lexicon},targets=things,corpus={metric_cases.corpus()},contexts_per_word=3"
    return model, ruler


@pytest.fixture(scope="module")
def said(asked):
    """What one process says, and two that share a model either way."""
    return torchrun.ran(1, *asked, "forked")


# The first takes more than 5 s: five processes, of which the first imports torch for all.
@pytest.mark.parametrize("parallel", ["tensor", "rows"])
def test_two_processes_say_what_one_says(said, parallel):
    check_same(said[parallel], said["alone"], parallel)


@pytest.mark.full  # torchrun imports torch in each of three processes; the one above forks instead
@pytest.mark.parametrize("parallel", ["tensor", "rows"])
def test_two_processes_of_torchrun_say_what_one_says(asked, said, parallel):
    check_same(torchrun.ran(2, *asked, parallel), said["alone"], parallel)


def check_same(found, alone, parallel):
    assert "refused" not in found, found
    assert found["value"] == pytest.approx(alone["value"], rel=1e-4)
    for part in ("heads", "mlp"):
        one, two = torch.tensor(alone[part]), torch.tensor(found[part])
        assert one.abs().max() > 0
        assert (one - two).abs().max() <= 1e-4 * one.abs().max(), part
    again = torch.tensor(found["again"])  # layers computed again
    assert (again - torch.tensor(found["heads"])).abs().max() <= 1e-6 * again.abs().max()
    if parallel == "tensor":
        assert "edits or activations of single heads cannot be computed" in found["edited"]
    else:
        assert found["edited"] == "yes"


def test_heads_that_cannot_be_shared_are_refused():
    with pytest.raises(
        LevelheadError, match=r"8 heads \(4 for keys\) cannot be split over 3"
    ) as told:
        ModelParallel("tensor", 0, 3).check_divisible(8, 4, fused=False)
    assert told.value.hint == "start 1 or 2 or 4 processes, or use parallel='rows'"
    with pytest.raises(LevelheadError, match="are one map"):
        ModelParallel("tensor", 0, 2).check_divisible(8, 8, fused=True)
    ModelParallel("rows", 0, 3).check_divisible(8, 4, fused=True)


def test_processes_that_share_a_model_share_no_folder(asked):
    lm = load(asked[0])
    assert lm.response_store("somewhere") == "somewhere"
    shared = replace(lm, layout=replace(lm.layout, parallel=ModelParallel("rows", 0, 2)))
    assert shared.response_store(None) == lm.in_memory_store
    with pytest.raises(LevelheadError, match="cannot share a folder of responses"):
        shared.response_store("somewhere")


def test_one_process_cannot_share(asked, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(LevelheadError, match="torchrun"):
        load(asked[0], parallel="tensor")
    with pytest.raises(UnknownNameError):
        load(asked[0], parallel="layers")
    with pytest.raises(LevelheadError, match="more than one of device, device_map and parallel"):
        load(asked[0], parallel="rows", device="cpu")
