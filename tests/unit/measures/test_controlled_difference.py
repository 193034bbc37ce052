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


def ruler(**options):
    return ControlledDifference(Counterfactual(labelled(), lexicon=LEXICON, labels=NLI, **options))


def test_it_is_what_the_counterfactual_tells_beside_its_number():
    lm = model("counterfactual")
    whole = ruler().counterfactual(lm, inference=INFERENCE)
    for headline in ("counterfactual", "counterfactual_shift"):
        found = ruler(metric=headline)(lm, inference=INFERENCE)
        name = f"{headline}, excess over placebo twins"
        assert found.measure == name
        assert found.value == pytest.approx(whole.extra(name).value, abs=1e-7)
        assert found.n == whole.extra(name).n
        assert found.parity == 0
        assert found.detectable > 0
    assert ruler().compared_groups == whole.groups
    assert ruler().data == ruler().counterfactual.data
    assert ruler().settings == ruler().counterfactual.settings


def test_the_smooth_one_has_a_gradient_and_the_step_function_refuses_it():
    one = ruler()
    assert one.primary_metric.smooth_surrogate == one.smooth.name
    assert not one.smooth.primary_metric.is_step
    (readouts,) = one.read(model("counterfactual"))
    leaf = readouts.values.clone().requires_grad_()
    value = one.smooth.reduce(dataclasses.replace(readouts, values=leaf))
    value.backward()
    assert leaf.grad.abs().sum() > 0


def test_texts_without_a_placebo_twin_are_dropped_and_few_are_no_control():
    texts = (*labelled(), LabelledExample("nobody", "the river is here.", ""))
    found = ControlledDifference(Counterfactual(texts, lexicon=LEXICON, labels=NLI))(
        model("counterfactual"), inference=INFERENCE
    )
    assert [tuple(one) for one in found.dropped] == [("nobody", "no word of either group")]
    pronouns = tuple(
        LabelledExample(f"p{i}", one.text.replace("the woman", "she").replace("the man", "he"), "")
        for i, one in enumerate(labelled())
    )
    mixed = ControlledDifference(
        Counterfactual((*labelled()[:20], *pronouns[20:]), lexicon=WORDS, labels=NLI)
    )
    (asked,) = mixed.queries(model("counterfactual"))
    assert [item.skip_reason for item in asked.items] == [""] * 20 + [NO_PLACEBO] * (
        len(pronouns) - 20
    )
    few = ControlledDifference(Counterfactual(pronouns, lexicon=WORDS, labels=NLI))
    with pytest.raises(
        NotMeasurableError, match="0 of 40 texts have a placebo twin, 20 are needed"
    ):
        few.queries(model("counterfactual"))
