import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
import zoo
from vocabularies import byte_level

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale
from levelhead.models.inputs.tokenizer import TextTooLongError, TokenRow
from levelhead.models.loading.load import load
from levelhead.models.queries.query import NextTokenLogProbs, Query
from levelhead.models.queries.sampling import (
    SamplingConfig,
    _decode_continuation,
    _sample_token,
    sample_continuations,
)
from levelhead.models.sites import Site

PROMPTS = ["the nurse said that", "the doctor is", "a man"]


@pytest.fixture(scope="module")
def lm():
    return load(zoo.folder("llama", "LlamaForCausalLM"))


def test_a_draw_depends_on_seed_prompt_and_number_alone(lm):
    how = SamplingConfig(tokens=6)
    prompts, numbers = [prompt for prompt in PROMPTS for _ in range(5)], list(range(5)) * 3
    result = sample_continuations(lm, prompts, numbers, how)
    for size in (1, 4):
        assert sample_continuations(lm.with_batch_size(size), prompts, numbers, how) == result
    assert sample_continuations(lm, prompts[::-1], numbers[::-1], how) == result[::-1]
    assert sample_continuations(lm, prompts[7:8], numbers[7:8], how) == result[7:8]
    assert sample_continuations(lm, prompts, numbers, SamplingConfig(tokens=6, seed=1)) != result
    assert len({item.ids for item in result}) > 10


def test_each_token_is_drawn_from_the_models_own_probabilities(lm):
    """A literal loop: plain forwards of the growing text, the same chances."""
    how = SamplingConfig(tokens=5, temperature=0.7)
    (result,) = sample_continuations(lm, PROMPTS[:1], [3], how)
    output = int.from_bytes(hashlib.sha256(PROMPTS[0].encode()).digest()[:8], "little")
    rng = np.random.default_rng([0, output, 3])
    ids = list(lm.tokens.encode(PROMPTS[:1])[0].row.ids)
    begin = len(ids)
    for _ in range(5):
        with torch.no_grad():
            logits = lm.layout.model(torch.tensor([ids])).logits[0, -1]
        p = (logits.double().log_softmax(-1) / 0.7).softmax(-1).numpy()
        ids.append(int(np.searchsorted(p.cumsum(), rng.random(), side="right")))
        if ids[-1] == lm.layout.model.config.eos_token_id:
            break
    assert result.ids == tuple(ids[begin:])


def test_many_draws_have_the_models_frequencies(lm):
    rows = tuple(item.row for item in lm.tokens.encode(PROMPTS[:1]))
    exact = lm.run(Query(rows, NextTokenLogProbs((len(rows[0].ids) - 1,))))[0].exp()
    count = 4000
    result = sample_continuations(
        lm, PROMPTS[:1] * count, list(range(count)), SamplingConfig(tokens=1)
    )
    seen = Counter(item.ids[0] for item in result)
    for token, p in enumerate(exact.tolist()):
        assert abs(seen[token] / count - p) < 4.5 * (p * (1 - p) / count) ** 0.5 + 1e-6


def test_top_p_keeps_the_likeliest_that_reach_it():
    log_probs = torch.tensor([0.1, 0.5, 0.15, 0.25]).log()
    how = SamplingConfig(top_p=0.7)
    sample = {_sample_token(log_probs, how, chance) for chance in np.linspace(1e-9, 0.999999, 200)}
    assert sample == {1, 3}  # .5 + .25 is the first sum of at least .7
    assert _sample_token(log_probs, SamplingConfig(top_p=1e-9), 0.9) == 1
    cold = {
        _sample_token(log_probs, SamplingConfig(temperature=0.01), c)
        for c in np.linspace(1e-9, 0.999999, 50)
    }
    assert cold == {1}
    assert _sample_token(log_probs, SamplingConfig(), 1 - 1e-17) == 3


def test_an_edit_changes_what_is_written(lm):
    how = SamplingConfig(tokens=8)
    edited = lm.edited(HeadScale([Site("head_out", 0, 0), Site("head_out", 2, 1)], 0.0))
    numbers = list(range(20))
    before = sample_continuations(lm, PROMPTS[:1] * 20, numbers, how)
    assert sample_continuations(edited, PROMPTS[:1] * 20, numbers, how) != before


def test_the_model_may_end_by_itself(lm):
    result = sample_continuations(lm, PROMPTS[:1] * 40, list(range(40)), SamplingConfig(tokens=12))
    end = lm.layout.model.config.eos_token_id
    assert {item.has_ended for item in result} == {True, False}
    for item in result:
        assert (end in item.ids) == item.has_ended == (item.ids[-1] == end)
        assert item.has_ended or len(item.ids) == 12


def test_text_is_what_stands_behind_the_prompt():
    """A token that continues the prompt's last word is no word of its own."""
    subset = byte_level(load(zoo.folder("gpt2", "GPT2LMHeadModel")))
    ids = [
        item.row.ids[1:-1]
        for item in subset.tokens.encode(["the", " man", "man is", "the.", "her"])
    ]
    the, man, glued, end, her = ids
    assert _decode_continuation(subset, TokenRow(the, None), [*man]) == " man"
    assert _decode_continuation(subset, TokenRow(the, None), [*glued]) == " is"  # "theman is"
    assert _decode_continuation(subset, TokenRow(end, None), [*her]) == "her"


def test_what_cannot_be_continued_is_refused(lm):
    with pytest.raises(TextTooLongError, match="more tokens"):
        sample_continuations(lm, PROMPTS, [0, 0, 0], SamplingConfig(tokens=70))
    masked = load(zoo.folder("bert", "BertForMaskedLM"))
    with pytest.raises(LevelheadError, match="only a causal model"):
        sample_continuations(masked, PROMPTS, [0, 0, 0], SamplingConfig())
    for wrong in ({"tokens": 0}, {"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"seed": -1}):
        with pytest.raises(LevelheadError, match="no text can be sampled"):
            SamplingConfig(**wrong)
