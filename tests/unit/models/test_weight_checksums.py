"""Weights that change in memory: an error, never a stored answer of the old ones."""

import shutil
from itertools import pairwise

import pytest
import torch
import zoo
from metric_cases import FAST, made, model

from levelhead import load
from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import RunContext
from levelhead.models.loading.weight_checksums import (
    check_weights_once,
    compute_checksum,
    record_checksum,
    require_unchanged,
)

CASE = "crows"


def weight(net):
    """A weight of the layer that every answer passes through."""
    return next(value for name, value in net.named_parameters() if name.endswith("dense.weight"))


def assign(net):
    weight(net).data = weight(net).data * 2


def exchange(net):
    """A change that keeps the sum, and every number."""
    flat = weight(net).data.view(-1)
    flat[:2] = flat[:2].flip(0)


def change_buffer(net):
    next(net.buffers()).data.add_(1)


def load_other(net):
    net.load_state_dict({name: value + 1 for name, value in net.state_dict().items()})


def replace(net):
    for module in net.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.weight = torch.nn.Parameter(module.weight.detach() * 2)


def shared_memory(net):
    weight(net).detach().numpy()[0, 0] += 1


def flip_bit(net):
    weight(net).data.view(torch.int32)[0, 0] ^= 1


WAYS = {
    "data.mul_": lambda net: weight(net).data.mul_(2),
    "data.mul_ under no_grad": torch.no_grad()(lambda net: weight(net).data.mul_(2)),
    "data assigned": assign,
    "copy_": torch.no_grad()(lambda net: weight(net).copy_(weight(net) + 1)),
    "load_state_dict": load_other,
    "one element": lambda net: weight(net).data[0, 0].add_(1),
    "the last bit of a number": flip_bit,
    "two numbers exchanged": exchange,
    "a buffer": change_buffer,
    "a parameter replaced": replace,
    "a numpy view": shared_memory,
    "another precision": lambda net: net.to(torch.float64),
}


@pytest.fixture(scope="module")
def measured():
    """A model whose answers are stored in memory."""
    measure, lm = made(CASE), model(CASE)
    context = RunContext(store="memory://weights")
    return measure, context, measure(lm, inference=FAST, context=context).to_json()


@pytest.mark.parametrize("way", WAYS)
def test_changed_weights_get_no_stored_answer(way, measured):
    measure, context, before = measured
    lm = load(model(CASE).identity.name)
    assert measure(lm, inference=FAST, context=context).to_json() == before
    WAYS[way](lm.layout.model)
    for ask in (
        lambda: measure(lm, inference=FAST, context=context),
        lambda: measure.read(lm, context=context),
        lm.merged,
    ):
        with pytest.raises(
            LevelheadError, match="changed after the model was loaded, in memory"
        ) as error:
            ask()
        assert "lm.edited" in error.value.hint


def test_a_merged_copy_is_checked_from_its_start():
    lm = load(zoo.folder("bert", "BertForPreTraining")).merged()
    weight(lm.layout.model).data.mul_(2)
    with pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"):
        _ = lm.content_hash


def test_a_change_during_a_run_ends_it(tmp_path):
    """Nothing of the changed weights is stored."""
    measure, lm = made(CASE), load(model(CASE).identity.name)
    net = lm.layout.model

    def change(event):
        weight(net).data.mul_(2)

    context = RunContext(store=tmp_path, progress=change)
    with pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"):
        measure(lm, inference=FAST, context=context)
    sound = load(model(CASE).identity.name)
    expected = measure(sound, inference=FAST, context=RunContext(store="memory://sound"))
    result = measure(sound, inference=FAST, context=RunContext(store=tmp_path))
    assert result.to_json() == expected.to_json()


def test_a_file_that_changes_below_an_open_model(tmp_path, measured):
    """safetensors may map files into memory: whoever writes to one may change an open model."""
    measure, context, expected = measured
    folder = shutil.copytree(model(CASE).identity.name, tmp_path / "model")
    lm = load(folder)
    net = lm.layout.model
    before = compute_checksum(net)
    measure(lm, inference=FAST, context=context)
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 4096)
        file.write(bytes(4096))
    if compute_checksum(net) == before:
        # What was measured is still in memory.
        name = model(CASE).identity.name
        again = measure(lm, inference=FAST, context=context).to_json()
        assert again.replace(str(folder), name) == expected
    else:
        with pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"):
            measure(lm, inference=FAST, context=context)


def test_weights_that_are_mapped_from_a_file(tmp_path):
    net, path = torch.nn.Linear(8, 8, bias=False), tmp_path / "weights"
    path.write_bytes(bytes(256))
    net.weight.data = torch.from_file(str(path), shared=True, size=64).view(8, 8)
    record_checksum(net)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\x01")
    with pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"):
        require_unchanged(net)


def test_weights_that_accelerate_keeps_elsewhere_are_read(tmp_path):
    from accelerate import cpu_offload

    lm = load(zoo.folder("bert", "BertForPreTraining"))
    net = lm.layout.model
    cpu_offload(net, execution_device="cpu")
    record_checksum(net)
    lm.embed(["the nurse is here."])
    before = lm.content_hash
    hook = next(
        module._hf_hook
        for path, module in net.named_modules()
        if path.endswith("layer.1.output.dense")
    )
    hook.weights_map["weight"].mul_(2)
    with pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"):
        _ = lm.content_hash
    hook.weights_map["weight"].div_(2)
    assert lm.content_hash == before


def test_names_types_and_shapes_count():
    """Equal bytes under another name, type or shape are other weights."""
    nets = [torch.nn.Linear(4, 2, bias=False) for _ in range(4)]
    for net in nets:
        net.weight.data.zero_()
    nets[1].weight = torch.nn.Parameter(torch.zeros(2, 4))
    nets[2].weight = torch.nn.Parameter(torch.zeros(4, 2))
    nets[3].weight = torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.bfloat16))
    first, same, *others = map(compute_checksum, nets)
    assert first == same
    assert len({first, *others}) == 3
    transposed = torch.nn.Linear(2, 2, bias=False)
    before = compute_checksum(transposed)
    transposed.weight.data = transposed.weight.data.T
    assert compute_checksum(transposed) != before


def test_a_block_checks_once_and_the_next_again():
    net = torch.nn.Linear(2, 2)
    record_checksum(net)
    with check_weights_once():
        require_unchanged(net)
        net.weight.data.mul_(2)
        require_unchanged(net)
    with pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"):
        require_unchanged(net)
    with (
        check_weights_once(),
        pytest.raises(LevelheadError, match="changed after the model was loaded, in memory"),
    ):
        require_unchanged(net)


def test_empty_scalar_and_half_weights_have_a_checksum():
    net = torch.nn.Module()
    net.scalar = torch.nn.Parameter(torch.tensor(1.0))
    net.empty = torch.nn.Parameter(torch.zeros(0, 3))
    net.short = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    net.register_buffer("flags", torch.tensor([True, False]), persistent=False)
    sums = [compute_checksum(net)]
    for value in (net.scalar, net.short):
        value.data.mul_(2)
        sums.append(compute_checksum(net))
    net.flags.logical_not_()
    sums.append(compute_checksum(net))
    assert all(first != second for first, second in pairwise(sums))
    assert len(set(sums)) == 4
