"""Notice weights that a caller changes in memory: they have another hash than the files.

The hash of a model is that of its files and edits. Responses of weights that were changed in place
would be stored under it, and stored responses of the files would be taken for those of the changed
weights: the change would look as if it had no effect.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
import xxhash
from torch import distributed

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHECKSUMS: WeakKeyDictionary[torch.nn.Module, bytes] = WeakKeyDictionary()
_CHECKED: ContextVar[set[int] | None] = ContextVar("models checked in this block", default=None)


def record_checksum(model: torch.nn.Module) -> None:
    """Record the weights of a model as those that its hash stands for."""
    _CHECKSUMS[model] = compute_checksum(model)


def require_unchanged(model: torch.nn.Module) -> None:
    """Raise an error if any byte of the weights or buffers changed since `record_checksum`."""
    checked = _CHECKED.get()
    if checked is not None and id(model) in checked:
        return
    if _CHECKSUMS.setdefault(model, checksum := compute_checksum(model)) != checksum:
        raise LevelheadError(
            # A changed file changes weights that are mapped from it.
            "the weights were changed after the model was loaded, in memory or in their file",
            hint="use lm.edited(...), or save the changed model and load it from there",
        )
    if checked is not None:
        checked.add(id(model))


@contextmanager
def check_weights_once() -> Iterator[None]:
    """Check each model only once within the block, which must run no forward pass.

    For plans that need the hash of a model, or of its edited copies, many times.
    """
    token = _CHECKED.set(set())
    try:
        yield
    finally:
        _CHECKED.reset(token)


def compute_checksum(model: torch.nn.Module) -> bytes:
    """Checksum of the names, types, shapes and bytes of all weights and buffers.

    torch counts changes in place, but not those of `weight.data` or of a numpy array that shares
    the memory. So all bytes are read: about 0.2 s for a gigabyte, less than a short forward pass.
    """
    checksum = xxhash.xxh3_128()
    for name, value in _named_tensors(model):
        checksum.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        # As bytes: numpy has no bfloat16.
        flat = value.detach().cpu().contiguous().reshape(-1)
        checksum.update(flat.view(torch.uint8).numpy().data)
    return checksum.digest()


def _named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights and buffers of this process, where they lie between two forward passes."""
    if distributed.is_available() and distributed.is_initialized():
        _reshard(model)
    for name, value in chain(model.named_parameters(), model.named_buffers()):
        if hasattr(value, "to_local"):
            yield name, value.to_local()
        elif not value.is_meta:
            yield name, value
        else:
            # Weights that accelerate offloads to the CPU or a disk are in its hooks. In the same
            # order as before, so that offloading them is no change.
            path, _, key = name.rpartition(".")
            hook = getattr(model.get_submodule(path), "_hf_hook", None)
            offloaded = getattr(hook, "weights_map", None)
            if offloaded is not None:
                yield name, offloaded[key]


def _reshard(model: torch.nn.Module) -> None:
    """Drop weights that were gathered from other processes for a forward pass."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
