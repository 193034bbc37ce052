"""Activation checkpointing: discard activations inside layers, and recompute them for a gradient.

The backward pass then holds the activations of one layer at a time, and needs one more forward
pass.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import checkpoint

from levelhead.models.forward.patching import patched_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from levelhead.models.architectures.model_layout import ModelLayout

    Hooks = Callable[[int], Iterable[torch.utils.hooks.RemovableHandle]]


@contextmanager
def checkpoint_layers(layout: ModelLayout, hooks: Hooks) -> Iterator[None]:
    """Checkpoint all layers during one forward pass.

    Args:
        layout: Model.
        hooks: Registers the hooks inside a layer. It is called for every run of the layer, because
            the second run is in the backward pass, after the other hooks were removed.
    """
    # Counted over all calls: a shared layer's module does not know which layer it is.
    layers = count()

    def make_forward(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            layer = next(layers)

            def run_layer(*args: Any, **kwargs: Any) -> Any:
                with ExitStack() as stack:
                    for hook in hooks(layer):
                        stack.callback(hook.remove)
                    return original(*args, **kwargs)

            # The random state is not saved: models are in eval mode, without dropout.
            # Reentrant checkpointing needs an input that requires a gradient; here only gates do.
            return checkpoint(
                run_layer, *args, use_reentrant=False, preserve_rng_state=False, **kwargs
            )

        return forward

    with ExitStack() as stack:
        # Once per module: a shared layer patched twice would be a checkpoint inside a checkpoint.
        for block in {id(block): block for block in layout.blocks}.values():
            stack.enter_context(patched_forward(block, make_forward(block.forward)))
        yield
