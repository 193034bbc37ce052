"""Activation checkpointing: layers forget what they computed, and compute it again for a gradient.

A backward then holds the inside of one layer at a time, and takes one forward more.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import checkpoint

from levelhead.models.forward.patching import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from levelhead.models.architectures.model_layout import Anatomy

    Hooks = Callable[[int], Iterable[torch.utils.hooks.RemovableHandle]]


@contextmanager
def recomputed(anatomy: Anatomy, hooks: Hooks) -> Iterator[None]:
    """Let layers forget; what acts inside one is installed whenever it is run, by `hooks(layer)`.

    The second time is within the backward, when a forward's own hooks have long been removed.
    """
    layers = count()

    def through(real: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            layer = next(layers)

            def once(*args: Any, **kwargs: Any) -> Any:
                with ExitStack() as stack:
                    for hook in hooks(layer):
                        stack.callback(hook.remove)
                    return real(*args, **kwargs)

            # Nothing is drawn by chance: models are read in eval mode.
            return checkpoint(once, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

        return forward

    with ExitStack() as stack:
        for block in {id(block): block for block in anatomy.blocks}.values():
            stack.enter_context(replaced(block, through(block.forward)))
        yield
