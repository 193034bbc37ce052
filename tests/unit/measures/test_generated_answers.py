"""Decisions by written answers: what a text names, and texts that name nothing."""

import dataclasses
from hashlib import sha256

import pytest
from metric_cases import FAST, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.measures.decisions.generated_answers import find_named_option, unnamed_shares

PEOPLE = ("the man", "the old man", "Can't be determined")


@pytest.mark.parametrize(
    ("text", "options", "index"),
    [
        ("The man.", PEOPLE, 0),
        ("It was the old man, I think.", PEOPLE, 1),
        ("This can\u2019t be determined from the text.", PEOPLE, 2),
        ("An old man", PEOPLE, 1),
        ("Both the man and the old man", PEOPLE, None),
        ("I cannot help with that.", PEOPLE, None),
        ("", PEOPLE, None),
        ("Yes. Not no.", ("Yes", "No"), 0),
        ("I know nothing", ("Yes", "No"), None),
    ],
)
def test_the_option_that_a_text_names(text, options, index):
    assert find_named_option(text, options) == index


def written(name, text_of, **options):
    """A measurement of texts, as a function of item and query."""
    measure, lm = made(name, generated_answers=True, **options), model(name)
    (responses,) = measure.read(lm)
    assert responses.query_kind == "generate"
    texts = tuple(
        tuple(text_of(item, i) for i in range(len(item.queries))) for item in responses.items
    )
    responses = dataclasses.replace(responses, texts=texts)
    result = measure.compute_measurement(lm, [responses], inference=FAST)
    return result.model_copy(update={"skill": measure.assess_skill(lm, responses)})


def named(item, query, number):
    return f"I say: {item.queries[query][2][number]}."


def test_a_decision_for_one_group_alone_is_seen_in_its_texts():
    """The first two queries are about the first group; facts are heeded."""

    def text(item, query):
        neutral = (0, 0, 1, 1)
        # Question by question: both groups with the fact for, then with the one against.
        facts = (0, 0, 1, 1, 1, 1, 0, 0)
        # One scenario is decided alike, so that there is a spread.
        if query < 4 and item.id == first:
            return named(item, query, 0)
        return named(item, query, (*neutral, *facts)[query])

    first = made("decision").all_queries(model("decision"))[0].items[0].id
    result = written("decision", text)
    n = result.n
    assert result.value == pytest.approx(2 * (n - 1) / n)
    assert result.unit == "shares of answers"
    assert result.skill.value == 100
    unnamed = result.extras[-1]
    assert (unnamed.name, unnamed.value) == ("answers that name no option", 0)
    assert "answers were generated" in result.notes[0]


def test_texts_that_name_nothing_are_counted_and_never_parity():
    """A refusal to one group: its decisions count neither for nor against."""
    refused = written(
        "decision",
        lambda item, query: (
            "I cannot answer." if query < 2 else named(item, query, len(item.id) % 2)
        ),
    )
    n_queries = 12
    assert refused.extras[-1].value == pytest.approx(100 * 2 / n_queries)
    status, reason = decide_measure_verdict(refused)[:2]
    assert status == "inconclusive", reason
    with pytest.raises(NotMeasurableError, match="no generated answer names an option"):
        written("decision", lambda item, query: "I cannot answer.")


@pytest.mark.parametrize("name", ["bbq", "winobias", "callback", "implicit_association"])
def test_every_measure_of_decisions_reads_texts(name):
    measure = made(name, generated_answers=True)
    names = {metric.name for metric in measure.formulas}
    assert not any(name.endswith(("_likelihood", "_impact_ratio")) for name in names)
    assert all(metric.is_step for metric in measure.formulas)
    (responses,) = measure.read(model(name))
    texts = tuple(
        tuple(
            named(item, i, sha256(f"{item.id} {i}".encode()).digest()[0] % 2)
            for i in range(len(item.queries))
        )
        for item in responses.items
    )
    responses = dataclasses.replace(responses, texts=texts)
    values = measure.primary_metric.per_item_values(responses)
    assert values.abs().max() <= 2
    assert values.any()
    assert not unnamed_shares(responses).any()


def test_options_that_would_change_nothing_are_refused():
    with pytest.raises(LevelheadError, match="per_token would change nothing"):
        made("decision", generated_answers=True, per_token=True)
    # Results of earlier versions keep their hash.
    assert "generated_answers" not in made("decision").settings
    assert made("decision", generated_answers=True).settings["generated_answers"] is True
