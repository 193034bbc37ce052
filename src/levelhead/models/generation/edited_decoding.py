"""Edits of every forward pass of a generation: of the prompt, and of each generated token.

transformers calls the model's forward method once for the prompt and once for each step, with a
cache of keys and values. Here each of these calls is a `ForwardPass` of its own, so that an edit
which is not reached raises in every step.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import transformers

from levelhead.core.errors import LevelheadError
from levelhead.models.forward.forward_pass import ForwardPass
from levelhead.models.forward.hooks import hooks_of_locked_model
from levelhead.models.forward.patching import patched_forward
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.edits.base import Edit


def acts_on_first_token(edit: Edit) -> bool:
    """Whether an edit acts only on the first token of a text."""
    return edit.settings.get("tokens") == "first"


@final
@dataclass
class DecodingStep:
    """The latest forward pass of a generation."""

    logits: torch.Tensor | None = None
    """`[rows, vocabulary]` scores of the next token, in the precision of the model."""


@contextmanager
def edited_decoding(layout: ModelLayout, edits: tuple[Edit, ...]) -> Iterator[DecodingStep]:
    """Lock a model for one generation, and apply edits in each of its forward passes.

    Args:
        layout: Model.
        edits: Edits. Those of the first token act in the pass of the prompt: its keys and values
            are cached.

    Yields:
        The latest forward pass.
    """
    step = DecodingStep()
    forward = layout.model.forward
    later_edits = tuple(edit for edit in edits if not acts_on_first_token(edit))
    calls = 0

    # Wrapped: transformers reads the parameters of the forward method from its signature.
    @functools.wraps(forward)
    def edited_forward(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        rows = tuple(map(tuple, kwargs["input_ids"].tolist()))
        forward_pass = ForwardPass(layout, rows=rows, edits=later_edits if calls else edits)
        calls += 1
        with hooks_of_locked_model(forward_pass):
            output = forward(*args, **kwargs)
        step.logits = output.logits[:, -1]
        # The maximum of scores with a NaN is some token: it would look like an answer.
        if not step.logits.isfinite().all():
            raise LevelheadError(
                "the model returned NaN or infinity",
                hint="load it with dtype='float32'; if this persists, the weights are damaged",
            )
        return output

    with (
        layout.exclusive_forward(),
        # transformers advises on an attention mask that it has itself removed.
        quiet(),
        _default_generation_config(layout.model),
        patched_forward(layout.model, edited_forward),
    ):
        yield step


@contextmanager
def _default_generation_config(model: Any) -> Iterator[None]:
    """Hide the checkpoint's settings: transformers fills in whatever a call leaves open."""
    original = model.generation_config
    model.generation_config = transformers.GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = original
