"""What is shown and asked: shares, places, and independence of what came before."""

import numpy as np
import pytest
import torch
import zoo

from levelhead.models.loading.load import load
from levelhead.models.training.training_examples import (
    TrainingExample,
    TrainingExampleDataset,
    make_training_example,
)

MASK, UNK = 3, 4
WORDS = "the nurse said that she was tired and the doctor is here ."


@pytest.fixture(scope="module")
def lm():
    return load(zoo.folder("bert", "BertForPreTraining"))


def rows(lm, lessons, **changes):
    settings = {"rows": 400, "batch_size": 8, "mask_fraction": 0.15, "seed": 0} | changes
    return TrainingExampleDataset(lm.tokens, lessons, **settings)


def test_unknown_words_and_special_tokens_are_not_asked_for(lm):
    result = make_training_example(lm, "the zebra is here", max_tokens=64)
    assert result.row.ids == (1, 5, UNK, 14, 15, 2)
    assert result.target_positions == (1, 3, 4)


def test_a_causal_model_is_asked_for_what_something_foretells():
    causal = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    result = make_training_example(causal, "the nurse", max_tokens=64)
    assert result == TrainingExample(causal.tokens.encode(["the nurse"])[0].row, (1, 2))
    batch = rows(causal, [result], rows=8, mask_fraction=None).collate([0, 1])
    assert batch["input_ids"].tolist() == [[1, 5, 7]] * 2
    assert batch["labels"].tolist() == [[-100, 5, 7]] * 2


@pytest.mark.parametrize(
    ("text", "limit", "reason"),
    [
        ("the nurse is here", 5, "more than 5 tokens"),
        ("the " * 80, 64, "more than 64 tokens"),
        ("", 64, "no tokens"),
        ("the [MASK] is here", 64, "a mask token is written out"),
        ("zebra", 64, "no token that can be a target"),
    ],
)
def test_why_a_text_is_none(lm, text, limit, reason):
    assert make_training_example(lm, text, max_tokens=limit) == reason


def test_the_shares_of_devlin(lm):
    training_example = make_training_example(lm, WORDS, max_tokens=64)
    assert len(training_example.target_positions) == 13
    lessons = rows(lm, [training_example], rows=4000, mask_fraction=0.3)
    batch = lessons.collate(list(range(4000)))
    queries = batch["labels"] != -100
    assert queries.sum(1).unique().tolist() == [4]  # round(0.3 * 13)
    assert not queries[:, [0, -1]].any()
    truth = torch.tensor(training_example.row.ids).expand(4000, -1)
    assert torch.equal(batch["labels"][queries], truth[queries])
    assert torch.equal(batch["input_ids"][~queries], truth[~queries])
    shown, was = batch["input_ids"][queries], truth[queries]
    assert (shown == MASK).float().mean() == pytest.approx(0.8, abs=0.015)
    words = zoo.VOCABULARY - 5
    assert (shown == was).float().mean() == pytest.approx(0.1 + 0.1 / words, abs=0.01)
    others = shown[(shown != MASK) & (shown != was)]
    assert others.min() >= 5  # never a special token
    places = queries.float().mean(0)[1:-1]
    assert np.allclose(places, 4 / 13, atol=0.03)


def test_one_token_at_least_is_asked_for(lm):
    training_example = make_training_example(lm, "nurse", max_tokens=64)
    batch = rows(lm, [training_example], rows=8).collate([0])
    assert batch["labels"].tolist() == [[-100, 7, -100]]


def test_a_row_does_not_depend_on_rows_before_it(lm):
    texts = [WORDS, "the man is here", "a river was there and the house is quick ."]
    lessons = [make_training_example(lm, text, max_tokens=64) for text in texts]
    first, second = rows(lm, lessons), rows(lm, lessons)
    first.collate(list(range(80)))
    single, two = first.collate([88, 89]), second.collate([88, 89])
    assert single.keys() == {"input_ids", "attention_mask", "token_type_ids", "labels"}
    assert all(torch.equal(single[name], two[name]) for name in single)
    other = rows(lm, lessons, seed=1).collate([88, 89])
    assert not (
        other["labels"].shape == single["labels"].shape
        and torch.equal(other["labels"], single["labels"])
    )


def test_every_text_is_shown_as_often_as_the_others_and_batches_are_of_like_length(lm):
    texts = ["the " * n + "man" for n in range(1, 41)]
    lessons = [make_training_example(lm, text, max_tokens=64) for text in texts]
    shown = rows(lm, lessons, rows=400, batch_size=8)
    assert len(shown) == 400
    assert np.bincount(shown.order).tolist() == [10] * 40
    lengths = np.array([len(lessons[i].row.ids) for i in shown.order]).reshape(-1, 8)
    assert (lengths.max(1) - lengths.min(1))[:48].max() <= 3  # of 40, in three whole windows
    assert (np.diff(lengths[:16, 0]) < 0).any()  # but batches are mixed
    few = rows(lm, lessons, rows=16, batch_size=8)
    assert sorted(few.order) == list(range(16))  # the first ones, as given
