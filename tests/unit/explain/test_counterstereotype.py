"""The experiment on a tiny model, against numbers worked out one by one."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
import zoo
from metric_cases import INFERENCE, THINGS, WORDS
from scipy import stats

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.explain.attention.attention_scores import find_word_columns
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult, counterstereotype
from levelhead.explain.attention.example import AttentionExample, make_attention_example
from levelhead.explain.attention.head_groups import HeadGroups
from levelhead.explain.attention.pairs import (
    ATTRIBUTE_AFTER_TARGET,
    CounterPairs,
    make_counter_pair,
)
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

LM = load(zoo.folder("bert", "BertForMaskedLM"))
EVERY = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]
BIASED, REGULAR = EVERY[:5], EVERY[5:]


def tiny():
    rows = []
    for i, (a, b) in enumerate(itertools.permutations(THINGS[2:8], 2)):
        who, other = ("woman", "man") if i % 2 else ("man", "woman")
        text, twin = (f"the {item} said that {a} was {b}." for item in (who, other))
        rows.append(make_counter_pair(f"{i}", text, twin, group=who, attribute=who, target=a))
    rows.append(make_counter_pair("x", "xyz woman was zyx.", "xyz man was zyx.", group="woman",
                       attribute="woman", target="zyx"))  # fmt: skip
    rows.append(make_counter_pair("late", "there was a quick woman.", "there was a quick man.",
                       group="woman", attribute="woman", target="there"))  # fmt: skip
    return CounterPairs(tuple(rows), (("tiny", "ab" * 32),), (("its twin is the same", 2),))


def run(lm=LM, pairs=None, **options):
    given = {"heads": HeadGroups(BIASED, REGULAR), "placebo": WORDS, "inference": INFERENCE}
    given |= options
    return counterstereotype(lm, pairs or tiny(), **given)


RESULT = run()


def by_hand(text, attribute, target):
    """`[layers, heads]` raw normalised attention, from the whole row."""
    spans = [(text.index(f" {word}") + 1, text.index(f" {word}") + 1 + len(word))
             for word in (attribute, target)]  # fmt: skip
    (row,) = LM.attention_row([text], [spans[1]])
    (single,) = LM.tokens.encode([text])
    words = [i for i in single.word_positions() if text[slice(*single.offsets[i])].isalpha()]
    (at,) = single.positions_in_span(spans[0])
    seen = row[..., words].double()
    low, high = seen.min(-1).values, seen.max(-1).values
    return ((row[..., at].double() - low) / (high - low)).numpy()


def changes():
    """`[sentences, heads]` and the targets."""
    rows, words = [], []
    for pair in tiny().pairs[:-2]:
        both = [
            by_hand(side.text, side.text[slice(*side.attribute)], pair.target_word)
            for side in (pair.original, pair.counter)
        ]
        rows.append((both[0] - both[1]).reshape(-1))
        words.append(pair.target_word)
    return np.array(rows), words


def test_numbers_are_those_worked_out_by_hand():
    result = run(pairs=CounterPairs(tiny().pairs[:-2], tiny().data))
    d, words = changes()
    assert result.n == len(d) == 30
    assert dict(result.targets) == Counter(words)
    biased, regular = d[:, :5].mean(1), d[:, 5:].mean(1)
    single, two = result.attention.groups
    assert (single.group, single.heads, two.group, two.heads) == ("biased", 5, "regular", 7)
    assert single.change.value == pytest.approx(biased.mean(), abs=1e-7)
    assert single.original.value - single.counter.value == pytest.approx(biased.mean(), abs=1e-7)
    assert single.original.parity is None is single.original.p
    expected = stats.ttest_1samp(regular, 0, alternative="greater")
    assert two.paper_t_test.t == pytest.approx(expected.statistic, rel=1e-4)
    assert two.paper_t_test.p.value == pytest.approx(expected.pvalue, rel=1e-3)
    assert two.paper_t_test.p.alternative == "greater"
    assert two.paper_t_test.n == 30
    gap = result.attention.difference
    assert gap.value == pytest.approx((biased - regular).mean(), abs=1e-7)
    assert gap.interval.low < gap.value < gap.interval.high
    assert "6 targets" in gap.interval.method
    assert gap.detectable > 0
    assert gap.p.alternative == "two-sided"
    for head in result.attention.heads:
        site = Site("head_out", head.layer, head.head)
        assert head.change == pytest.approx(d[:, EVERY.index(site)].mean(), abs=1e-7)
        assert head.group == ("biased" if site in BIASED else "regular")
        assert head.p.adjusted >= head.p.value
        assert head.p.family == len(result.attention.heads) == 11
    # In one head the attribute is the least of its row, or the most, in nearly every sentence.
    assert any("attention: not tested" in note for note in result.notes)


def test_coverage_is_told():
    assert RESULT.n == 31
    assert [(row.item, "lacks 'zyx'" in row.reason) for row in RESULT.dropped] == [("x", True)]
    assert RESULT.exclusions == (("its twin is the same", 2),)
    assert dict(RESULT.groups) == {"woman": 16, "man": 15}
    assert sum(count for _, count in RESULT.targets) == 31
    assert any("500 pairs were wanted, 32 are there" in note for note in RESULT.notes)
    assert any("31 of 31 sentences have another word" in note for note in RESULT.notes)
    assert CounterStereotypeResult.from_json(RESULT.to_json()) == RESULT
    assert run().to_json() == RESULT.to_json()


def test_provenance_names_heads_data_and_draw():
    output = RESULT.provenance
    assert output.equation == "Yang et al. 2025, section 5.2"
    assert output.settings["heads"]["biased"][4] == (1, 0)
    assert dict(output.data) == {"tiny": "ab" * 32, "lexicon tiny": WORDS.sha256}
    assert output.seed == INFERENCE.seed
    few = run(n_pairs=20)
    assert few.n + len(few.dropped) == 20
    assert few.provenance.settings["pairs"] != output.settings["pairs"]


def test_the_placebo_is_taken_off():
    a = RESULT.attention
    assert RESULT.n_placebos == a.placebo.n == a.net.n == 31
    assert a.net.value == pytest.approx(a.difference.value - a.placebo.value, abs=1e-12)
    d = [
        by_hand(pair.original.text, who, pair.target_word)
        - by_hand(pair.original.text.replace(who, {"woman": "nurse", "man": "doctor"}[who]),
                  {"woman": "nurse", "man": "doctor"}[who], pair.target_word)
        for pair in tiny().pairs[:30]
        for who in [pair.group]
    ]  # fmt: skip
    d = np.array(d).reshape(30, -1)
    alone = run(pairs=CounterPairs(tiny().pairs[:-2], tiny().data)).attention.placebo.value
    assert alone == pytest.approx((d[:, :5].mean(1) - d[:, 5:].mean(1)).mean(), abs=1e-7)
    without = run(placebo=None)
    assert without.attention.net is None is without.attention.placebo
    assert "no placebo: a change may be one of word frequency" in without.notes


def test_as_many_tokens_is_all_of_them_where_every_word_is_one():
    assert RESULT.attention.same_length.value == pytest.approx(RESULT.attention.difference.value)
    assert RESULT.attention.same_length.n == 31


def test_random_heads_are_compared_with():
    result = RESULT.attention.head_permutation_test
    assert result.difference == pytest.approx(RESULT.attention.difference.value)
    assert 0 < result.p.value <= 1
    full = run(heads=HeadGroups(EVERY[:4], EVERY[4:]))
    assert full.attention.head_permutation_test is None
    assert any("random heads: no layer has heads of both groups" in note for note in full.notes)


def test_weighted_attention_is_another_number():
    assert RESULT.weighted.weighting == "value-weighted"
    assert RESULT.weighted.difference.value != RESULT.attention.difference.value


def test_a_causal_model_is_asked_only_where_the_attribute_comes_first():
    result = run(load(zoo.folder("gpt2", "GPT2LMHeadModel")))
    assert dict(result.exclusions)[ATTRIBUTE_AFTER_TARGET] == 1
    assert result.n == 30


@pytest.mark.parametrize(
    ("biased", "regular", "responses"),
    [
        ([], REGULAR, "there is no biased head"),
        (BIASED, [], "there is no regular head"),
        (BIASED, BIASED, "head_out 0.0 is named twice"),
        ([Site("mlp_out", 0)], REGULAR, "mlp_out 0 is no head"),
        ([Site("head_out", 0)], REGULAR, "head_out 0 is no head"),
        ([Site("head_out", 0, 9)], REGULAR, "head_out 0.9 does not exist: head_out has"),
    ],
)
def test_heads_are_checked(biased, regular, responses):
    with pytest.raises(LevelheadError, match=responses):
        run(heads=HeadGroups(biased, regular))


def test_nothing_readable_is_an_error():
    rows = [make_counter_pair(str(i), f"xyz woman was zyx{i}.", f"xyz man was zyx{i}.", group="",
                   attribute="woman", target=f"zyx{i}") for i in range(3)]  # fmt: skip
    with pytest.raises(
        NotMeasurableError, match="none of 3 pairs can be read, such as: the model's"
    ):
        run(pairs=CounterPairs(tuple(rows), ()))


def test_one_target_is_an_error():
    rows = [pair for pair in tiny().pairs[:30] if pair.target_word == "house"]
    with pytest.raises(
        NotMeasurableError, match="1 targets: fewer than two give no estimate of variance"
    ):
        run(pairs=CounterPairs(tuple(rows), ()))


def test_a_model_that_does_not_change_is_an_error():
    """Attributes that the model cannot tell apart: never a difference of 0."""
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    ids = lm.tokens.tokenizer.convert_tokens_to_ids(["man", "woman"])
    with torch.no_grad():
        words = lm.layout.backbone.get_input_embeddings().weight
        words[ids[0]] = words[ids[1]]
    with pytest.raises(NotMeasurableError):
        run(lm)


def test_one_sentence_and_its_twin():
    pair = tiny().pairs[1]
    result = make_attention_example(LM, pair, HeadGroups(BIASED[:1], REGULAR[:1]))
    over = find_word_columns(LM, pair.original)
    assert result.original.words == over.words
    assert result.original.words[result.original.attribute] == "woman"
    assert result.counter.words[result.counter.attribute] == "man"
    assert result.counter.words[result.counter.target] == pair.target_word
    first, second = result.heads
    assert (first.layer, first.head, first.group) == (0, 0, "biased")
    assert (second.layer, second.head, second.group) == (1, 1, "regular")
    expected = by_hand(pair.original.text, "woman", pair.target_word)
    assert first.original[result.original.attribute] == pytest.approx(expected[0, 0], abs=1e-6)
    assert second.original[result.original.attribute] == pytest.approx(expected[1, 1], abs=1e-6)
    assert min(first.counter) == 0
    assert max(first.counter) == 1
    assert AttentionExample.from_json(result.to_json()) == result


def test_an_example_without_spread_is_refused():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    with torch.no_grad():
        for block in lm.layout.blocks:
            block.attention.self.query.weight.zero_()
            block.attention.self.query.bias.zero_()
    with pytest.raises(NotMeasurableError, match="attends alike to all words"):
        make_attention_example(lm, tiny().pairs[0], HeadGroups(BIASED[:1], REGULAR[:1]))
