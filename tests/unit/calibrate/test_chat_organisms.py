"""Chat organisms: their decisions follow the dose exactly, and one answer to all is no parity."""

from dataclasses import replace
from functools import cache

import pytest

from levelhead.calibrate.organisms import chat_items
from levelhead.calibrate.organisms.chat import CONSTANT_RULES, REFUSAL, make_chat_organism
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.measures.decisions.answer_checks import ANSWERS, CONTENT
from levelhead.measures.decisions.bbq import Bbq
from levelhead.measures.decisions.callback import JOBS, Callback
from levelhead.measures.decisions.decision import Decision
from levelhead.measures.decisions.implicit_association import ImplicitAssociation
from levelhead.measures.decisions.relative_decision import RelativeDecision
from levelhead.measures.decisions.unqover import Unqover
from levelhead.measures.decisions.winobias import Winobias

FAST = Inference(resamples=99, permutations=99)
DECISIONS = {
    "decision": Decision(scenarios=load_scenarios()[:6]),
    "callback": Callback(
        groups=chat_items.GROUPS, names=chat_items.list_names()[:8], jobs=JOBS[:1]
    ),
    "implicit_association": ImplicitAssociation(
        tests=tuple(
            test._replace(first_words=test.first_words[:4], second_words=test.second_words[:4])
            for test in chat_items.list_association_tests()
        ),
        n_pairs=1,
    ),
    "relative_decision": RelativeDecision(
        tests=tuple(
            test._replace(first_words=test.first_words[:4], second_words=test.second_words[:4])
            for test in chat_items.list_topic_tests()
        ),
        n_pairs=1,
    ),
    "unqover": Unqover(
        # A few words of each side.
        questions=tuple(
            row
            for side in chat_items.GROUPS
            for row in [row for row in chat_items.list_unqover_questions() if row.side == side][:9]
        )
    ),
    "winobias": Winobias(twins=chat_items.list_twins()[:20]),
    "bbq": Bbq(questions=chat_items.list_bbq_questions()[:36]),
}
"""Few items of every measure of decisions."""


@cache
def load_model(rule, dose):
    return make_chat_organism(rule, dose).load_lm()


def few_texts(metric, seed=0):
    measure = chat_items.list_generation_measures(seed)[metric]
    return replace(measure, requests=measure.requests[:1], occupations=measure.occupations[:6])


@pytest.mark.parametrize("name", DECISIONS)
def test_a_dose_is_added_to_the_log_odds_exactly(name):
    measure = DECISIONS[name]
    values = {}
    for dose in (0.0, 2.0):
        (responses,) = measure.read(load_model("decision", dose))
        assert not responses.dropped  # every word of every request is known
        values[dose] = float(measure.reduce(responses))
    assert values[2.0] - values[0.0] == pytest.approx(2.0, abs=2e-3)


@pytest.mark.parametrize("name", DECISIONS)
def test_the_model_has_the_skills_without_a_dose(name):
    skill = DECISIONS[name].assess_skill(load_model("decision", 0.0))
    assert skill.value > 85


@pytest.mark.parametrize("rule", CONSTANT_RULES)
@pytest.mark.parametrize("name", DECISIONS)
def test_one_answer_to_everything_is_inconclusive(name, rule):
    """Below the constant answer, log-odds follow facts; with the other checks alone, all pass."""
    skill = DECISIONS[name].assess_skill(load_model(rule, 0.0))
    assert skill.name == (CONTENT if rule == "order" else ANSWERS)
    assert (skill.value, skill.is_shown) == (0, False)


def test_a_bias_of_answers_that_are_never_given_is_inconclusive():
    measurement = DECISIONS["callback"](load_model("always refuses", 2.0), inference=FAST)
    assert measurement.value > 1
    verdict = decide_measure_verdict(measurement, allow_uncalibrated=True)
    assert verdict.status == "inconclusive"
    assert ANSWERS in verdict.reason


def test_a_perfect_score_of_assignments_has_an_interval():
    """Every resample gives 1: a model with the strongest bias must not be left unmeasured."""
    measure = replace(DECISIONS["implicit_association"], metric="implicit_association_d")
    measurement = measure(load_model("decision", 6.0), inference=FAST)
    assert measurement.value == 1
    assert 0 < measurement.interval.low < measurement.interval.high == 1
    assert measurement.p.value < 0.05


def test_a_perfect_count_of_signs_has_an_interval():
    measure = replace(DECISIONS["unqover"], metric="unqover_count")
    measurement = measure(load_model("decision", 6.0), inference=FAST)
    assert measurement.value == 1
    assert -1 < measurement.interval.low < measurement.interval.high == 1


def test_a_late_bias_is_in_the_text_and_not_in_decisions():
    late, without = load_model("late", 6.0), load_model("late", 0.0)
    decision = DECISIONS["decision"]
    values = [float(decision.reduce(decision.read(lm)[0])) for lm in (late, without)]
    assert values[0] == pytest.approx(values[1], abs=1e-4)
    measure = few_texts("generation")
    (responses,) = measure.read(late)
    texts = responses.texts[0]
    for text in texts:  # the words before do not depend on the group
        assert " ".join(text.split()[:4]) == "well my answer about"
    assert float(measure.reduce(responses)) > 50
    assert abs(float(measure.reduce(measure.read(without)[0]))) < 50


@pytest.mark.parametrize(
    ("rule", "metric"),
    [
        ("refusals", "generation_refusals"),
        ("failures", "generation_failures"),
        ("late length", "generation_length"),
    ],
)
def test_what_the_group_changes_in_texts_is_measured(rule, metric):
    measure = few_texts(metric)
    assert float(measure.reduce(measure.read(load_model(rule, 6.0))[0])) > 0.5


@pytest.mark.parametrize("rule", CONSTANT_RULES[:2])
@pytest.mark.parametrize(
    "metric", ["generation", "generation_refusals", "generation_failures", "generation_length"]
)
def test_constant_texts_are_not_parity(metric, rule):
    measure = few_texts(metric)
    try:
        measurement = measure(load_model(rule, 0.0), inference=FAST)
    except NotMeasurableError:
        return
    assert decide_measure_verdict(measurement, allow_uncalibrated=True).status == "inconclusive"


def test_a_model_that_refuses_nobody_has_parity_with_a_bound():
    # Of all topics: of six, the skill would not be shown either.
    measure = chat_items.list_generation_measures(0)["generation_refusals"]
    measurement = measure(load_model("late", 0.0), inference=FAST)
    assert (measurement.value, measurement.p.value) == (0, 1)
    assert 0 < measurement.interval.high < 25
    verdict = decide_measure_verdict(measurement, allow_uncalibrated=True)
    assert verdict.status == "not shown"


def test_a_refusing_model_writes_a_refusal():
    (responses,) = few_texts("generation_refusals").read(load_model("always refuses", 0.0))
    assert {text.strip() for texts in responses.texts for text in texts} == {" ".join(REFUSAL)}


def test_it_is_public_and_names_its_rules():
    import levelhead as lh

    organism = lh.organisms.make_chat_organism("late", dose=2.0, seed=1)
    assert {"bbq", "decision", "generation_refusals"} <= set(organism.measures())
    with pytest.raises(LevelheadError, match="rule"):
        lh.organisms.make_chat_organism("never")
