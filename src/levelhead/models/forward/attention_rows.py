"""One row of every head's attention, without the T x T matrix.

transformers' `output_attentions` returns an empty tuple under sdpa, silently, and under eager it
costs layers x heads x T^2 floats. `AttentionInterface.register` is the supported seam: our function
lets sdpa compute the layer's output as always and works out softmax(q_t K^T) for the wanted t only.
Families that do not pass there (the table says which) compute eager attention anyway: a hook takes
the row out of what their attention module returns and lets go of the rest.
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

    from levelhead.models.architectures.model_layout import Anatomy

NAME = "levelhead_row"

_now = threading.local()
"""`rows`: what is collected by the forward that this thread is in."""


class _Rows:
    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights  # [batch, token]: how much each query token counts in the row
        self.found: list[torch.Tensor] = []

    def add(self, attention: torch.Tensor, counts: torch.Tensor) -> None:
        """Average `[batch, heads, query, key]` over the wanted queries."""
        self.found.append(torch.einsum("bhqk,bq->bhk", attention, counts.to(attention)))


@contextmanager
def attention_rows(anatomy: Anatomy, weights: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Collect, during one forward, a row `[batch, heads, token]` from every layer.

    Args:
        anatomy: the model.
        weights: `[batch, token]`, summing to 1 over a word's tokens: the row is their mean.
    """
    anatomy.ranks.refuse_heads("attention")
    rows = _Rows(weights)
    way = _by_hooks if anatomy.family.eager_row else _by_interface
    with way(anatomy, rows):
        yield rows.found
    if len(rows.found) != anatomy.layers:
        raise LevelheadError(
            f"attention was seen in {len(rows.found)} of {anatomy.layers} layers",
            mend="run `levelhead doctor` on this model: this version of transformers computes its "
            "attention elsewhere",
        )


@contextmanager
def _by_interface(anatomy: Anatomy, rows: _Rows) -> Iterator[None]:
    config = anatomy.model.config
    before = config._attn_implementation
    _now.rows = rows
    try:
        # The attribute the model's own layers read at every call; set_attn_implementation would
        # warn about names it does not know.
        config._attn_implementation = NAME
        yield
    finally:
        config._attn_implementation = before
        del _now.rows


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """sdpa, and beside it the attention of the wanted queries."""
    rows: _Rows = _now.rows
    queries, counts = _positions(rows.weights)
    picked = query.gather(
        2, queries[:, None, :, None].expand(-1, query.shape[1], -1, query.shape[3])
    )
    groups = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(groups, dim=1) if groups > 1 else key
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = picked @ keys.transpose(2, 3) * scale
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    scores = _masked(scores, queries, attention_mask, causal=bool(causal))
    wide = torch.float64 if scores.dtype == torch.float64 else torch.float32
    rows.add(scores.softmax(-1, dtype=wide), counts)
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **kwargs
    )


def _positions(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`[batch, q]` positions of the tokens that count, and their weights; padded with zeros."""
    most = int((weights > 0).sum(1).max())
    counts, positions = weights.topk(max(most, 1), dim=1)
    return positions, counts


def _masked(
    scores: torch.Tensor, queries: torch.Tensor, mask: torch.Tensor | None, *, causal: bool
) -> torch.Tensor:
    """The rows of the mask that belong to the wanted queries, applied."""
    if mask is None:
        if not causal:
            return scores
        keys = torch.arange(scores.shape[-1], device=scores.device)
        allowed = keys[None, None, None, :] <= queries[:, None, :, None]
        return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    mask = mask[..., : scores.shape[-1]]
    if mask.shape[2] > 1:
        index = queries[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3])
        mask = mask.expand(len(queries), -1, -1, -1).gather(2, index)
    if mask.dtype == torch.bool:
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores + mask


@contextmanager
def _by_hooks(anatomy: Anatomy, rows: _Rows) -> Iterator[None]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(output, tuple) or output[1] is None:
            raise LevelheadError(
                f"{type(module).__name__} returned no attention",
                mend="load the model with its eager attention",
            )
        queries, counts = _positions(rows.weights)
        index = queries[:, None, :, None].expand(-1, output[1].shape[1], -1, output[1].shape[3])
        rows.add(output[1].gather(2, index), counts)
        return (output[0], None, *output[2:])

    with ExitStack() as stack:
        for block in anatomy.blocks:
            module = block.get_submodule(anatomy.family.eager_row)
            stack.callback(module.register_forward_hook(hook).remove)
        yield


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
