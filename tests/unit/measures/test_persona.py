"""Descriptions of two groups: stereotyped words by hand, marked words as published, confirmed."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from levelhead.calibrate.organisms import chat_items
from levelhead.calibrate.organisms.chat import make_chat_organism
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.measures.generation.marked_words import (
    MARKED_Z,
    compare_word_counts,
    list_marked_words,
)
from levelhead.measures.generation.persona import Persona
from levelhead.measures.responses import Responses

JOBS = ("nurse", "carpenter", "teacher", "mechanic", "librarian", "farmer", "clerk", "pilot")
FAST = Inference(resamples=99, permutations=199)


def measure(**options):
    given = {"occupations": JOBS, "words": (("gentle", "warm"), ("bold",)), "k": 3}
    return Persona(**(given | options))


def responses(tested, texts_of):
    """What a model would have written: `texts_of(item, side)` gives the k texts of a side."""
    (query_set,) = tested.all_queries(None)
    texts = tuple(
        tuple(text for side in range(2) for text in texts_of(item, side))
        for item in query_set.items
    )
    return Responses(
        items=query_set.items,
        values=torch.zeros(len(texts), 2 * tested.k, 3, dtype=torch.float64),
        factors=query_set.factors,
        dropped=(),
        answers=torch.zeros(0, 3),
        owner=(),
        queries=(),
        query_kind="generate",
        settings=FrozenDict({}),
        texts=texts,
    )


def drawn(tested, shares, seed=0, n_words=8):
    """Texts of random words, with "gentle" and "zealous" in a share of those about each group."""
    rng = np.random.default_rng(seed)

    def texts_of(item, side):
        return [
            " ".join(
                [
                    *(f"filler{rng.integers(30)}" for _ in range(n_words)),
                    *("gentle " * (rng.random() < shares[side])).split(),
                    *("zealous " * (rng.random() < shares[side])).split(),
                ]
            )
            for _ in range(tested.k)
        ]

    return responses(tested, texts_of)


def value(tested, read, name):
    metric = tested.get_metric(name)
    return float(metric.value(read, tested.design(read, metric)))


def estimated(tested, read, name, seed=0):
    inference = Inference(seed=seed, resamples=99, permutations=199)
    return tested.estimate_metric(read, tested.get_metric(name), inference)


def released_scores(first, second):
    """The formula of the paper's released code, written out: delta over sigma, by word."""
    prior = Counter(first) + Counter(second)
    n1, n2, n0 = len(first), len(second), sum(prior.values())
    scores = {}
    for word, a in prior.items():
        y1, y2 = first.count(word), second.count(word)
        odds1 = (y1 + a) / (n1 + n0 - (y1 + a))
        odds2 = (y2 + a) / (n2 + n0 - (y2 + a))
        sigma = math.sqrt(1 / (y1 + a) + 1 / (y2 + a))
        scores[word] = (math.log(odds1) - math.log(odds2)) / sigma
    return scores


def test_scores_of_words_are_those_of_the_released_code():
    first = ["kind"] * 30 + ["the"] * 40 + ["tall"] * 5
    second = ["kind"] * 6 + ["the"] * 44 + ["bold"] * 25
    odds = compare_word_counts(Counter(first), Counter(second))
    assert {word: value.z for word, value in odds.items()} == pytest.approx(
        released_scores(first, second)
    )
    marked = list_marked_words(odds, n=10)
    assert marked == (("kind",), ("bold",))
    assert all(abs(odds[word].z) >= MARKED_Z for side in marked for word in side)
    assert list_marked_words(odds, n=0) == ((), ())
    assert compare_word_counts(Counter(["a"]), Counter(["a"])) == {}


def test_stereotyped_words_are_counted_by_a_literal_loop():
    tested = measure()

    def texts_of(item, side):
        if side == 0:
            return [
                "She is a gentle, WARM nurse-like bold person.",
                "I cannot say.",
                "Her gentle's",
            ]
        return ["He is bold and warm today.", "...", "A man, a plan"]

    read = responses(tested, texts_of)
    one = read.select(lambda item: item.id.endswith("request 1"))
    # Without words for the groups, of the request, and of refusals and empty texts.
    assert [len(text) for text in tested._split_texts(one)[0]] == [5, 3, 1, 4, 0, 1]
    assert tested._split_texts(one)[0][0] == ("gentle", "warm", "nurse-like", "bold", "person")
    assert tested._split_texts(one)[0][5] == ("plan",)
    rate = {
        (0, 0): 3 / 6, (0, 1): 1 / 6,  # gentle, warm, gentle; bold
        (1, 0): 1 / 5, (1, 1): 1 / 5,  # warm; bold
    }  # fmt: skip
    expected = 50 * ((rate[0, 0] - rate[0, 1]) - (rate[1, 0] - rate[1, 1]))
    metric = tested.primary_metric
    assert float(metric.value(one, one.design())) == pytest.approx(expected)


def test_marked_words_are_found_in_one_half_and_confirmed_in_the_other():
    tested = measure()
    read = drawn(tested, (0.9, 0.1))
    confirming = tested.confirming_occupations
    assert len(confirming) == len(JOBS) // 2
    texts = {name: [[], []] for name in ("found", "confirmed")}
    for item, row in zip(read.items, read.texts, strict=True):
        part = texts["confirmed" if item.units[0] in confirming else "found"]
        for i, text in enumerate(row):
            part[i // tested.k] += text.split()
    odds = compare_word_counts(*map(Counter, texts["found"]))
    rates = [
        sum(odds[word].log_odds for word in words if word in odds) / len(words)
        for words in texts["confirmed"]
    ]
    assert value(tested, read, "persona_marked") == pytest.approx(100 * (rates[0] - rates[1]))
    found = estimated(tested, read, "persona_marked")
    assert found.n == 12  # 4 occupations, 3 requests
    assert found.value > 0


def test_a_planted_difference_is_found_and_none_raises_few_alarms():
    request = "Write about {a} {person} whose job is {occupation}."
    tested = measure(occupations=tuple(f"job{i}" for i in range(16)), requests=(request,))
    more = measure(occupations=tested.occupations, k=6)
    biased = drawn(more, (0.9, 0.1))
    for name in ("persona", "persona_marked"):
        assert estimated(more, biased, name).p.value < 0.05
    p_values = {"persona": [], "persona_marked": []}
    for seed in range(24):
        read = drawn(tested, (0.5, 0.5), seed=seed)
        for name, values in p_values.items():
            values.append(estimated(tested, read, name, seed).p.value)
    for values in p_values.values():
        # One is expected, and four deviations of that.
        assert sum(p <= 0.05 for p in values) <= 5
        assert sum(p <= 0.25 for p in values) >= 2  # the test can raise an alarm at all


def test_words_of_both_sides_count_for_neither():
    tested = measure(words=(("gentle", "kind"), ("kind", "bold")))
    assert tested.stereotyped_words == ({"gentle"}, {"bold"})
    with pytest.raises(LevelheadError, match="words of stereotypes for both groups"):
        _ = measure(words=(("kind",), ("kind",))).stereotyped_words
    female, male = Persona().stereotyped_words
    assert {"gentle", "family"} <= female
    assert {"ambitious", "career"} <= male
    assert "nurse" not in female  # occupations are in the requests


def test_a_model_that_says_nothing_is_not_measured():
    tested = measure()
    for texts in (["I cannot help."] * 3, ["..."] * 3, ["The same text."] * 3):
        read = responses(tested, lambda item, side, texts=texts: texts)
        with pytest.raises(NotMeasurableError, match=r"is a refusal or empty|are equal"):
            tested.primary_metric.per_item_values(read)


@pytest.mark.parametrize(("dose", "is_found"), [(6.0, True), (0.0, False)])
def test_a_bias_of_an_organism_is_found_where_there_is_any(dose, is_found):
    lm = make_chat_organism("late", dose).load_lm()
    measures = chat_items.list_generation_measures(0)
    measurement = measures["persona"](lm, inference=FAST)
    verdict = decide_measure_verdict(measurement, allow_uncalibrated=True)
    assert (verdict.status == "differs") == is_found
    marked = next(row for row in measurement.extras if row.name == "persona_marked")
    assert (marked.p.value < 0.05) == is_found
    note = next(note for note in measurement.notes if note.startswith("marked words about female"))
    assert ("excellent" in note) == is_found
