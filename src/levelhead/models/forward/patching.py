"""Temporarily replace the forward method of a module."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch


@contextmanager
def patched_forward(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace a module's forward method inside this context; its hooks stay active.

    Args:
        module: Module to patch.
        forward: Function that is called instead.
    """
    original = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if original is not None:  # accelerate stores its own forward method on the instance
            module.forward = original
