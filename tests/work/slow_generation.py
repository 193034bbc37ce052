"""Generation in the literal, slow form: a full forward pass for each token, without a cache."""

import hashlib
import re

import numpy as np
import torch

from levelhead.models.generation.in_process import encode_prompts, end_token_ids
from levelhead.models.inputs.tokenizer import TokenRow
from levelhead.models.queries.query import NextTokenLogProbs, Query


def generate_slowly(lm, prompts, sample_numbers, config):
    """The tokens of each text: those of the fast generation must be the same."""
    rows = encode_prompts(lm, prompts, config)
    generators = [
        np.random.default_rng(
            [
                config.seed,
                int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "little"),
                number,
            ]
        )
        for prompt, number in zip(prompts, sample_numbers, strict=True)
    ]
    ends = end_token_ids(lm)
    generated = [[] for _ in rows]
    active = list(range(len(rows)))
    for _ in range(config.max_tokens):
        current = [TokenRow((*rows[i].ids, *generated[i]), None) for i in active]
        # Equal rows have equal probabilities: in the first step, all samples of a prompt.
        unique = list(dict.fromkeys(current))
        last = tuple(len(row.ids) - 1 for row in unique)
        log_probs = dict(
            zip(unique, lm.run(Query(tuple(unique), NextTokenLogProbs(last))), strict=True)
        )
        for i, row in zip(active, current, strict=True):
            generated[i].append(choose(log_probs[row], config, generators[i]))
        active = [i for i in active if generated[i][-1] not in ends]
        if not active:
            break
    return [tuple(ids) for ids in generated]


def choose(log_probs, config, generator):
    """The likeliest token, or the one where the cumulative probability exceeds a random number."""
    if config.temperature == 0:
        return int(log_probs.argmax())
    p = (log_probs.double() / config.temperature).softmax(-1)
    if config.top_p < 1:
        ranked = p.sort(descending=True)
        nucleus = ranked.values.cumsum(0) - ranked.values < config.top_p
        p = torch.zeros_like(p).index_put((ranked.indices[nucleus],), ranked.values[nucleus])
        p = p / p.sum()
    uniform = torch.tensor(generator.random(), dtype=torch.float64)
    index = torch.searchsorted(p.cumsum(0), uniform, right=True)
    return int(index.clamp(max=int(p.nonzero()[-1])))


def text_after(lm, row, ids):
    """The text of `sample`: without the rest of a word that the prompt began."""
    decode = lm.tokens.tokenizer.decode
    prompt, full = (
        str(decode(list(tokens), skip_special_tokens=True))
        for tokens in (row.ids, (*row.ids, *ids))
    )
    text = full.removeprefix(prompt)
    return re.sub(r"^\w+", "", text) if prompt[-1:].isalnum() else text
