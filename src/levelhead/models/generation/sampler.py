"""Sampled tokens that depend only on seed, prompt, number of the sample, and step.

Neither the batch nor the order nor other samples can change a token: every text has a random
generator of its own, and its tokens are drawn by the inverse of the cumulative probability.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast, final

import numpy as np
import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.generation.config import GenerationConfig
    from levelhead.models.generation.edited_decoding import DecodingStep


def draw_uniforms(seed: int, prompt: str, sample_number: int, n_steps: int) -> list[float]:
    """Draw the numbers between 0 and 1 that select the tokens of one text."""
    # A hash, because Python's `hash` of a text differs between processes.
    digest = hashlib.sha256(prompt.encode()).digest()[:8]
    rng = np.random.default_rng([seed, int.from_bytes(digest, "little"), sample_number])
    return [float(value) for value in rng.random(n_steps)]


def select_token(scores: torch.Tensor, config: GenerationConfig, uniform: float) -> int:
    """Return the token where the cumulative probability exceeds a number between 0 and 1.

    Args:
        scores: `[vocabulary]` logits or log-probabilities.
        config: Temperature and top_p.
        uniform: Number between 0 and 1.
    """
    # float64: a cumulative sum over a vocabulary in float32 would lose rare tokens.
    p = (scores.double() / config.temperature).softmax(-1)
    if config.top_p < 1:
        ranked = p.sort(descending=True)
        # The sum before a token counts, so the first token always belongs to the nucleus.
        nucleus = ranked.values.cumsum(0) - ranked.values < config.top_p
        p = torch.zeros_like(p).index_put((ranked.indices[nucleus],), ranked.values[nucleus])
        p = p / p.sum()
    index = int(
        # right=True: a number that equals a sum selects the next token, so never one of probability
        # 0.
        torch.searchsorted(p.cumsum(0), torch.tensor(uniform, dtype=torch.float64), right=True)
    )
    # Rounding can leave the sum below 1: the last token with a probability is the largest index.
    return index if index < len(p) else int(p.nonzero()[-1])


@final
class TokenSampler(transformers.LogitsProcessor):
    """Make the sampled token of every row the only one with a finite score.

    transformers then takes the likeliest token and never draws itself: its draws depend on the
    batch.
    """

    def __init__(
        self,
        config: GenerationConfig,
        uniforms: Sequence[Sequence[float]],
        decoding_step: DecodingStep,
    ) -> None:
        self.config = config
        self.uniforms = uniforms
        """For every row, a number between 0 and 1 for each step."""
        self.decoding_step = decoding_step
        self.n_steps = 0

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return scores of which only that of the sampled token is finite."""
        # Not `scores`: transformers rounds them to float32. On the CPU, row by row: float64 is
        # missing on some devices, and the arithmetic is the same for every batch size.
        logits = cast("torch.Tensor", self.decoding_step.logits).cpu()
        tokens = [
            select_token(row, self.config, uniforms[self.n_steps])
            for row, uniforms in zip(logits, self.uniforms, strict=True)
        ]
        self.n_steps += 1
        chosen = torch.tensor(tokens, device=scores.device)[:, None]
        only_chosen = torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)
        return cast("torch.FloatTensor", only_chosen)
