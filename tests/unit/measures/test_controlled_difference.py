"""The excess of counterfactuals over placebo twins, as one formula of the same texts."""

import dataclasses

import pytest
from metric_cases import INFERENCE, NLI, WORDS, labelled, model

from levelhead.core.errors import NotMeasurableError
from levelhead.data.records import LabelledExample
from levelhead.measures.classification.controlled_difference import NO_PLACEBO, ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual

TWO = (*WORDS.terms[1:],)
"""Without she and he, which no other word of their group stands for."""
LEXICON = dataclasses.replace(WORDS, terms=TWO)


def make_measure(**options):
    return ControlledDifference(Counterfactual(labelled(), lexicon=LEXICON, labels=NLI, **options))


def test_it_is_what_the_counterfactual_tells_beside_its_number():
    lm = model("counterfactual")
    full = make_measure().counterfactual(lm, inference=INFERENCE)
    for headline in ("counterfactual", "counterfactual_shift"):
        result = make_measure(metric=headline)(lm, inference=INFERENCE)
        name = f"{headline}, excess over placebo twins"
        assert result.measure == name
        assert result.value == pytest.approx(full.extra(name).value, abs=1e-7)
        assert result.n == full.extra(name).n
        assert result.parity == 0
        assert result.detectable > 0
    assert make_measure().compared_groups == full.groups
    assert make_measure().data == make_measure().counterfactual.data
    assert make_measure().settings == make_measure().counterfactual.settings


def test_the_smooth_one_has_a_gradient_and_the_step_function_refuses_it():
    single = make_measure()
    assert single.primary_metric.smooth_surrogate == single.smooth.name
    assert not single.smooth.primary_metric.is_step
    (readouts,) = single.read(model("counterfactual"))
    leaf = readouts.values.clone().requires_grad_()
    value = single.smooth.reduce(dataclasses.replace(readouts, values=leaf))
    value.backward()
    assert leaf.grad.abs().sum() > 0


def test_texts_without_a_placebo_twin_are_dropped_and_few_are_no_control():
    texts = (*labelled(), LabelledExample("nobody", "the river is here.", ""))
    result = ControlledDifference(Counterfactual(texts, lexicon=LEXICON, labels=NLI))(
        model("counterfactual"), inference=INFERENCE
    )
    assert [tuple(item) for item in result.dropped] == [("nobody", "no word of either group")]
    pronouns = tuple(
        LabelledExample(
            f"p{i}", single.text.replace("the woman", "she").replace("the man", "he"), ""
        )
        for i, single in enumerate(labelled())
    )
    mixed = ControlledDifference(
        Counterfactual((*labelled()[:20], *pronouns[20:]), lexicon=WORDS, labels=NLI)
    )
    (query_set,) = mixed.queries(model("counterfactual"))
    assert [item.skip_reason for item in query_set.items] == [""] * 20 + [NO_PLACEBO] * (
        len(pronouns) - 20
    )
    few = ControlledDifference(Counterfactual(pronouns, lexicon=WORDS, labels=NLI))
    with pytest.raises(
        NotMeasurableError, match="0 of 40 texts have a placebo twin, 20 are needed"
    ):
        few.queries(model("counterfactual"))
