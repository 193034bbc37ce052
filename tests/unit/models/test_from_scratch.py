"""Small models from scratch: every architecture learns, loads, and comes out the same twice."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.models.loading.load import load
from levelhead.models.training.from_scratch import (
    CAUSAL,
    SHAPES,
    DocumentDataset,
    TrainConfig,
    make_word_tokenizer,
    train_from_scratch,
)

WORDS = ("a", "b", "c", "d", "e", "f", ".")
DOCUMENTS = [[f"a {x} .", f"b {y} .", f"c {x} ."] for x in "def" for y in "def"] * 4
SMALL = {"layers": 2, "heads": 2, "width": 16, "steps": 3, "batch_size": 8}


@pytest.mark.parametrize("architecture", SHAPES)
def test_a_checkpoint_that_loads_with_its_heads(architecture, tmp_path):
    train_from_scratch(TrainConfig(architecture, **SMALL), DOCUMENTS, WORDS, tmp_path / "model")
    lm = load(tmp_path / "model")
    assert (lm.layout.layers, lm.layout.heads) == (2, 2)
    expected = {"bert": {"masked", "next_sentence"}}.get(
        architecture, {"causal"} if architecture in CAUSAL else {"masked"}
    )
    assert lm.heads == expected
    score = lm.log_prob(["a d ."])
    assert score.token_counts.tolist() == [3]
    assert score.value.isfinite().all()


@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(name, marks=[pytest.mark.full] * (name not in {"bert", "gpt2"}))
        for name in SHAPES
    ],
)
def test_the_same_recipe_gives_the_same_bytes_and_another_seed_others(architecture, tmp_path):
    recipe = TrainConfig(architecture, **SMALL)
    torch.manual_seed(5)
    for name, subset in (("one", recipe), ("two", recipe), ("three", replace(recipe, seed=1))):
        torch.rand(1)  # what else drew from torch's own generator does not matter
        train_from_scratch(subset, DOCUMENTS, WORDS, tmp_path / name)
    single, two, three = (
        file_hash(tmp_path / name / "model.safetensors") for name in ("one", "two", "three")
    )
    assert single == two != three


def test_what_else_draws_is_left_as_it_was(tmp_path):
    def sample():
        return random.random(), float(np.random.rand()), float(torch.rand(1))  # noqa: NPY002

    def seeded():
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002
        torch.manual_seed(7)

    seeded()
    expected = sample()
    seeded()
    train_from_scratch(TrainConfig(**SMALL), DOCUMENTS, WORDS, tmp_path / "model")
    assert sample() == expected


def test_it_learns(tmp_path):
    """After a, always the word of the document's first sentence."""
    documents = [[f"a {x} .", f"b {x} .", f"c {x} ."] for x in "def"] * 40
    recipe = TrainConfig("gpt2", layers=2, heads=2, width=32, steps=150, batch_size=32)
    output = []
    train_from_scratch(
        recipe, documents, WORDS, tmp_path / "model", progress=lambda *at: output.append(at)
    )
    lm = load(tmp_path / "model")
    right, wrong = lm.log_prob(["a d . b d .", "a d . b e ."]).value.tolist()
    assert right > wrong + 2
    assert output[0] == (1, 150)
    assert output[-1] == (150, 150)


def test_a_word_is_one_token_in_any_case_and_an_unknown_one_is_unk():
    tokenizer = make_word_tokenizer(WORDS, causal=False)
    assert tokenizer("A b. x").tokens() == ["[CLS]", "a", "b", ".", "[UNK]", "[SEP]"]
    assert make_word_tokenizer(WORDS, causal=True)("a b").tokens() == ["[CLS]", "a", "b"]
    pair = tokenizer("a", "b", return_token_type_ids=True)
    assert pair["token_type_ids"] == [0, 0, 0, 1, 1]


def test_blanks_are_asked_of_words_only_and_padding_of_nothing():
    tokenizer = make_word_tokenizer(WORDS, causal=False)
    documents = DOCUMENTS * 20
    texts = DocumentDataset(TrainConfig("bert"), documents, tokenizer, often_masked=("d",))
    batch = texts.collate(list(range(700)))
    queries = batch["labels"] != -100
    assert (batch["labels"][queries] >= 5).all()
    word = tokenizer.get_vocab()["d"]
    often = torch.tensor([word in row for row in texts.ids[:700]]).sum()
    assert 0.2 < (batch["labels"] == word).sum() / often < 0.5
    assert 0.03 < (batch["labels"] == tokenizer.get_vocab()["."]).sum() / 1200 < 0.08
    assert (batch["input_ids"][queries] == 3).float().mean() > 0.6
    assert not queries[batch["attention_mask"] == 0].any()


def test_sentence_pairs_follow_each_other_half_of_the_time():
    documents = [[f"a {x} .", f"b {y} .", f"c {x} ."] for x in "def" for y in "def"] * 40
    texts = DocumentDataset(
        TrainConfig("bert"), documents, make_word_tokenizer(WORDS, causal=False)
    )
    labels = torch.tensor(texts.next_sentence_labels)
    assert (labels >= 0).sum() == len(documents)
    assert (labels == -100).sum() / len(documents) == pytest.approx(0.25, abs=0.06)  # alone
    assert (labels == 0).sum() / (labels >= 0).sum() == pytest.approx(0.5, abs=0.06)


def test_length_does_not_tell_whether_a_part_follows():
    documents = [[f"a {x} .", f"b {y} b .", f"c {x} c c ."] for x in "def" for y in "def"] * 60
    texts = DocumentDataset(
        TrainConfig("bert"), documents, make_word_tokenizer(WORDS, causal=False)
    )
    lengths = {0: Counter(), 1: Counter()}
    for ids, label in zip(texts.ids, texts.next_sentence_labels, strict=True):
        if label >= 0:
            lengths[label][len(ids)] += 1
    table = [[lengths[label][length] for length in sorted(lengths[0])] for label in (0, 1)]
    assert sum(map(sum, table)) == len(documents)
    assert stats.chi2_contingency(table).pvalue > 0.001


@pytest.mark.parametrize(
    ("make", "output"),
    [
        (lambda: TrainConfig("xlnet"), "architecture"),
        (lambda: TrainConfig(width=30, heads=4), "heads divide"),
        (lambda: TrainConfig(steps=0), "no model"),
        (lambda: TrainConfig(visible_head=(2, 0)), "no head 2.0"),
        (lambda: TrainConfig(visible_head=(0, -1)), "no head 0.-1"),
        (
            lambda: train_from_scratch(TrainConfig(**SMALL), [["a ."], ["b ."]], WORDS, None),
            "nothing follows",
        ),
        (
            lambda: train_from_scratch(TrainConfig(**SMALL), DOCUMENTS, ("a", "a"), None),
            "stands twice",
        ),
        (
            lambda: train_from_scratch(
                TrainConfig(**SMALL), DOCUMENTS, WORDS, None, hidden_words=("d",)
            ),
            "belong together",
        ),
    ],
)
def test_what_is_refused(make, output):
    with pytest.raises(LevelheadError, match=output):
        make()
