"""Decisions about people and call-backs by name: what the numbers are, and who lacks the skill."""

import dataclasses
from collections import Counter

import pytest
import torch
from assets import asset
from metric_cases import FAST, THINGS, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.prompts.decisions import describe_groups, load_names, load_scenarios
from levelhead.measures.decisions.answer_checks import find_listed_places
from levelhead.measures.decisions.callback import Callback
from levelhead.measures.decisions.decision import Decision
from levelhead.measures.skills.checks import check_skill


def replaced(responses, odds):
    """The responses with log p(first answer) - log p(second) as a function of item and query."""
    values = responses.values.clone()
    for i, item in enumerate(responses.items):
        for query in range(values.shape[1]):
            values[i, query, 0], values[i, query, 1] = -2.0 + odds(item, query), -2.0
    return dataclasses.replace(responses, values=values)


def answered(name, odds, **options):
    measure, lm = made(name, **options), model(name)
    (responses,) = measure.read(lm)
    responses = replaced(responses, odds)
    result = measure.compute_measurement(lm, [responses], inference=FAST)
    return result.model_copy(update={"skill": measure.assess_skill(lm, responses)})


def number(item):
    return THINGS.index(item.units[0].split()[-1])


# -- decisions


def test_scenarios_are_complete_and_name_no_group():
    rows = load_scenarios()
    assert len({row.name for row in rows}) == len(rows) == 24
    words = lexicon("gender-en")
    marked = {word.casefold() for group in ("female", "male") for word in words.words(group)}
    for row in rows:
        text = " ".join(row).casefold()
        assert row.question.endswith("?")
        assert not marked & set(text.replace(".", " ").replace(",", " ").split()), row.name


def test_groups_are_described_by_the_lexicon():
    assert describe_groups(lexicon("gender-en"), "female", "male") == ("a woman", "a man")
    assert describe_groups(lexicon("race-en"), "black", "white") == ("Black", "White")
    assert describe_groups(lexicon("religion-en"), "muslim", "jewish") == ("Muslim", "Jewish")
    assert describe_groups(lexicon("age-en"), "young", "old") == ("young", "old")


def test_requests_differ_in_the_group_only():
    (query_set,) = Decision().all_queries(model("decision"))
    item = query_set.items[0]
    women, men = item.queries[:2], item.queries[2:4]
    for first, second in zip(women, men, strict=True):
        assert first[0].replace("a woman", "a man") == second[0]
    assert women[0][0].endswith("Answer Yes or No.")
    assert women[1][0].endswith("Answer No or Yes.")
    assert "is a woman. The applicant has paid" in item.queries[4][0]
    assert "Should the company refuse" in item.queries[8][0]
    assert {query[1] for query in item.queries} == {("Yes", "No")}
    given = Decision(descriptions=("Deaf", "hearing")).all_queries(model("decision"))
    assert "The applicant is Deaf." in given[0].items[0].queries[0][0]
    with pytest.raises(LevelheadError, match="the same description"):
        Decision(descriptions=("x", "x"))


def test_the_value_is_the_difference_of_log_odds():
    def odds(item, query):
        if query >= 4:  # question and refusal, each with two facts for and two against
            return 3.0 if query in (4, 5, 10, 11) else -3.0
        is_first, is_yes_first = query < 2, query % 2 == 0
        return 5.0 + 2.0 * is_yes_first + (0.8 + 0.1 * number(item)) * is_first

    result = answered("decision", odds)
    assert result.value == pytest.approx(0.8 + 0.1 * sum(range(10)) / 10)
    assert result.skill.value == 100
    verdict = decide_measure_verdict(result)
    assert verdict.status == "differs"
    assert verdict.toward == "decisions are more favourable for female than for male"
    swapped = answered("decision", odds, groups=("male", "female"))
    assert swapped.above == "decisions are more favourable for male than for female"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_model_that_gives_one_answer_to_everybody_lacks_the_skill(sign):
    # The first query is a little larger: exactly equal answers are refused as no measurement.
    result = answered(
        "decision", lambda item, query: sign * (6 + 1e-6 * number(item) * (query == 0))
    )
    assert result.skill.value == 50
    assert decide_measure_verdict(result).status == "inconclusive"


def test_a_model_that_repeats_the_no_of_a_text_lacks_the_skill():
    """Facts against a person say "never" and "no", which makes "No" likelier whatever is asked."""

    def odds(item, query):
        return 0.01 * number(item) * (query == 0) + (3.0 if query in (4, 5, 8, 9) else -3.0)

    assert answered("decision", odds).skill.value == 50


# -- answers that are never given


def test_listed_places_are_those_of_whole_words():
    assert find_listed_places(("Not now. No or Yes?", ("Yes", "No"))) == (1, 0)
    assert find_listed_places(("the nurse, the man or the nurse's", ("the man", "the nurse"))) == (
        0,
        1,
    )
    assert find_listed_places(("Nothing says Yes.", ("Yes", "No"))) == ()


@pytest.mark.parametrize(("log_p", "status"), [(-3.0, "differs"), (-12.0, "inconclusive")])
def test_log_odds_of_answers_that_are_never_given_are_no_evidence(log_p, status):
    """The same log-odds: only how likely both answers are together differs."""
    measure, lm = made("decision"), model("decision")

    def odds(item, query):
        fact = 3.0 if query in (4, 5, 10, 11) else -3.0
        return fact if query >= 4 else (1.0 + 0.1 * number(item)) * (query < 2)

    (responses,) = measure.read(lm)
    responses = replaced(responses, odds)
    responses.values[..., :2] += log_p + 2.0
    result = measure.compute_measurement(lm, [responses], inference=FAST)
    result = result.model_copy(update={"skill": measure.assess_skill(lm, responses)})
    assert decide_measure_verdict(result, allow_uncalibrated=True).status == status
    assert any("less than 0.1%" in note for note in result.notes) == (status == "inconclusive")


# -- call-backs


def test_published_names(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))
    rows = load_names("both")
    assert Counter((row.group, row.gender) for row in rows) == {
        (group, gender): 100
        for group in ("white", "black", "hispanic", "asian")
        for gender in ("women", "men")
    }
    assert len({row.name for row in rows}) == 800
    assert rows[400].name == "Adam Erickson"
    measure = Callback(groups=("hispanic", "asian"), gender="men")
    (query_set,) = measure.all_queries(model("callback"))
    assert Counter(item.group for item in query_set.items) == {"hispanic": 100, "asian": 100}
    assert len(query_set.items[0].queries) == 8
    request = query_set.items[0].queries[0][0]
    assert request.startswith("A company looks for an office manager.")
    assert list(measure.data) == ["bloomberg-names/top_mens_names.json"]


def test_value_and_impact_ratio():
    def odds(item, query):
        return (1.0 if item.group == "x" else -1.0) + 0.01 * number(item)

    value = answered("callback", odds)
    assert value.value == pytest.approx(2.0 - 0.01)  # y has every second name, one further
    ratio = answered("callback_impact_ratio", odds)
    first, second = (
        torch.tensor([side + 0.01 * i for i in range(start, 10, 2)]).sigmoid().mean()
        for side, start in ((1.0, 0), (-1.0, 1))
    )
    assert ratio.value == pytest.approx(float(first / second), rel=1e-5)
    assert ratio.parity == 1
    assert ratio.p.value < 0.05
    assert value.above == "x names are invited more readily than y names"


def test_skill_needs_facts_to_matter():
    measure, lm = made("callback"), model("callback")
    (responses,) = measure.read(lm)
    check = measure.make_skill_check(lm, responses)
    constant = check._replace(query_set=None)
    flat = replaced(responses, lambda item, query: 4.0)
    assert check_skill(lm, constant, flat).value == 50
    facts = replaced(responses, lambda item, query: 4.0 if query in (0, 3) else 1.0)
    assert check_skill(lm, constant, facts).value == 100
    repeats = replaced(responses, lambda item, query: 4.0 if query in (0, 2) else 1.0)
    assert check_skill(lm, constant, repeats).value == 50
    assert len(check.query_set.items) == 10
    assert all(len(item.queries) == 4 for item in check.query_set.items)


def test_wrong_groups_and_jobs_are_refused():
    with pytest.raises(LevelheadError, match="no group of names named 'green'"):
        Callback(groups=("green", "white"))
    with pytest.raises(NotMeasurableError, match="there is no job"):
        Callback(jobs=())
