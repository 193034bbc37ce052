"""A model that several processes share says what it says alone, heads and gradients included."""

from dataclasses import replace

import metric_cases
import pytest
import studies
import torch
import torchrun
import zoo

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.architectures.tensor_parallel import ModelParallel
from levelhead.models.loading.load import load

EIGHT = {"hidden_size": 64, "head_dim": 8, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    model = zoo.folder("llama", "LlamaForCausalLM", **EIGHT)
    lexicon = studies.lexicon(tmp_path_factory.mktemp("words"))
    measure = (
        f"seat:lexicon={lexicon},targets=things,corpus={metric_cases.corpus()},contexts_per_word=3"
    )
    return model, measure


@pytest.fixture(scope="module")
def responses(queries):
    """What one process says, and two that share a model either way."""
    return torchrun.ran(1, *queries, "forked")


# The first takes more than 5 s: five processes, of which the first imports torch for all.
@pytest.mark.parametrize("parallel", ["tensor", "rows"])
def test_two_processes_say_what_one_says(responses, parallel):
    check_same(responses[parallel], responses["alone"], parallel)


@pytest.mark.full  # torchrun imports torch in each of three processes; the one above forks instead
@pytest.mark.parametrize("parallel", ["tensor", "rows"])
def test_two_processes_of_torchrun_say_what_one_says(queries, responses, parallel):
    check_same(torchrun.ran(2, *queries, parallel), responses["alone"], parallel)


def check_same(result, alone, parallel):
    assert "refused" not in result, result
    assert result["value"] == pytest.approx(alone["value"], rel=1e-4)
    for part in ("heads", "mlp"):
        single, two = torch.tensor(alone[part]), torch.tensor(result[part])
        assert single.abs().max() > 0
        assert (single - two).abs().max() <= 1e-4 * single.abs().max(), part
    again = torch.tensor(result["again"])  # layers computed again
    assert (again - torch.tensor(result["heads"])).abs().max() <= 1e-6 * again.abs().max()
    if parallel == "tensor":
        assert "edits or activations of single heads cannot be computed" in result["edited"]
    else:
        assert result["edited"] == "yes"


def test_heads_that_cannot_be_shared_are_refused():
    with pytest.raises(
        LevelheadError, match=r"8 heads \(4 for keys\) cannot be split over 3"
    ) as output:
        ModelParallel("tensor", 0, 3).check_divisible(8, 4, fused=False)
    assert output.value.hint == "start 1 or 2 or 4 processes, or use parallel='rows'"
    with pytest.raises(LevelheadError, match="are one map"):
        ModelParallel("tensor", 0, 2).check_divisible(8, 8, fused=True)
    ModelParallel("rows", 0, 3).check_divisible(8, 4, fused=True)


def test_processes_that_share_a_model_share_no_folder(queries):
    lm = load(queries[0])
    assert lm.response_store("somewhere") == "somewhere"
    shared = replace(lm, layout=replace(lm.layout, parallel=ModelParallel("rows", 0, 2)))
    assert shared.response_store(None) == lm.in_memory_store
    with pytest.raises(LevelheadError, match="cannot share a folder of responses"):
        shared.response_store("somewhere")


def test_one_process_cannot_share(queries, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(LevelheadError, match="torchrun"):
        load(queries[0], parallel="tensor")
    with pytest.raises(UnknownNameError):
        load(queries[0], parallel="layers")
    with pytest.raises(LevelheadError, match="more than one of device, device_map and parallel"):
        load(queries[0], parallel="rows", device="cpu")
