"""Attention rows: one row of every head's attention, without the T x T matrix.

transformers' `output_attentions` silently returns an empty tuple under sdpa; under eager attention
it costs layers x heads x T^2 floats. `AttentionInterface.register` is the supported interface: our
function lets sdpa compute the layer's output as usual, and computes softmax(q_t K^T) only for the
requested t. Families that do not use this interface (see the table) compute eager attention anyway:
a hook copies the row from the output of their attention module and discards the rest.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.models.architectures.model_layout import ModelLayout

ROW_ATTENTION = "levelhead_row"

_thread_state = threading.local()
"""`rows`: the collector of the forward pass that this thread is running."""


class _RowCollector:
    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights  # [batch, token]: how much each query token counts in the row
        self.layer_rows: list[torch.Tensor] = []

    def add(self, attention: torch.Tensor, query_weights: torch.Tensor) -> None:
        """Average attention `[batch, heads, query, key]` over the requested query tokens."""
        self.layer_rows.append(torch.einsum("bhqk,bq->bhk", attention, query_weights.to(attention)))


@contextmanager
def collect_attention_rows(
    layout: ModelLayout, weights: torch.Tensor
) -> Iterator[list[torch.Tensor]]:
    """Collect a row `[batch, heads, token]` from every layer during one forward pass.

    Args:
        layout: Model.
        weights: `[batch, token]`, with sum 1 over a word's tokens: the row is their mean.
    """
    layout.parallel.forbid_split_heads("attention")
    collector = _RowCollector(weights)
    collect = _collect_by_hooks if layout.family.eager_attention_module else _collect_by_interface
    with collect(layout, collector):
        yield collector.layer_rows
    # A release that moves attention elsewhere must raise an error, not return fewer layers.
    if len(collector.layer_rows) != layout.layers:
        raise LevelheadError(
            f"attention was collected from {len(collector.layer_rows)} of {layout.layers} layers",
            hint="run `levelhead doctor` on this model: this version of transformers computes "
            "attention elsewhere",
        )


@contextmanager
def _collect_by_interface(layout: ModelLayout, collector: _RowCollector) -> Iterator[None]:
    config = layout.model.config
    previous = config._attn_implementation
    _thread_state.rows = collector
    try:
        # Layers read this attribute at every call; set_attn_implementation would warn about a name
        # that it does not know.
        config._attn_implementation = ROW_ATTENTION
        yield
    finally:
        config._attn_implementation = previous
        del _thread_state.rows


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute sdpa, and collect the attention of the requested query tokens."""
    collector: _RowCollector = _thread_state.rows
    queries, query_weights = _query_positions(collector.weights)
    # Shape [batch, heads, q, head_dim].
    selected_queries = query.gather(
        2, queries[:, None, :, None].expand(-1, query.shape[1], -1, query.shape[3])
    )
    # Grouped-query attention: several heads use the same keys.
    groups = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(groups, dim=1) if groups > 1 else key
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = selected_queries @ keys.transpose(2, 3) * scale
    # The same defaults as transformers' sdpa function.
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    scores = _apply_mask(scores, queries, attention_mask, causal=bool(causal))
    # transformers' eager attention computes its softmax in float32 for half precision, too.
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    collector.add(scores.softmax(-1, dtype=dtype), query_weights)
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **kwargs
    )


def _query_positions(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `[batch, q]` positions of tokens with a weight, and their weights; padded with 0."""
    max_queries = int((weights > 0).sum(1).max())
    # Texts with fewer tokens are filled up with tokens of weight 0, which add nothing.
    query_weights, positions = weights.topk(max(max_queries, 1), dim=1)
    return positions, query_weights


def _apply_mask(
    scores: torch.Tensor, queries: torch.Tensor, mask: torch.Tensor | None, *, causal: bool
) -> torch.Tensor:
    """Apply the rows of the mask that belong to the requested query tokens."""
    if mask is None:
        if not causal:
            return scores
        keys = torch.arange(scores.shape[-1], device=scores.device)
        allowed = keys[None, None, None, :] <= queries[:, None, :, None]
        # Not minus infinity: a row whose keys are all masked would become NaN.
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    # Some masks are longer than the keys.
    mask = mask[..., : scores.shape[-1]]
    if mask.shape[2] > 1:
        index = queries[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3])
        # Shape [batch, heads or 1, q, keys]: only the rows of the requested tokens.
        mask = mask.expand(len(queries), -1, -1, -1).gather(2, index)
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores + mask


@contextmanager
def _collect_by_hooks(layout: ModelLayout, collector: _RowCollector) -> Iterator[None]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(output, tuple) or output[1] is None:
            raise LevelheadError(
                f"{type(module).__name__} returned no attention",
                hint="load the model with eager attention",
            )
        queries, query_weights = _query_positions(collector.weights)
        index = queries[:, None, :, None].expand(-1, output[1].shape[1], -1, output[1].shape[3])
        collector.add(output[1].gather(2, index), query_weights)
        # The full matrix is released here: T^2 floats per head would add up over layers.
        return (output[0], None, *output[2:])

    with ExitStack() as stack:
        for block in layout.blocks:
            module = block.get_submodule(layout.family.eager_attention_module)
            stack.callback(module.register_forward_hook(hook).remove)
        yield


# With sdpa's mask function: for a name without one, transformers passes no mask to the layers, and
# padding would be attended to.
AttentionInterface.register(ROW_ATTENTION, _attention)
AttentionMaskInterface.register(ROW_ATTENTION, sdpa_mask)
