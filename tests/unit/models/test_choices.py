"""Given answers after a prompt: equal to scoring each answer as a text, in one row if possible."""

import pytest
import torch
import zoo
from assets import asset, smollm2

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.models.architectures.families import FAMILIES
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.load import load
from levelhead.models.queries.choices import build_lm_choose_query

PROMPTS = ["The man and the woman.\nWho is here?", "The nurse was tired.\nWho works?"]
OPTIONS = [[" the man", " the woman", " a doctor said that"], [" she", " the nurse", " he is"]]


def slowly(lm):
    """One text, and one scored span, for each option."""
    values = torch.empty(2, 3, dtype=torch.float64)
    for i, (prompt, texts) in enumerate(zip(PROMPTS, OPTIONS, strict=True)):
        for j, option in enumerate(texts):
            span = (len(prompt) + 1, len(prompt + option))
            values[i, j] = lm.log_prob([prompt + option], [[span]]).value[0]
    return values


def test_equal_to_scoring_each_answer_as_a_text():
    lm = load(smollm2())
    query, counts = build_lm_choose_query(lm, PROMPTS, OPTIONS)
    assert len(query.rows) == 2  # one row for three answers
    assert counts.tolist() == [[2, 2, 4], [1, 2, 2]]
    torch.testing.assert_close(
        lm.choose(PROMPTS, OPTIONS).double(), slowly(lm), atol=2e-5, rtol=1e-5
    )


@pytest.mark.parametrize("family", ["gpt2", "bloom", "qwen2", "gemma2"])
def test_families_with_and_without_branches(family):
    head = next(row.name for row in FAMILIES[family].classes if row.causal)
    lm = load(zoo.folder(family, head), dtype="float64")
    torch.testing.assert_close(
        lm.choose(PROMPTS, OPTIONS).double(), slowly(lm), atol=1e-9, rtol=1e-9
    )


def test_refusals():
    lm = load(asset("models", "stories15m"))
    with pytest.raises(LevelheadError, match="equally many options"):
        lm.choose(PROMPTS, [[" a"], [" a", " b"]])
    with pytest.raises(LevelheadError, match="repeat each other"):
        lm.choose(PROMPTS[:1], [[" a", " a"]])
    with pytest.raises(UnreadableTextError, match="does not separate"):
        load(smollm2()).choose(["The nur"], [["se", "sery"]])
    with pytest.raises(LevelheadError, match="choose needs a head"):
        load(asset("models", "minibert-en")).choose(PROMPTS, OPTIONS)
    with pytest.raises(NotMeasurableError, match="no chat template"):
        ChatFormat("chat").format_request(lm.tokens, "Who works?")


def test_chat_and_plain_formats():
    tokens = load(smollm2()).tokens
    text = ChatFormat(system="Be brief.", examples=(("1 + 1?", "2"),)).format_request(
        tokens, "2 + 2?", "It is"
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1 + 1?<|im_end|>\n"
        "<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
        "<|im_start|>assistant\nIt is"
    )
    plain = ChatFormat("plain", system="Be brief.", examples=(("1 + 1?", "2"),))
    assert plain.format_request(tokens, "2 + 2?", "It is") == (
        "Be brief.\n\n1 + 1? 2\n\n2 + 2?\nIt is"
    )
    assert ChatFormat.from_settings(plain.settings) == plain
