"""Sampling: continuations of a causal model, sampled token by token.

A sampled token depends only on the seed, the prompt's text, the number of the sample and the step:
neither the batch nor the order nor other samples can change it. There is no cache of keys and
values, so edits act in every forward pass as usual. Samples that are equal so far share a row.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.tokenizer import TextTooLongError, TokenRow
from levelhead.models.queries.query import NextTokenLogProbs, Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class SamplingConfig:
    """Settings of the sampling."""

    tokens: int = 20
    """Maximum number of sampled tokens; fewer if the model ends the text."""
    temperature: float = 1.0
    top_p: float = 1.0
    """Sample only from the likeliest tokens that together have this probability."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or not self.temperature > 0 or not 0 < self.top_p <= 1 or self.seed < 0:
            raise LevelheadError(
                f"no text can be sampled with {self}",
                hint="give at least 1 token, a temperature above 0, and a top_p above 0 and at "
                "most 1",
            )


class GeneratedText(NamedTuple):
    """One continuation."""

    ids: tuple[int, ...]
    text: str
    """Text after the prompt, without the rest of a word that the prompt began."""
    has_ended: bool
    """Whether the model ended the text."""


def encode_prompts(lm: LM, prompts: Sequence[str], sampling: SamplingConfig) -> list[TokenRow]:
    """Convert prompts to tokens; raise if there is no room for a continuation."""
    if not lm.layout.model_class.causal:
        raise LevelheadError("only a causal model can continue a text", hint="use a causal model")
    rows = [encoded.row for encoded in lm.tokens.encode(prompts)]
    for i, row in enumerate(rows):
        n_tokens = len(row.ids) + sampling.tokens
        if n_tokens > lm.tokens.max_length:
            raise TextTooLongError(
                f"text {i} with {sampling.tokens} more tokens has {n_tokens}, but the model "
                f"accepts at most {lm.tokens.max_length}",
                hint="shorten it, or sample fewer tokens",
            )
    return rows


def sample_continuations(
    lm: LM, prompts: Sequence[str], sample_numbers: Sequence[int], sampling: SamplingConfig
) -> list[GeneratedText]:
    """Sample one continuation of each prompt.

    Args:
        lm: Causal model.
        prompts: Texts without a space at their end.
        sample_numbers: For each prompt, the number of the sample.
        sampling: Settings.
    """
    rows = encode_prompts(lm, prompts, sampling)
    generators = [
        _make_generator(sampling.seed, *prompt_and_number)
        for prompt_and_number in zip(prompts, sample_numbers, strict=True)
    ]
    end_ids = _end_token_ids(lm)
    generated: list[list[int]] = [[] for _ in rows]
    active = list(range(len(rows)))
    for _ in range(sampling.tokens):
        current_rows = [_extend_row(rows[i], generated[i]) for i in active]
        # Equal rows have equal probabilities: in the first step, all samples of a prompt.
        unique_rows = list(dict.fromkeys(current_rows))
        last = tuple(len(row.ids) - 1 for row in unique_rows)
        log_probs = lm.run(Query(tuple(unique_rows), NextTokenLogProbs(last)))
        log_probs_of_row = dict(zip(unique_rows, log_probs, strict=True))
        for i, row in zip(active, current_rows, strict=True):
            generated[i].append(
                _sample_token(log_probs_of_row[row], sampling, generators[i].random())
            )
        active = [i for i in active if generated[i][-1] not in end_ids]
        if not active:
            break
    return [
        GeneratedText(tuple(ids), _decode_continuation(lm, row, ids), ids[-1] in end_ids)
        for row, ids in zip(rows, generated, strict=True)
    ]


def _decode_continuation(lm: LM, row: TokenRow, generated: list[int]) -> str:
    """Decode the text after a prompt; prompt and continuation are decoded together.

    Tokens that are decoded alone may lose their leading space.
    """
    decode = lm.tokens.tokenizer.decode
    prompt_text, full_text = (
        str(decode(list(ids), skip_special_tokens=True))
        for ids in (row.ids, (*row.ids, *generated))
    )
    text = full_text.removeprefix(prompt_text)
    # Letters directly after a prompt complete its last word: they are no word of their own.
    return re.sub(r"^\w+", "", text) if prompt_text[-1:].isalnum() else text


def _make_generator(seed: int, prompt: str, number: int) -> np.random.Generator:
    # A hash, because Python's `hash` of a text differs between processes.
    digest = hashlib.sha256(prompt.encode()).digest()[:8]
    return np.random.default_rng([seed, int.from_bytes(digest, "little"), number])


def _extend_row(row: TokenRow, generated: list[int]) -> TokenRow:
    token_types = (
        None if row.token_types is None else row.token_types + row.token_types[-1:] * len(generated)
    )
    return TokenRow((*row.ids, *generated), token_types)


def _sample_token(log_probs: torch.Tensor, sampling: SamplingConfig, uniform: float) -> int:
    """Return the token where the cumulative probability exceeds a number between 0 and 1."""
    # float64: a cumulative sum over a vocabulary in float32 would lose rare tokens.
    p = (log_probs.double() / sampling.temperature).softmax(-1)
    if sampling.top_p < 1:
        ranked = p.sort(descending=True)
        # The sum before a token counts, so the first token always belongs to the nucleus.
        nucleus = ranked.values.cumsum(0) - ranked.values < sampling.top_p
        p = torch.zeros_like(p).index_put((ranked.indices[nucleus],), ranked.values[nucleus])
        p = p / p.sum()
    index = torch.searchsorted(p.cumsum(0), torch.tensor(uniform, dtype=torch.float64), right=True)
    # Rounding can leave the sum below 1: the last token with a probability is the largest index.
    return int(index.clamp(max=int(p.nonzero()[-1])))


def _end_token_ids(lm: LM) -> frozenset[int]:
    """Return the tokens that end a text."""
    config_eos = getattr(lm.layout.model.config, "eos_token_id", None)
    config_eos_ids = config_eos if isinstance(config_eos, list | tuple) else [config_eos]
    candidates = [*config_eos_ids, lm.tokens.tokenizer.eos_token_id]
    return frozenset(int(token_id) for token_id in candidates if token_id is not None)
