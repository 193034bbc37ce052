"""Prompts after which a masked model fills blanks differently for two groups.

Guo et al. (2022), "Auto-Debias", section 3. A prompt x follows a word c of a group and precedes a
blank; p_c(v) is the probability of the stereotyped word v there, among stereotyped words only
(equation 1). A prompt is as biased as the distributions of paired words c differ:

    loss(x) = sum over pairs k of JSD(p_c1(k), p_c2(k))                             (4)

with the Jensen-Shannon divergence of equations 2 and 3 (natural logarithm). Algorithm 1 is a beam
search: every prompt of the beam is extended by every candidate word, and the most biased are the
next beam. All beams together are the prompts to train on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.models.inputs.batching import sorted_by_length
from levelhead.models.queries.vocabulary import compute_vocabulary_logits
from levelhead.models.training.objectives import pad_token_rows, run_backbone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.architectures.model_layout import ModelLayout
    from levelhead.models.inputs.tokenizer import TokenRow, Tokens
    from levelhead.models.lm import LM
    from levelhead.models.training.objectives import Batch

BATCH_SIZE = 256
"""Prompts are a few words long."""


class BeamSearch(NamedTuple):
    """Size of the search."""

    candidates: int
    """Number of the corpus's most frequent words that extend a prompt (paper: 5,000)."""
    beam: int
    """Number of prompts that each round keeps (paper: 100)."""
    length: int
    """Largest number of words of a prompt (paper: 5)."""


def is_single_token(tokens: Tokens, word: str) -> bool:
    """Whether a word is one known token of its own, in the middle of a text."""
    encoded = tokens.encode([f"a {word} a"])[0]
    positions = encoded.positions_in_span((2, 2 + len(word)))
    return len(positions) == 1 and encoded.row.ids[positions[0]] != tokens.unknown


def token_id(tokens: Tokens, word: str) -> int:
    """The token of a word that `is_single_token`."""
    encoded = tokens.encode([f"a {word} a"])[0]
    return encoded.row.ids[encoded.positions_in_span((2, 2 + len(word)))[0]]


def encode_prompt(tokens: Tokens, word: str, prompt: str) -> TokenRow:
    """Tokens of a word, a prompt and a blank."""
    text = f"{word} {prompt} {tokens.tokenizer.mask_token}"
    return tokens.encode([text], blanks=1)[0].row


def read_blanks(
    layout: ModelLayout, batch: Batch, mask: int, stereotype_ids: torch.Tensor
) -> torch.Tensor:
    """Compute `[rows, stereotyped words]` log-probabilities in the blanks (equation 1)."""
    hidden = run_backbone(layout, batch)[batch["input_ids"] == mask]
    return compute_vocabulary_logits(layout, hidden)[:, stereotype_ids].log_softmax(-1)


def compute_divergence(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Jensen-Shannon divergence of the last dimension of log-probabilities (equations 2 and 3)."""
    mean = torch.logaddexp(first, second) - torch.log(torch.tensor(2.0, dtype=first.dtype))
    parts = [(log_p.exp() * (log_p - mean)).sum(-1) for log_p in (first, second)]
    return (parts[0] + parts[1]) / 2


def search_prompts(
    lm: LM,
    pairs: Sequence[tuple[str, str]],
    candidates: Sequence[str],
    stereotype_ids: torch.Tensor,
    search: BeamSearch,
) -> tuple[tuple[str, float], ...]:
    """Search the most biased prompts, with their divergence summed over pairs (algorithm 1).

    Args:
        lm: Masked model.
        pairs: Words of the two groups.
        candidates: Words that extend a prompt.
        stereotype_ids: Tokens of the stereotyped words.
        search: Size of the search.
    """
    found: list[tuple[str, float]] = []
    beam: list[str] = [""]
    for _ in range(search.length):
        prompts = [f"{prompt} {word}".strip() for prompt in beam for word in candidates]
        scores = _score_prompts(lm, pairs, prompts, stereotype_ids)
        # Ties are broken by the text, so that the search does not depend on the order of words.
        ranked = sorted(zip(prompts, scores, strict=True), key=lambda row: (-row[1], row[0]))
        found += ranked[: search.beam]
        beam = [prompt for prompt, _ in ranked[: search.beam]]
    return tuple(found)


@torch.no_grad()
def _score_prompts(
    lm: LM, pairs: Sequence[tuple[str, str]], prompts: Sequence[str], stereotype_ids: torch.Tensor
) -> list[float]:
    """Compute equation 4 for each prompt."""
    rows = [
        encode_prompt(lm.tokens, word, prompt)
        for prompt in prompts
        for pair in pairs
        for word in pair
    ]
    log_probs = torch.empty(len(rows), len(stereotype_ids))
    order = sorted_by_length(rows)
    for start in range(0, len(order), BATCH_SIZE):
        indices = order[start : start + BATCH_SIZE]
        batch = pad_token_rows([rows[i] for i in indices], lm.tokens.pad)
        log_probs[indices] = read_blanks(lm.layout, batch, lm.tokens.mask, stereotype_ids)
    by_pair = log_probs.view(len(prompts), len(pairs), 2, -1).double()
    totals: list[float] = compute_divergence(by_pair[:, :, 0], by_pair[:, :, 1]).sum(1).tolist()
    return totals
