"""WinoBias and Winogender: twins that differ in a pronoun, and models with constant answers."""

import dataclasses
from collections import Counter

import pytest
import torch
from assets import asset
from metric_cases import FAST, THINGS, made, model, twins

from levelhead.core.errors import LevelheadError
from levelhead.core.verdicts import decide_measure_verdict
from levelhead.data.prompts import pronoun_twins as data
from levelhead.data.prompts.pronoun_twins import load_pronoun_twins
from levelhead.measures.decisions.winobias import Winobias


@pytest.fixture
def published(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", str(asset("data")))


@pytest.mark.usefixtures("published")
def test_published_twins_differ_in_pronouns_only():
    rows = load_pronoun_twins("winobias", "dev")
    assert Counter(row.fault for row in rows) == {"": 782, data.NOT_TWINS: 9, data.NOT_TWO: 1}
    test = load_pronoun_twins("winobias", "test")
    assert Counter(row.fault for row in test) == {"": 782, data.NOT_TWINS: 10}
    first = rows[0]
    assert first.texts[0].replace(" he ", " she ") == first.texts[1]
    assert first.people == ("the developer", "the designer")
    assert first.units == ("designer", "developer")
    assert first.pronouns == ("he", "she")
    assert {row.id for row in rows if row.fault == data.NOT_TWINS} >= {"type1-dev-92"}


@pytest.mark.usefixtures("published")
def test_winogender_fits_labour_statistics():
    rows = load_pronoun_twins("winogender")
    assert len(rows) == 240
    assert not any(row.fault for row in rows)
    by_id = {row.id: row for row in rows}
    nurse = by_id["nurse/patient/0"]
    assert nurse.pronouns == ("her", "his")
    assert nurse.right == 0
    technician = by_id["technician/customer/1"]
    assert technician.pronouns == ("he", "she")
    assert technician.right == 1


@pytest.mark.usefixtures("published")
def test_in_type_2_the_person_meant_is_named_second():
    """Why accuracy on type 2 alone is no evidence of a skill."""
    lm = model("winobias")
    (query_set,) = Winobias().all_queries(lm)
    kinds = Counter(
        (item.kind[:6], "named second" in item.kind) for item in query_set.items if item.queries
    )
    assert kinds["type 2", True] == 388
    assert kinds["type 2", False] == 0
    assert kinds["type 1", True] == kinds["type 1", False] == 197


def answered(name, odds, **options):
    """The measurement if log p(first person) - log p(second) is a function of item and text."""
    measure, lm = made(name, **options), model(name)
    (responses,) = measure.read(lm)
    rows = {row.id: row for row in twins()}
    values = responses.values.clone()
    for i, item in enumerate(responses.items):
        for query in range(4):
            values[i, query, 0] = -2.0 + odds(rows[item.id], query // 2, query % 2)
            values[i, query, 1] = -2.0
    responses = dataclasses.replace(responses, values=values)
    result = measure.compute_measurement(lm, [responses], inference=FAST)
    return result.model_copy(update={"skill": measure.assess_skill(lm, responses)})


def jitter(row):
    return 0.01 * THINGS.index(row.units[0]) + 0.02 * THINGS.index(row.units[1])


def test_the_value_is_the_effect_of_the_pronoun():
    def stereotyped(row, text, order):
        # Prefers what is listed first, some people, and the reading that fits by 1.5 nats.
        return 3 * (1 - 2 * order) + jitter(row) + (1.5 + jitter(row)) * (1 - 2 * text)

    result = answered("winobias", stereotyped)
    expected = sum(1.5 + jitter(row) for row in twins()) / len(twins())
    assert result.value == pytest.approx(expected)
    assert result.p.value < 0.05


def test_a_model_that_chooses_by_place_lacks_the_skill():
    def second(row, text, order):
        named_first = row.texts[0].find(row.people[0]) < row.texts[0].find(row.people[1])
        return (-4 if named_first else 4) + 0.1 * jitter(row) * (1 - 2 * text)

    result = answered("winobias", second)
    assert result.skill.value == 50
    assert decide_measure_verdict(result).status == "inconclusive"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_model_that_prefers_the_occupations_of_a_group_lacks_the_skill(sign):
    result = answered(
        "winobias", lambda row, text, order: sign * (4 + jitter(row) * (1 - 2 * text))
    )
    assert result.skill.value == 50
    assert not result.skill.is_shown


def test_a_stereotype_neither_helps_nor_hurts_the_skill():
    def biased(row, text, order):
        right = 1 - 2 * row.right
        return right * (2 + jitter(row)) + (5 + jitter(row)) * (1 - 2 * text)

    result = answered("winobias", biased)
    assert result.skill.value == 100
    assert decide_measure_verdict(result).status == "differs"
    # Zhao et al. 2018: all pro-stereotypical sentences are resolved, no anti-stereotypical one.
    gap = answered("winobias_gap", lambda row, text, order: biased(row, text, order) + jitter(row)
                   if row.id != "w0-0" else 1.0)  # fmt: skip
    assert gap.value == pytest.approx(100 * (len(twins()) - 1) / len(twins()))
    accuracy = answered("winobias_accuracy", lambda row, text, order: biased(row, text, order)
                        if row.id != "w0-0" else 1.0)  # fmt: skip
    assert accuracy.value == pytest.approx(50 + 50 / len(twins()))


def test_types_and_sources():
    one = made("winobias", sentence_type="1")
    result = one(model("winobias"), inference=FAST)
    assert 0 < result.n < len(twins())
    assert result.skill is not None
    with pytest.raises(LevelheadError, match="sentence_type would change nothing"):
        Winobias(source="winogender", sentence_type="1")
    with pytest.raises(LevelheadError, match="have 1 units"):
        made("winobias", source="winogender").all_queries(model("winobias"))
    single = tuple(row._replace(units=row.units[:1]) for row in twins())
    result = made("winobias", source="winogender", twins=single)(model("winobias"), inference=FAST)
    assert "sign" in result.p.method


def test_both_people_come_first_once():
    row = twins()[0]
    (query_set,) = made("winobias").all_queries(model("winobias"))
    requests = [query[0] for query in query_set.items[0].queries]
    assert requests == [
        f"{text} {pronoun} was {first} and {second}."
        for text, pronoun in zip(row.texts, row.pronouns, strict=True)
        for first, second in (row.people, row.people[::-1])
    ]
    assert torch.equal(
        made("winobias").read(model("winobias"))[0].values[0, :, 2:],
        torch.full((4, 2), 2.0, dtype=torch.float64),
    )
