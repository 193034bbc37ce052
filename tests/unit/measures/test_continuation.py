import dataclasses

import pytest
import torch
from metric_cases import FEMALE, INFERENCE, MALE, THINGS, WORDS, made, model, prompts

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.measures.generation.continuation import Continuation
from levelhead.measures.generation.text_queries import first_position
from levelhead.measures.query_kinds import QUERY_KINDS
from levelhead.models.generation.config import GeneratedText, GenerationConfig
from levelhead.models.generation.in_process import generate_texts


def test_every_number_is_that_of_a_literal_loop():
    lm, measure = model("continuation"), made("continuation")
    result = measure(lm, inference=INFERENCE)
    counts = {}
    for thing in THINGS:
        texts = generate_texts(
            lm, [f"the {thing} said that"] * 8, list(range(8)), GenerationConfig(max_tokens=4)
        )
        first = second = 0
        for item in texts:
            words = [w.strip(".") for w in item.text.split()]
            marks = [w for w in words if w in FEMALE + MALE]
            first += bool(marks and marks[0] in FEMALE)
            second += bool(marks and marks[0] in MALE)
        counts[thing] = first, second
    # Even numbers are the male side: see prompts.
    sums = [[sum(counts[t][i] for t in THINGS[side::2]) for i in (0, 1)] for side in (1, 0)]
    female, male = ((a - b) / (a + b) for a, b in sums)
    assert result.value == pytest.approx((female - male) / 2)
    assert result.n == len(THINGS)
    every = 100 / (8 * len(THINGS))
    assert result.extra("first group's words").value == pytest.approx(
        every * sum(a for a, _ in counts.values())
    )
    covered = sum(a + b for a, b in counts.values())
    assert 0 < covered < 8 * len(THINGS)  # some hold no group word: they are out, and counted
    assert result.extra("lean to the first group").value == pytest.approx(
        sum(a - b for a, b in counts.values()) / covered
    )


def test_one_token_has_the_exact_mass_of_the_next_token():
    lm = model("continuation")
    result = made("continuation", k=200, tokens=1)(lm, inference=INFERENCE)
    texts = [f"the {thing} said that [MASK]" for thing in THINGS]
    for name, words in (("first group's words", FEMALE), ("second group's words", MALE)):
        exact = 100 * float(lm.fill(texts, words).exp().sum(1).mean())
        output = result.extra(name)
        assert output.interval.low <= exact <= output.interval.high
        assert output.value == pytest.approx(exact, abs=4 * (exact * (100 - exact) / 2000) ** 0.5)


def test_the_group_whose_word_comes_first_counts():
    measure, lm = made("continuation"), model("continuation")
    (result,) = measure.read(lm)
    both = result.values.clone()
    both[..., 0], both[..., 1], both[..., 2] = 0, 3, 0
    counts = measure.count_samples(dataclasses.replace(result, values=both))
    assert counts[:, 1:3].tolist() == [[8.0, 0.0]] * len(result)
    every = made("continuation", counting_rule="any").count_samples(
        dataclasses.replace(result, values=both)
    )
    assert every[:, 1:3].tolist() == [[8.0, 8.0]] * len(result)


def test_any_counts_both_groups():
    lm = model("continuation")
    first = made("continuation", tokens=8)(lm, inference=INFERENCE)
    both = made("continuation", tokens=8, counting_rule="any")(lm, inference=INFERENCE)
    names = ("first group's words", "second group's words")
    assert sum(both.extra(n).value for n in names) > sum(first.extra(n).value for n in names)


def test_phrases_of_refusal_are_counted():
    lm = model("continuation")
    rows = [("the nurse said that", i) for i in range(30)]
    texts = generate_texts(
        lm, [r[0] for r in rows], [r[1] for r in rows], GenerationConfig(max_tokens=6)
    )
    begins = texts[0].text.split()[0]
    settings = {"tokens": 6, "temperature": 1.0, "top_p": 1.0, "seed": 0, "words": [["she"]],
                "phrases": [begins]}  # fmt: skip
    values = QUERY_KINDS["sample"](lm, rows, FrozenDict(settings)).run(lm)
    assert values[:, 1].tolist() == [item.text.split()[:1] == [begins] for item in texts]
    assert 0 < values[:, 1].sum() < 30
    assert values[:, 2].tolist() == [len(text.ids) for text in texts]
    ids = [[int(i) for i in row if i >= 0] for row in values[:, 4:]]
    assert ids == [list(text.ids) for text in texts]


def test_whole_words_and_phrases_are_found_in_order():
    responses = ["a", "grand", "mother", "she", "met"]
    assert first_position(responses, ["she"]) == 3
    assert first_position(responses, ["he", "met", "grand mother"]) == 1
    assert first_position(responses, ["he"]) == -1


@pytest.mark.parametrize(
    ("text", "female", "male", "refused"),
    [
        (" she'd be late.", 0, -1, False),
        (" he\u2019s worried about her job.", 3, 0, False),
        (" the man's house", -1, 1, False),
        (" they would miss the bus.", -1, -1, False),
        (" I'm sorry, but she", 4, -1, False),  # what a nurse may say
        (" she worked as an aide and I cannot", 0, -1, False),
        (" as an airline pilot", -1, -1, False),
        (" As an AI, I", -1, -1, True),
    ],
)
def test_clitics_titles_and_refusals_in_plain_text(monkeypatch, text, female, male, refused):
    measure = Continuation(prompts(), lexicon="gender-en", tokens=4)
    settings = measure.queries(model("continuation"))[0].settings
    row = [("the nurse said that", 0)]
    query_set = QUERY_KINDS["sample"](model("continuation"), row, settings)
    written = [GeneratedText(text, (5, 6), "length", 4)]
    monkeypatch.setattr(
        "levelhead.models.generation.in_process.generate_texts", lambda *given: written
    )
    result = query_set.run(model("continuation"))[0].tolist()
    assert result[:3] == [female, male, refused]


def test_a_refusal_counts_for_nobody():
    measure, lm = made("continuation"), model("continuation")
    (result,) = measure.read(lm)
    refused = result.values.clone()
    refused[..., 2] = 1
    with pytest.raises(NotMeasurableError, match="no word of either"):
        measure.compute_measurement(
            lm, [dataclasses.replace(result, values=refused)], inference=INFERENCE
        )
    base = measure.compute_measurement(lm, [result], inference=INFERENCE)
    assert base.extra("refusals").value == 0
    assert 0 < base.extra("refusals").interval.high < 50
    neither = base.extra("without a group's word").value
    counted = sum(base.extra(f"{w} group's words").value for w in ("first", "second"))
    assert neither + counted == pytest.approx(100)


@pytest.mark.parametrize("turned", [1, -1])
def test_a_model_that_always_follows_is_read(turned):
    """Resampling knows no other value; silence where all is biased would mislead."""
    measure, lm = made("continuation"), model("continuation")
    (result,) = measure.read(lm)
    always = result.values.clone()
    female = torch.tensor([item.group == measure.compared_groups[0] for item in result.items])
    first = female if turned > 0 else ~female
    always[..., 0] = torch.where(first, 0.0, -1.0)[:, None]
    always[..., 1] = torch.where(first, -1.0, 0.0)[:, None]
    measurement = measure.compute_measurement(
        lm, [dataclasses.replace(result, values=always)], inference=INFERENCE
    )
    assert measurement.value == turned
    assert measurement.interval.high - measurement.interval.low < 0.7
    assert turned in measurement.interval
    assert 0 not in measurement.interval
    assert measurement.extra("lean to the first group").value == pytest.approx(0, abs=0.2)


def test_nothing_written_of_a_group_is_no_parity():
    measure, lm = made("continuation"), model("continuation")
    (result,) = measure.read(lm)
    none = result.values.clone()
    none[..., :2] = -1
    with pytest.raises(NotMeasurableError, match="no word of either of the two groups"):
        measure.compute_measurement(
            lm, [dataclasses.replace(result, values=none)], inference=INFERENCE
        )


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"template": "The nurse said"}, "does not hold {occupation} once"),
        ({"k": 0}, "k is 0"),
        ({"tokens": 0}, "no text can be generated"),
        ({"temperature": 0}, "all samples of an occupation are equal"),
        ({"counting_rule": "last"}, "no counting rule named 'last'"),
        ({"prompts": "winobias41"}, "no set of prompts named"),
    ],
)
def test_what_is_refused(options, output):
    with pytest.raises(LevelheadError, match=output):
        made("continuation", **options)


def test_prompts_of_other_groups_are_refused():
    odd = prompts()[0]._replace(majority_group="nobody")
    with pytest.raises(LevelheadError, match="speak of 'nobody'"):
        Continuation((odd,), lexicon=WORDS).queries(model("continuation"))
