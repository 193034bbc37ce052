import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
import zoo
from vocabularies import byte_level

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale
from levelhead.models.inputs.tokenizer import Row, TooLong
from levelhead.models.loading.load import load
from levelhead.models.queries.query import NextToken, Reading
from levelhead.models.queries.sampling import Sampling, _behind, _drawn, sample
from levelhead.models.sites import Site

PROMPTS = ["the nurse said that", "the doctor is", "a man"]


@pytest.fixture(scope="module")
def lm():
    return load(zoo.folder("llama", "LlamaForCausalLM"))


def test_a_draw_depends_on_seed_prompt_and_number_alone(lm):
    how = Sampling(tokens=6)
    prompts, numbers = [one for one in PROMPTS for _ in range(5)], list(range(5)) * 3
    found = sample(lm, prompts, numbers, how)
    for size in (1, 4):
        assert sample(lm.batched(size), prompts, numbers, how) == found
    assert sample(lm, prompts[::-1], numbers[::-1], how) == found[::-1]
    assert sample(lm, prompts[7:8], numbers[7:8], how) == found[7:8]
    assert sample(lm, prompts, numbers, Sampling(tokens=6, seed=1)) != found
    assert len({one.ids for one in found}) > 10


def test_each_token_is_drawn_from_the_models_own_probabilities(lm):
    """A literal loop: plain forwards of the growing text, the same chances."""
    how = Sampling(tokens=5, temperature=0.7)
    (found,) = sample(lm, PROMPTS[:1], [3], how)
    told = int.from_bytes(hashlib.sha256(PROMPTS[0].encode()).digest()[:8], "little")
    rng = np.random.default_rng([0, told, 3])
    ids = list(lm.tokens.encode(PROMPTS[:1])[0].row.ids)
    begin = len(ids)
    for _ in range(5):
        with torch.no_grad():
            logits = lm.anatomy.model(torch.tensor([ids])).logits[0, -1]
        p = (logits.double().log_softmax(-1) / 0.7).softmax(-1).numpy()
        ids.append(int(np.searchsorted(p.cumsum(), rng.random(), side="right")))
        if ids[-1] == lm.anatomy.model.config.eos_token_id:
            break
    assert found.ids == tuple(ids[begin:])


def test_many_draws_have_the_models_frequencies(lm):
    rows = tuple(one.row for one in lm.tokens.encode(PROMPTS[:1]))
    exact = lm.run(Reading(rows, NextToken((len(rows[0].ids) - 1,))))[0].exp()
    count = 4000
    found = sample(lm, PROMPTS[:1] * count, list(range(count)), Sampling(tokens=1))
    seen = Counter(one.ids[0] for one in found)
    for token, p in enumerate(exact.tolist()):
        assert abs(seen[token] / count - p) < 4.5 * (p * (1 - p) / count) ** 0.5 + 1e-6


def test_top_p_keeps_the_likeliest_that_reach_it():
    log_probs = torch.tensor([0.1, 0.5, 0.15, 0.25]).log()
    how = Sampling(top_p=0.7)
    drawn = {_drawn(log_probs, how, chance) for chance in np.linspace(1e-9, 0.999999, 200)}
    assert drawn == {1, 3}  # .5 + .25 is the first sum of at least .7
    assert _drawn(log_probs, Sampling(top_p=1e-9), 0.9) == 1
    cold = {
        _drawn(log_probs, Sampling(temperature=0.01), c) for c in np.linspace(1e-9, 0.999999, 50)
    }
    assert cold == {1}
    assert _drawn(log_probs, Sampling(), 1 - 1e-17) == 3


def test_an_edit_changes_what_is_written(lm):
    how = Sampling(tokens=8)
    edited = lm.edited(HeadScale([Site("head_out", 0, 0), Site("head_out", 2, 1)], 0.0))
    numbers = list(range(20))
    before = sample(lm, PROMPTS[:1] * 20, numbers, how)
    assert sample(edited, PROMPTS[:1] * 20, numbers, how) != before


def test_the_model_may_end_by_itself(lm):
    found = sample(lm, PROMPTS[:1] * 40, list(range(40)), Sampling(tokens=12))
    end = lm.anatomy.model.config.eos_token_id
    assert {one.ended for one in found} == {True, False}
    for one in found:
        assert (end in one.ids) == one.ended == (one.ids[-1] == end)
        assert one.ended or len(one.ids) == 12


def test_text_is_what_stands_behind_the_prompt():
    """A token that continues the prompt's last word is no word of its own."""
    own = byte_level(load(zoo.folder("gpt2", "GPT2LMHeadModel")))
    ids = [one.row.ids[1:-1] for one in own.tokens.encode(["the", " man", "man is", "the.", "her"])]
    the, man, glued, end, her = ids
    assert _behind(own, Row(the, None), [*man]) == " man"
    assert _behind(own, Row(the, None), [*glued]) == " is"  # "theman is"
    assert _behind(own, Row(end, None), [*her]) == "her"


def test_what_cannot_be_continued_is_refused(lm):
    with pytest.raises(TooLong, match="tokens more"):
        sample(lm, PROMPTS, [0, 0, 0], Sampling(tokens=70))
    masked = load(zoo.folder("bert", "BertForMaskedLM"))
    with pytest.raises(LevelheadError, match="only a causal model"):
        sample(masked, PROMPTS, [0, 0, 0], Sampling())
    for wrong in ({"tokens": 0}, {"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"seed": -1}):
        with pytest.raises(LevelheadError, match="nothing can be drawn"):
            Sampling(**wrong)
