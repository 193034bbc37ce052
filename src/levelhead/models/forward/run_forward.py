"""Run a model on one batch, as far as a readout needs."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from levelhead.models.forward.attention_rows import collect_attention_rows
from levelhead.models.forward.hooks import forward_hooks
from levelhead.models.queries.query import ForwardOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.forward.forward_pass import CachedLayerInput, ForwardPass
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.queries.query import OutputStage, Readout


def run_forward(forward_pass: ForwardPass, batch: Batch, readout: Readout) -> ForwardOutput:
    """Run one forward pass with its hooks.

    Args:
        forward_pass: Plan of the pass.
        batch: Rows of the pass.
        readout: Decides how far the pass goes, and whose attention is collected.
    """
    layout = forward_pass.layout
    with forward_hooks(forward_pass):
        hidden, logits, attention = _run_layers(layout, batch, readout, forward_pass.resume_from)
    return ForwardOutput(layout, batch, hidden, logits, forward_pass.captured, attention)


def _run_layers(
    layout: ModelLayout, batch: Batch, readout: Readout, resume_from: CachedLayerInput | None
) -> tuple[torch.Tensor | None, torch.Tensor | None, list[torch.Tensor]]:
    # A layer beyond the last one stands for the pooled vector: only the classifier is run.
    if resume_from and resume_from.layer > layout.layers:
        return None, layout.hook_point("pooled", 0).module(resume_from.output), []
    inputs: dict[str, Any] = dict(batch.inputs)
    if (
        resume_from
        and resume_from.layer == layout.layers
        and resume_from.cache_key.is_token_restricted
    ):
        # No layer is run, and the pooler reads only the first token: the result does not depend
        # on the mask.
        inputs.pop("attention_mask", None)
    weights = readout.attention_query_weights(batch)
    if weights is None:
        return (*_run_model(layout, inputs, batch, readout.output_stage), [])
    if layout.family.eager_attention_module and _can_output_attention(layout):
        inputs["output_attentions"] = True
    with collect_attention_rows(layout, weights) as attention:
        hidden, logits = _run_model(layout, inputs, batch, readout.output_stage)
    return hidden, logits, attention


def _run_model(
    layout: ModelLayout, inputs: dict[str, Any], batch: Batch, stage: OutputStage
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the last hidden states, or the logits of a head."""
    if stage == "classifier" and not layout.family.is_causal:
        return None, layout.model(**inputs).logits
    # A cache of keys and values is of no use here and costs memory.
    if "use_cache" in _parameter_names(type(layout.backbone).forward):
        inputs["use_cache"] = False
    output = layout.backbone(**inputs)
    if stage == "next_sentence":
        head = layout.model.get_submodule(layout.model_class.next_sentence)
        return None, head(output.pooler_output)
    if stage == "classifier":
        # A decoder is classified by its last token. The model's own forward finds it as the
        # last id that is not the padding id, but a text may end with that id; we know the
        # lengths (decision 0005).
        last = torch.tensor(batch.lengths, device=output.last_hidden_state.device) - 1
        rows = torch.arange(len(last), device=last.device)
        head = layout.model.get_submodule(layout.model_class.classifier)
        return None, head(output.last_hidden_state[rows, last])
    return output.last_hidden_state, None


def _can_output_attention(layout: ModelLayout) -> bool:
    """Whether the attention module needs a request to return its attention, as in DeBERTa."""
    module = layout.blocks[0].get_submodule(layout.family.eager_attention_module)
    return "output_attentions" in inspect.signature(module.forward).parameters


@cache
def _parameter_names(forward: Callable[..., object]) -> frozenset[str]:
    """Return the names of a function's parameters."""
    return frozenset(inspect.signature(forward).parameters)
