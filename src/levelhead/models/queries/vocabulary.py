"""Vocabulary scores, computed only at the positions that are read.

A tensor [batch, length, vocabulary] is never created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from levelhead.models.architectures.model_layout import ModelLayout

MAX_SCORES = 2**24
"""Maximum number of scores in memory at a time: 64 MiB in float32."""


def compute_vocabulary_logits(layout: ModelLayout, hidden: torch.Tensor) -> torch.Tensor:
    """Compute `[n, vocabulary]` logits of `[n, width]` last hidden states with the model's head."""
    x = hidden
    for path in layout.model_class.vocabulary:
        x = layout.model.get_submodule(path)(x)
    # Gemma 2 applies this in the forward method that is bypassed here.
    cap = getattr(layout.model.config, "final_logit_softcapping", None)
    return x if cap is None else torch.tanh(x / cap) * cap


def compute_vocabulary_log_probs(layout: ModelLayout, hidden: torch.Tensor) -> torch.Tensor:
    """Compute `[n, vocabulary]` natural log-probabilities, at least in float32."""
    logits = compute_vocabulary_logits(layout, hidden)
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return logits.log_softmax(-1, dtype=dtype)


def compute_token_log_probs(
    layout: ModelLayout, hidden: torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    """Compute `[n, k]` log-probabilities of tokens at each of `[n, width]` hidden states.

    The states are processed in chunks. If a gradient is needed, chunks are recomputed in the
    backward pass instead of being held in memory.

    Args:
        layout: Model.
        hidden: Last hidden states.
        ids: `[n, k]` token ids.
    """

    def compute_chunk(hidden_chunk: torch.Tensor, ids_chunk: torch.Tensor) -> torch.Tensor:
        return compute_vocabulary_log_probs(layout, hidden_chunk).gather(1, ids_chunk)

    step = max(1, MAX_SCORES // int(layout.model.config.vocab_size))
    chunks = []
    for hidden_chunk, ids_chunk in zip(hidden.split(step), ids.split(step), strict=True):
        if hidden_chunk.requires_grad:
            chunks.append(checkpoint(compute_chunk, hidden_chunk, ids_chunk, use_reentrant=False))
        else:
            chunks.append(compute_chunk(hidden_chunk, ids_chunk))
    return torch.cat(chunks)
