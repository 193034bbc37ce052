"""What a causal model writes: continuations drawn token by token from its own probabilities.

A draw depends on the seed, the prompt's text, the number of the sample and the step, on nothing
else: neither batch nor order nor what else is drawn can change it. There is no cache of keys and
values, so that edits act in every forward as they do everywhere; samples that have written the same
so far share a row.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.tokenizer import Row, TooLong
from levelhead.models.queries.query import NextToken, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.lm import LM


@final
@dataclass(frozen=True)
class Sampling:
    """How continuations are drawn."""

    tokens: int = 20
    """The most that are written; fewer where the model ends by itself."""
    temperature: float = 1.0
    top_p: float = 1.0
    """Only the likeliest tokens that together have this probability are drawn from."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or not self.temperature > 0 or not 0 < self.top_p <= 1 or self.seed < 0:
            raise LevelheadError(
                f"nothing can be drawn by {self}",
                mend="give at least 1 token, a temperature above 0, a top_p of at most 1",
            )


class Written(NamedTuple):
    """One continuation."""

    ids: tuple[int, ...]
    text: str
    """What stands behind the prompt, whole words only: an ending of the prompt's last is none."""
    ended: bool
    """Whether the model ended it by itself."""


def prepared(lm: LM, prompts: Sequence[str], sampling: Sampling) -> list[Row]:
    """The prompts as tokens, if there is room behind them."""
    if not lm.anatomy.cls.causal:
        raise LevelheadError("only a causal model continues a text", mend="use a causal model")
    rows = [encoded.row for encoded in lm.tokens.encode(prompts)]
    for i, row in enumerate(rows):
        whole = len(row.ids) + sampling.tokens
        if whole > lm.tokens.limit:
            raise TooLong(
                f"text {i} and {sampling.tokens} tokens more are {whole}, the model reads "
                f"{lm.tokens.limit}",
                mend="shorten it, or write fewer tokens",
            )
    return rows


def sample(
    lm: LM, prompts: Sequence[str], numbers: Sequence[int], sampling: Sampling
) -> list[Written]:
    """One continuation of each prompt, the `number`th of it.

    Args:
        lm: a causal model.
        prompts: texts without a blank at their end.
        numbers: which of a prompt's samples each is.
        sampling: how they are drawn.
    """
    rows = prepared(lm, prompts, sampling)
    chance = [_chance(sampling.seed, *one) for one in zip(prompts, numbers, strict=True)]
    ends = _ends(lm)
    written: list[list[int]] = [[] for _ in rows]
    live = list(range(len(rows)))
    for _ in range(sampling.tokens):
        now = [_longer(rows[i], written[i]) for i in live]
        different = list(dict.fromkeys(now))
        last = tuple(len(row.ids) - 1 for row in different)
        found = lm.run(Reading(tuple(different), NextToken(last)))
        of = dict(zip(different, found, strict=True))
        for i, row in zip(live, now, strict=True):
            written[i].append(_drawn(of[row], sampling, chance[i].random()))
        live = [i for i in live if written[i][-1] not in ends]
        if not live:
            break
    return [
        Written(tuple(ids), _behind(lm, row, ids), ids[-1] in ends)
        for row, ids in zip(rows, written, strict=True)
    ]


def _behind(lm: LM, row: Row, written: list[int]) -> str:
    """The text behind a prompt: tokens mean what they mean behind it, not alone."""
    decode = lm.tokens.tokenizer.decode
    before, whole = (
        str(decode(list(ids), skip_special_tokens=True)) for ids in (row.ids, (*row.ids, *written))
    )
    text = whole.removeprefix(before)
    return re.sub(r"^\w+", "", text) if before[-1:].isalnum() else text


def _chance(seed: int, prompt: str, number: int) -> np.random.Generator:
    told = hashlib.sha256(prompt.encode()).digest()[:8]
    return np.random.default_rng([seed, int.from_bytes(told, "little"), number])


def _longer(row: Row, written: list[int]) -> Row:
    types = None if row.types is None else row.types + row.types[-1:] * len(written)
    return Row((*row.ids, *written), types)


def _drawn(log_probs: torch.Tensor, sampling: Sampling, chance: float) -> int:
    """The token at which the summed probability passes a number between 0 and 1."""
    p = (log_probs.double() / sampling.temperature).softmax(-1)
    if sampling.top_p < 1:
        best = p.sort(descending=True)
        kept = best.values.cumsum(0) - best.values < sampling.top_p  # the first is always kept
        p = torch.zeros_like(p).index_put((best.indices[kept],), best.values[kept])
        p = p / p.sum()
    place = torch.searchsorted(p.cumsum(0), torch.tensor(chance, dtype=torch.float64), right=True)
    return int(place.clamp(max=int(p.nonzero()[-1])))


def _ends(lm: LM) -> frozenset[int]:
    """The tokens with which the model ends a text."""
    named = getattr(lm.anatomy.model.config, "eos_token_id", None)
    several = named if isinstance(named, list | tuple) else [named]
    own = [*several, lm.tokens.tokenizer.eos_token_id]
    return frozenset(int(one) for one in own if one is not None)
