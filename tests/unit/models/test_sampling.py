"""Sampled texts: every token is drawn from the model's own probabilities, whatever the batch."""

import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
import zoo
from vocabularies import byte_level

from levelhead.core.errors import LevelheadError
from levelhead.measures.generation.text_queries import drop_rest_of_word
from levelhead.models.edits.base import HeadScale
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.generation.in_process import (
    decode_continuation,
    encode_prompts,
    generate_texts,
)
from levelhead.models.generation.sampler import select_token
from levelhead.models.inputs.tokenizer import TextTooLongError, TokenRow
from levelhead.models.loading.load import load
from levelhead.models.queries.query import NextTokenLogProbs, Query
from levelhead.models.sites import Site

PROMPTS = ["the nurse said that", "the doctor is", "a man"]


@pytest.fixture(scope="module")
def lm():
    return load(zoo.folder("llama", "LlamaForCausalLM"))


def test_a_draw_depends_on_seed_prompt_and_number_alone(lm):
    how = GenerationConfig(max_tokens=6)
    prompts, numbers = [prompt for prompt in PROMPTS for _ in range(5)], list(range(5)) * 3
    result = generate_texts(lm, prompts, numbers, how)
    for size in (1, 4):
        assert generate_texts(lm.with_batch_size(size), prompts, numbers, how) == result
    assert generate_texts(lm, prompts[::-1], numbers[::-1], how) == result[::-1]
    assert generate_texts(lm, prompts[7:8], numbers[7:8], how) == result[7:8]
    assert generate_texts(lm, prompts, numbers, GenerationConfig(6, seed=1)) != result
    assert len({item.ids for item in result}) > 10


def test_each_token_is_drawn_from_the_models_own_probabilities(lm):
    """A literal loop: plain forwards of the growing text, the same chances."""
    how = GenerationConfig(max_tokens=5, temperature=0.7)
    (result,) = generate_texts(lm, PROMPTS[:1], [3], how)
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
    assert result.prompt_tokens == begin


def test_many_draws_have_the_models_frequencies(lm):
    rows = tuple(item.row for item in lm.tokens.encode(PROMPTS[:1]))
    exact = lm.run(Query(rows, NextTokenLogProbs((len(rows[0].ids) - 1,))))[0].exp()
    count = 4000
    result = generate_texts(
        lm.with_batch_size(1000), PROMPTS[:1] * count, list(range(count)), GenerationConfig(1)
    )
    seen = Counter(item.ids[0] for item in result)
    for token, p in enumerate(exact.tolist()):
        assert abs(seen[token] / count - p) < 4.5 * (p * (1 - p) / count) ** 0.5 + 1e-6


def test_top_p_keeps_the_likeliest_that_reach_it():
    log_probs = torch.tensor([0.1, 0.5, 0.15, 0.25]).log()
    how = GenerationConfig(top_p=0.7)
    sample = {select_token(log_probs, how, chance) for chance in np.linspace(1e-9, 0.999999, 200)}
    assert sample == {1, 3}  # .5 + .25 is the first sum of at least .7
    assert select_token(log_probs, GenerationConfig(top_p=1e-9), 0.9) == 1
    cold = {
        select_token(log_probs, GenerationConfig(temperature=0.01), c)
        for c in np.linspace(1e-9, 0.999999, 50)
    }
    assert cold == {1}
    assert select_token(log_probs, GenerationConfig(), 1 - 1e-17) == 3
    # Rounding can leave the sum below a number that is drawn.
    rare = torch.tensor([0.3, 0.7, 0.0]).log()
    assert select_token(rare, GenerationConfig(), 1.0) == 1


def test_an_edit_changes_what_is_written(lm):
    how = GenerationConfig(max_tokens=8)
    edited = lm.edited(HeadScale([Site("head_out", 0, 0), Site("head_out", 2, 1)], 0.0))
    numbers = list(range(20))
    before = generate_texts(lm, PROMPTS[:1] * 20, numbers, how)
    assert generate_texts(edited, PROMPTS[:1] * 20, numbers, how) != before


def test_the_model_may_end_by_itself(lm):
    result = generate_texts(lm, PROMPTS[:1] * 40, list(range(40)), GenerationConfig(12))
    end = lm.layout.model.config.eos_token_id
    assert {item.finish_reason for item in result} == {"stop", "length"}
    for item in result:
        assert (end in item.ids) == item.has_ended == (item.ids[-1] == end)
        assert item.has_ended or len(item.ids) == 12


def test_a_text_to_stop_at_ends_only_the_texts_that_contain_it(lm):
    prompts, numbers = PROMPTS * 5, [i // 3 for i in range(15)]
    free = generate_texts(lm, prompts, numbers, GenerationConfig(12))
    stopped = generate_texts(lm, prompts, numbers, GenerationConfig(12, stop=("she", " man")))
    assert any("she" in item.text or " man" in item.text for item in free)
    for before, after in zip(free, stopped, strict=True):
        ends = [before.text.index(end) for end in ("she", " man") if end in before.text]
        assert after.text == (before.text[: min(ends)] if ends else before.text)
        assert after.ids == before.ids[: len(after.ids)]
        assert after.has_ended == (before.has_ended or bool(ends))


def test_text_is_what_stands_behind_the_prompt():
    """A token that continues the prompt's last word is no word of its own."""
    subset = byte_level(load(zoo.folder("gpt2", "GPT2LMHeadModel")))
    ids = [
        item.row.ids[1:-1]
        for item in subset.tokens.encode(["the", " man", "man is", "the.", "her"])
    ]
    the, man, glued, end, her = ids
    texts = [
        decode_continuation(subset.tokens, TokenRow(prompt, None), tokens)
        for prompt, tokens in ((the, man), (the, glued), (end, her))
    ]
    assert texts == [" man", "man is", "her"]
    dropped = [
        drop_rest_of_word(prompt, text)
        for prompt, text in zip(("the", "the", "the."), texts, strict=True)
    ]
    assert dropped == [" man", " is", "her"]  # "theman is"
    # This tokenizer ends every text with a special token: what follows it would be another text.
    (row,) = encode_prompts(subset, ["the"], GenerationConfig(4))
    assert row.ids == (0, *the)


def test_what_cannot_be_continued_is_refused(lm):
    with pytest.raises(TextTooLongError, match="more tokens"):
        generate_texts(lm, PROMPTS, [0, 0, 0], GenerationConfig(70))
    masked = load(zoo.folder("bert", "BertForMaskedLM"))
    with pytest.raises(LevelheadError, match="only a causal model"):
        generate_texts(masked, PROMPTS, [0, 0, 0], GenerationConfig())
    for wrong in (
        *({"max_tokens": 0}, {"temperature": -0.1}, {"temperature": float("nan")}, {"top_p": 0}),
        *({"top_p": 1.1}, {"seed": -1}, {"stop": "end"}, {"stop": ("",)}),
    ):
        with pytest.raises(LevelheadError, match="no text can be generated"):
            GenerationConfig(**wrong)
