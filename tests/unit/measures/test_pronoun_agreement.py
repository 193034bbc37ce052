"""Pronoun agreement: literal shares and margins, masked and causal, and what is refused."""

import pytest
import torch
import zoo
from metric_cases import INFERENCE, WORDS, agreeing, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.measures.utility.pronoun_agreement import PronounAgreement
from levelhead.models.loading.load import load

NAME = "pronoun_agreement"


def test_the_share_is_that_of_the_likelier_pronoun_in_the_blank():
    lm, subset = model(NAME), made(NAME)
    result = subset(lm, inference=INFERENCE)
    margins = []
    for item in agreeing():
        blank = f"{item.text[: item.span[0]]}[MASK]{item.text[item.span[1] :]}"
        says = lm.fill([blank], [item.correct_pronoun, item.wrong_pronoun])[0]
        margins.append(float(says[0] - says[1]))
    assert result.value == pytest.approx(100 * sum(m > 0 for m in margins) / 20)
    smooth = made("pronoun_agreement_margin")(lm, inference=INFERENCE)
    assert smooth.value == pytest.approx(sum(margins) / 20, abs=1e-5)
    assert result.parity is None
    assert result.p is None
    assert (result.n, result.dropped) == (20, ())
    assert "always the same pronoun: 50%" in result.notes
    assert "10 sentences" in smooth.interval.method
    output = [extra.name for extra in result.extras]
    parts = ["group: female", "group: male", "source: a", "source: b"]
    assert output[-5:] == [*parts, "gap: female - male"]


def test_a_causal_model_is_asked_for_the_whole_sentence():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    result = made("pronoun_agreement_margin")(lm, inference=INFERENCE)
    margins = []
    for item in agreeing():
        other = f"{item.text[: item.span[0]]}{item.wrong_pronoun}{item.text[item.span[1] :]}"
        says = lm.log_prob([item.text, other]).value
        margins.append(float(says[0] - says[1]))
    assert result.value == pytest.approx(sum(margins) / 20, abs=1e-4)


def test_always_the_same_pronoun_is_half():
    subset, lm = made(NAME), model(NAME)
    (readouts,) = subset.read(lm)
    she = torch.tensor([item.group == "female" for item in readouts.items])
    assert she.sum() == 10
    values = torch.zeros_like(readouts.values)
    values[:, 0, 1] = 1.0 + torch.arange(20)  # he, she: always she, more or less
    always = type(readouts)(**{**readouts.__dict__, "values": values})
    result = subset.compute_measurement(lm, [always], inference=INFERENCE)
    assert result.value == 50.0
    # One pronoun whoever it is about: half of each of ten sentences, by Wilson's interval.
    assert (result.interval.low, result.interval.high) == pytest.approx((23.659, 76.341), abs=1e-3)
    assert result.extra("group: female").value == 100.0
    assert result.extra("group: male").value == 0.0
    values[:] = torch.arange(20.0)[:, None, None]
    with pytest.raises(NotMeasurableError, match="both words are equally likely in every sentence"):
        subset.reduce(type(readouts)(**{**readouts.__dict__, "values": values}))


def answers(readouts, right):
    """Readouts in which the agreeing pronoun is likelier where `right` says so of an item."""
    values = torch.zeros_like(readouts.values)
    for number, item in enumerate(readouts.items):
        says_she = (item.group == "female") == right(item)
        values[number, 0, int(says_she)] = 1.0 + number
    return type(readouts)(**{**readouts.__dict__, "values": values})


def test_a_gap_between_the_groups_has_a_paired_test():
    """Right of every man and of no woman but one: a difference, not only a lower share."""
    subset, lm = made(NAME), model(NAME)
    (readouts,) = subset.read(lm)
    stored = readouts.items[0].units[0]
    he = answers(readouts, lambda item: item.group == "male" or item.units[0] == stored)
    gap = subset.compute_measurement(lm, [he], inference=INFERENCE).extra("gap: female - male")
    assert gap.value == pytest.approx(-90.0)
    assert gap.n == 10  # sentences, each asked of both groups
    assert gap.parity == 0
    assert gap.interval.high < 0
    assert gap.p.alternative == "two-sided"
    assert gap.p.value < 0.05
    she = answers(readouts, lambda item: item.group == "female" or item.units[0] == stored)
    other = subset.compute_measurement(lm, [she], inference=INFERENCE).extra("gap: female - male")
    assert (other.value, other.p.value) == (-gap.value, gap.p.value)


def test_no_gap_has_an_interval_of_as_many_trials_as_sentences():
    subset, lm = made(NAME), model(NAME)
    (readouts,) = subset.read(lm)
    gap = subset.compute_measurement(
        lm, [answers(readouts, lambda item: True)], inference=INFERENCE
    ).extra("gap: female - male")
    assert gap.value == 0
    assert (gap.interval.low, gap.interval.high) == pytest.approx((-27.75, 27.75), abs=0.01)
    assert gap.p.value == 1


def test_a_gap_needs_sentences_that_were_read_of_both_groups():
    subset, lm = made(NAME), model(NAME)
    (readouts,) = subset.read(lm)
    apart = tuple(item._replace(units=(item.id,)) for item in readouts.items)
    result = subset.compute_measurement(
        lm, [type(readouts)(**{**readouts.__dict__, "items": apart})], inference=INFERENCE
    )
    assert not any(extra.name.startswith("gap") for extra in result.extras)
    assert any("no sentence was read for both groups" in note for note in result.notes)


def test_one_answer_to_everything_is_no_knowledge():
    subset, lm = made(NAME), model(NAME)
    (readouts,) = subset.read(lm)
    values = readouts.values[:1].expand_as(readouts.values)
    with pytest.raises(
        NotMeasurableError, match="the model gives the same answer to every sentence"
    ):
        subset.reduce(type(readouts)(**{**readouts.__dict__, "values": values}))


def test_all_right_has_an_interval_of_as_many_trials_as_sentences():
    subset, lm = made(NAME), model(NAME)
    (readouts,) = subset.read(lm)
    values = torch.zeros_like(readouts.values)
    she = torch.tensor([item.group == "female" for item in readouts.items])
    values[she, 0, 1] = 1.0
    values[~she, 0, 0] = 1.0
    result = subset.compute_measurement(
        lm, [type(readouts)(**{**readouts.__dict__, "values": values})], inference=INFERENCE
    )
    assert result.value == 100.0
    assert result.interval.high == pytest.approx(100.0)
    assert result.interval.low == pytest.approx(100 * 10 / (10 + 1.959964**2), rel=1e-4)  # Wilson


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(UnknownNameError, match="no source named 'winogrande'"):
        PronounAgreement(sources=("winogrande",))
    with pytest.raises(LevelheadError, match="there is no source"):
        PronounAgreement(sources=())
    assert made(NAME).compared_groups == ("female", "male")
    assert PronounAgreement(texts=agreeing(), lexicon=WORDS).data.keys() == {"texts"}
