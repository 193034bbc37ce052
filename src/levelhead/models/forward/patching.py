"""Another forward for a module, for as long as a block lasts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch


@contextmanager
def replaced(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module's calls go to `forward`; its hooks stay, and afterwards it is as before."""
    own = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if own is not None:  # accelerate keeps its own forward on the instance
            module.forward = own
