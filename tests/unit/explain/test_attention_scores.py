"""Normalised attention: words as columns, min-max by hand, what cannot be read says why."""

import pytest
import torch
import zoo
from vocabularies import byte_level

from levelhead.explain.attention.attention_scores import (
    CHUNK_SIZE,
    FLAT_ROW_REASON,
    WordColumns,
    find_word_columns,
    normalise_attention,
    read_attribute_attention,
)
from levelhead.explain.attention.pairs import AnnotatedSentence
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.loading.load import load

BERT = zoo.folder("bert", "BertForMaskedLM")
GPT2 = zoo.folder("gpt2", "GPT2LMHeadModel")


def ask(text, attribute, target):
    spans = [(text.index(word), text.index(word) + len(word)) for word in (attribute, target)]
    return AnnotatedSentence(text, *spans)


def test_special_tokens_and_punctuation_are_no_columns():
    question = ask("the woman , a nurse , was there .", "woman", "nurse")
    over = find_word_columns(load(BERT), question)
    assert over.words == ("the", "woman", "a", "nurse", "was", "there")
    assert over.tokens == ((1,), (2,), (4,), (5,), (7,), (8,))
    assert (over.attribute, over.target) == (1, 3)


def test_a_causal_row_ends_with_the_target():
    over = find_word_columns(load(GPT2), ask("the woman , a nurse , was there .", "woman", "nurse"))
    assert over.words == ("the", "woman", "a", "nurse")
    with pytest.raises(UnreadableTextError, match="the attribute stands behind the target"):
        find_word_columns(load(GPT2), ask("the nurse , a woman .", "woman", "nurse"))


def test_subwords_are_one_column():
    lm = byte_level(load(BERT))
    text = "A quick schoolgirl's grandmother xyzzy."
    question = ask(text, "schoolgirl", "grandmother")
    over = find_word_columns(lm, question)
    assert over.words == ("A", "quick", "schoolgirl", "s", "grandmother", "xyzzy")
    assert len(over.tokens[-1]) > 1
    (encoded,) = lm.tokens.encode([text])
    held = [i for token in over.tokens for i in token]
    left = [text[slice(*encoded.offsets[i])] for i in encoded.word_positions() if i not in held]
    assert left == ["'", "", "."]  # a blank of its own is no word either


def test_min_max_by_hand():
    row = torch.tensor([0.5, 0.1, 0.05, 0.15, 0.2])
    over = WordColumns(("a", "b", "c"), ((1, 2), (3,), (4,)), 0, 2)
    # Columns 0.15, 0.15, 0.2; the first token is special and takes no part.
    torch.testing.assert_close(
        normalise_attention(row, over), torch.tensor([0.0, 0.0, 1.0]).double(), atol=1e-6, rtol=0
    )
    wide = WordColumns(("a", "b", "c"), ((1,), (3,), (4,)), 0, 2)
    torch.testing.assert_close(
        normalise_attention(row, wide), torch.tensor([0.0, 0.5, 1.0]).double(), atol=1e-6, rtol=0
    )
    assert normalise_attention(torch.full((3, 5), 0.2), wide).isnan().all()


@pytest.mark.parametrize("path", [BERT, GPT2])
def test_it_is_the_eager_attention_normalised(path):
    lm = load(path)
    question = ask("the woman , a nurse , was there .", "woman", "nurse")
    over = find_word_columns(lm, question)
    (result,) = read_attribute_attention(lm, [question])
    (row,) = lm.attention_row([question.text], [question.target], weighted=True)
    for kind in range(2):
        for layer in range(3):
            for head in range(4):
                seen = [float(row[kind, layer, head, token[0]]) for token in over.tokens]
                expected = (seen[over.attribute] - min(seen)) / (max(seen) - min(seen))
                assert float(result[kind, layer, head]) == pytest.approx(expected, abs=1e-6)


def test_what_cannot_be_read_says_why_and_the_rest_is_read():
    lm = load(BERT)
    output = []
    good = ask("the woman is a nurse", "woman", "nurse")
    questions = [
        good,
        ask("the xyzzy is a nurse", "xyzzy", "nurse"),
        ask("the woman is a nurse" + " here" * 80, "woman", "nurse"),
        *[good] * CHUNK_SIZE,
    ]
    result = read_attribute_attention(
        lm, questions, progress=lambda done, total: output.append((done, total))
    )
    assert "lacks 'xyzzy'" in result[1]
    assert "tokens, but the model accepts at most 64" in result[2]
    torch.testing.assert_close(result[0], result[-1], atol=1e-5, rtol=0)
    assert output == [(CHUNK_SIZE, CHUNK_SIZE + 3), (CHUNK_SIZE + 3, CHUNK_SIZE + 3)]
    assert "lacks" in read_attribute_attention(lm, questions[1:2])[0]


def test_flat_rows_are_dropped():
    lm = load(BERT)
    with torch.no_grad():
        for block in lm.layout.blocks:
            block.attention.self.query.weight.zero_()
            block.attention.self.query.bias.zero_()
    assert read_attribute_attention(lm, [ask("the woman is a nurse", "woman", "nurse")]) == [
        FLAT_ROW_REASON
    ]


def test_words_that_share_a_token_are_refused():
    lm = load(BERT)
    with pytest.raises(UnreadableTextError, match="share a token"):
        find_word_columns(lm, AnnotatedSentence("the woman", (4, 9), (4, 9)))
