"""Scores over the vocabulary, only where they are read, never [batch, length, vocabulary]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from levelhead.models.architectures.model_layout import Anatomy

PIECE = 2**24
"""Most scores held at a time: 64 MiB in float32."""


def scores(anatomy: Anatomy, hidden: torch.Tensor) -> torch.Tensor:
    """`[n, vocabulary]` logits for `[n, width]` last hidden states, by the model's own head."""
    x = hidden
    for path in anatomy.cls.vocabulary:
        x = anatomy.model.get_submodule(path)(x)
    cap = getattr(anatomy.model.config, "final_logit_softcapping", None)
    return x if cap is None else torch.tanh(x / cap) * cap


def log_probs(anatomy: Anatomy, hidden: torch.Tensor) -> torch.Tensor:
    """`[n, vocabulary]` natural log-probabilities, in float32 at least."""
    logits = scores(anatomy, hidden)
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return logits.log_softmax(-1, dtype=wide)


def log_probs_of(anatomy: Anatomy, hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """`[n, k]` log-probabilities of some words at each of `[n, width]` hidden states.

    Worked off in pieces; where a gradient is wanted, pieces are computed again in the backward
    instead of being kept.
    """

    def piece(part: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return log_probs(anatomy, part).gather(1, wanted)

    step = max(1, PIECE // int(anatomy.model.config.vocab_size))
    parts = []
    for part, wanted in zip(hidden.split(step), ids.split(step), strict=True):
        if part.requires_grad:
            parts.append(checkpoint(piece, part, wanted, use_reentrant=False))
        else:
            parts.append(piece(part, wanted))
    return torch.cat(parts)
