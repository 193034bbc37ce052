"""A word list tried on a tiny model, against cells worked out one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo
from metric_cases import WORDS
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.counterfactuals.templates import CARRIER_FRAMES
from levelhead.data.lexicons.lexicon import Term
from levelhead.explain.attention.attention_scores import read_attribute_attention
from levelhead.explain.attention.pairs import AnnotatedSentence
from levelhead.explain.lexicon_effects import FrameOptions, LexiconEffects, lexicon_effects
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.stats.multiple_testing import holm

LM = load(zoo.folder("bert", "BertForMaskedLM"))
THREE = replace(
    WORDS, terms=(*WORDS.terms, Term("role", (("female", "nurse"), ("male", "doctor"))))
)
HEADS = [Site("head_out", 0, 1), Site("head_out", 2, 3)]
RESULT = lexicon_effects(LM, THREE, frames=FrameOptions("bare"), heads=HEADS)
GROUP = {"she": "She", "he": "He", "woman": "The woman", "man": "The man", "nurse": "The nurse",
         "doctor": "The doctor"}  # fmt: skip


def question(frame, word, target):
    text = frame.format(group=GROUP[word], target=target)
    start = len(GROUP[word]) - len(word)
    at = text.rindex(target)
    return AnnotatedSentence(text, (start, start + len(word)), (at, at + len(target)))


def cell(first, second, target, sign):
    """Attention and margin change of one pair and one target."""
    attention, margin = [], []
    for frame in CARRIER_FRAMES["bare"][:2]:
        both = [question(frame, word, target) for word in (first, second)]
        single, two = (
            read[0][[0, 2], [1, 3]].mean() for read in read_attribute_attention(LM, both)
        )
        p = LM.log_prob([q.text for q in both], [[q.target] for q in both]).value
        attention.append(float(single - two))
        margin.append(float(p[0] - p[1]))
    return sign * np.mean(attention), sign * np.mean(margin)


def test_numbers_are_those_worked_out_by_hand():
    things = [(word, 1 if i < 5 else -1) for i, word in enumerate(
        side_word for side in WORDS.families[0].sides for side_word in side.words)]  # fmt: skip
    table = {
        (first, second): np.array([cell(first, second, *thing) for thing in things])
        for first, second in (("she", "he"), ("woman", "man"), ("nurse", "doctor"))
    }
    assert [pair.word for pair in RESULT.pairs] == ["she/he", "woman/man", "nurse/doctor"]
    base = []
    for pair, subset in zip(RESULT.pairs, table.values(), strict=True):
        for estimate, column in ((pair.attention, subset[:, 0]), (pair.margin, subset[:, 1])):
            test = stats.ttest_1samp(column, 0)
            assert estimate.value == pytest.approx(column.mean(), abs=1e-5)
            assert estimate.n == 10
            ends = test.confidence_interval(0.95)
            assert estimate.interval.low == pytest.approx(ends.low, abs=1e-5)
            assert estimate.interval.high == pytest.approx(ends.high, abs=1e-5)
        base.append(pair.attention.p.value)
    assert [pair.attention.p.adjusted for pair in RESULT.pairs] == pytest.approx(list(holm(base)))
    quick = next(target for target in RESULT.targets if target.word == "quick")
    subset = np.array([rows[4] for rows in table.values()])
    assert quick.attention.value == pytest.approx(subset[:, 0].mean(), abs=1e-5)
    assert quick.margin.value == pytest.approx(subset[:, 1].mean(), abs=1e-5)
    assert quick.attention.n == 3
    assert quick.attention.detectable > 0
    assert RESULT.n == 3 * 10 * 2
    assert RESULT.dropped == ()


def test_words_that_do_nothing_are_listed():
    every = (*RESULT.pairs, *RESULT.targets)
    expected = [
        item.word for item in every if 0 in item.attention.interval and 0 in item.margin.interval
    ]
    assert list(RESULT.words_without_effect) == expected
    assert 0 < len(expected) < len(every)


def test_what_it_depends_on():
    assert RESULT.groups == ("female", "male")
    assert RESULT.provenance.settings["heads"] == ((0, 1), (2, 3))
    assert LexiconEffects.from_json(RESULT.to_json()) == RESULT
    everywhere = lexicon_effects(LM, THREE, frames=FrameOptions("bare"))
    assert everywhere.provenance.settings["heads"] is None
    assert everywhere.pairs[0].attention.value != RESULT.pairs[0].attention.value
    assert everywhere.pairs[0].margin == RESULT.pairs[0].margin


def test_unknown_words_are_dropped_with_the_reason():
    odd = replace(THREE, terms=(*THREE.terms, Term("person", (("female", "xyz"), ("male", "zyx")))))
    result = lexicon_effects(LM, odd, frames=FrameOptions(max_frames=1))
    assert len(result.dropped) == 10
    assert "lacks 'xyz'" in result.dropped[0].reason
    assert [pair.word for pair in result.pairs] == ["she/he", "woman/man", "nurse/doctor"]
    assert any(note.startswith("xyz/zyx: no attention: a t-test needs") for note in result.notes)


def test_a_model_without_a_vocabulary_is_judged_by_attention():
    result = lexicon_effects(
        load(zoo.folder("bert", "BertModel")), THREE, frames=FrameOptions(max_frames=1)
    )
    assert result.pairs[0].margin is None
    assert any("no vocabulary head" in note for note in result.notes)
    assert set(result.words_without_effect) == {
        item.word for item in (*result.pairs, *result.targets) if 0 in item.attention.interval
    }


def test_a_causal_model_is_asked_too():
    result = lexicon_effects(
        load(zoo.folder("gpt2", "GPT2LMHeadModel")), THREE, frames=FrameOptions(max_frames=1)
    )
    assert result.dropped == ()
    assert result.pairs[0].margin is not None


@pytest.mark.parametrize(
    ("change", "options", "kind", "responses"),
    [
        ({}, {"frames": FrameOptions(max_frames=0)}, LevelheadError, "0 frames"),
        ({}, {"heads": []}, LevelheadError, "there is no head"),
        ({}, {"frames": FrameOptions("verb")}, UnknownNameError, "no kind of target named 'verb'"),
        ({"families": ()}, {}, LevelheadError, "tiny has no targets for female and male"),
    ],
)
def test_refusals(change, options, kind, responses):
    with pytest.raises(kind, match=responses):
        lexicon_effects(LM, replace(THREE, **change), **options)


def test_of_one_pair_targets_cannot_be_judged():
    result = lexicon_effects(LM, replace(THREE, terms=WORDS.terms[:1]))
    assert [pair.word for pair in result.pairs] == ["she/he"]
    assert result.targets == ()
    assert any("a t-test needs a list of at least two" in note for note in result.notes)


def test_nothing_readable_is_an_error():
    odd = replace(THREE, terms=(Term("person", (("female", "xyz"), ("male", "zyx"))),))
    with pytest.raises(NotMeasurableError, match="no pair and no target can be tested"):
        lexicon_effects(LM, odd)


def test_a_model_that_cannot_tell_the_words_apart_is_an_error():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    pairs = (("she", "he"), ("woman", "man"))
    with torch.no_grad():
        words = lm.layout.backbone.get_input_embeddings().weight
        for pair in pairs:
            first, second = lm.tokens.tokenizer.convert_tokens_to_ids(list(pair))
            words[first] = words[second]
    with pytest.raises(NotMeasurableError, match="all differences are equal"):
        lexicon_effects(lm, WORDS)
