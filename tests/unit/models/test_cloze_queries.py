"""Words in a blank: tokenized once where that is exact, and equal to the slow way everywhere."""

import pytest
import torch
import zoo
from assets import asset, smollm2
from vocabularies import byte_level

from levelhead.models.loading.load import load
from levelhead.models.queries import cloze

TEXTS = [
    "The [MASK] works as a nurse.",
    "The man, a nurse, said that the [MASK] works as a doctor.",
    "The ([MASK]) is here.",
    "[MASK] is here.",
    "\u201c[MASK]!\u201d was said.",
    "The  [MASK]  is here.",
    "A quick [MASK]'s house",
    "The man is a [MASK]",
    "The nurse saw a [MASK].",
]
WORDS = ["woman", "man", "schoolgirl", "her", "Ms", "grandmother"]


def slowly(lm, texts, words):
    return [
        cloze._tokenize_with_words(lm.tokens, [(text, word) for word in words]) for text in texts
    ]


def check(lm, texts=TEXTS):
    assert cloze._place_words(lm.tokens, texts, WORDS) == slowly(lm, texts, WORDS)


def test_wordpiece():
    check(load(asset("models", "minibert-en")))


def test_byte_level_bpe_of_a_causal_model():
    check(load(smollm2()))


def test_a_tokenizer_that_does_not_cut_at_blanks_takes_the_slow_way():
    lm = load(asset("models", "stories15m"))
    assert len(lm.tokens.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a b")) == 1
    check(lm)


@pytest.mark.parametrize("prefix", [False, True])
def test_byte_level_bpe_of_a_masked_model(prefix):
    check(byte_level(load(zoo.folder("bert", "BertForMaskedLM")), prefix=prefix))


def test_words_of_as_many_tokens_share_the_row_that_masks_them_all():
    lm = load(asset("models", "minibert-en"))
    reading = cloze.build_lm_fill_words_query(
        lm, TEXTS[:1], ["woman", "man", "schoolgirl", "schoolboy"]
    )
    # One for single tokens, one for words of two, one for their second tokens: both start alike.
    assert len(reading.rows) == 3
    alone = [lm.fill(TEXTS[:1], [word]) for word in ("woman", "schoolgirl")]
    both = lm.fill(TEXTS[:1], ["woman", "schoolgirl"])
    torch.testing.assert_close(both, torch.cat(alone, dim=1), rtol=1e-5, atol=1e-6)


def test_first_tokens_of_a_causal_model_share_a_row():
    lm = load(asset("models", "stories15m"))
    text = "The man is a"
    reading = cloze.build_lm_fill_words_query(lm, [f"{text} [MASK]"], ["woman", "man", "girl"])
    assert len(reading.rows) == 1
    ours = lm.fill([f"{text} [MASK]"], ["woman", "schoolgirl"])[0]
    for value, word in zip(ours, ("woman", "schoolgirl"), strict=True):
        span = (len(text) + 1, len(text) + 1 + len(word))
        slow = lm.log_prob([f"{text} {word}"], [[span]]).value[0]
        torch.testing.assert_close(value, slow, rtol=1e-5, atol=1e-5)
