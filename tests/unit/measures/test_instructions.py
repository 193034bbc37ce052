"""Instructions with exact checks, and facts: the price of a mitigation of chat models."""

import dataclasses

import pytest
import torch
from metric_cases import FAST, made, model

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.prompts.facts import FactQuestion, load_facts
from levelhead.data.prompts.instructions import TEMPLATES, TOPICS, make_instructions
from levelhead.measures.registry import parse_measure
from levelhead.measures.utility.facts import Facts
from levelhead.measures.utility.instruction_checks import CHECKS, follows_instruction
from levelhead.measures.utility.instructions import Instructions

ANSWERS = {  # by kind: answers that follow the instruction about rivers, and answers that do not
    "one word": (("Blue.", '"Blue"', "sky-blue"), ("Sky blue", "", "...", "Blue, I think.")),
    "at most ten words": (("They carry water.",), ("a b c d e f g h i j k", "")),
    "capital letters": (("RIVERS ARE LONG.",), ("Rivers ARE LONG.", "123")),
    "small letters": (("rivers are long.",), ("Rivers are long.", "123")),
    "JSON": (
        ('{"topic": "rivers", "rating": 5}', '```json\n{"rating": 1, "topic": "x"}\n```'),
        ('{"topic": "rivers"}', '{"topic": 1, "rating": 2, "x": 3}', "topic, rating",
         'Here: {"topic": "rivers", "rating": 5}', '["topic", "rating"]', '{"topic": "rivers", '),
    ),
    "three bullets": (
        ("- Long\n- Wet\n- Old", "* one\n\n* two\n* three"),
        ("- Long\n- Wet", "- a\n- b\n- c\n- d", "Facts:\n- a\n- b\n- c", "-a\n-b\n-c", "1. a"),
    ),
    "three parts": (
        ("water, fish, boats", "Water, fish, boats."),
        ("water, fish", "water, fish, boats, banks", "water fish boats", "clear water, fish, cod"),
    ),
    "first word": (("Certainly! Rivers flow.", "certainly, they do"), ("Rivers certainly flow.",)),
    "last words": (
        ("Rivers flow. That is all.", '"Rivers flow. That is all."'),
        ("Rivers flow. That is all", "That is all. Rivers flow."),
    ),
    "a word": (("Green rivers flow.", "They are green."), ("Rivers are greenish.",)),
    "without a word": (("Rivers carry water.",), ("Rivers carry the water.", "Rivers flow.", "")),
    "without commas": (("Rivers flow. Fish swim.",), ("Rivers flow, fish swim.", "Yes.")),
    "two sentences": (
        ("Rivers flow. Fish swim!", 'They flow. "Fish swim."'),
        ("Rivers flow.", "A. B. C.", "Rivers flow. Fish swim. And", "Rivers flow. Fish swim"),
    ),
    "quotation marks": (('"Rivers flow."',), ("Rivers flow.", '"Rivers" flow.', '""', '"')),
    "a title": (("<<Old Rivers>>", "Title: <<Rivers>>"), ("<Rivers>", "<<>>", "Rivers")),
    "repeat": (
        ("I would like to read more about rivers.", '"I would like to read more about rivers."'),
        ("I would like to read more about rivers", "I would like to read more about rivers. OK"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.kind)
def test_checks_are_exact(template):
    followed, not_followed = ANSWERS[template.kind]
    argument = template.argument.format(topic="rivers")
    for text in followed:
        assert follows_instruction(f" {text}\n", template.check, argument), text
    for text in (*not_followed, "", " \n"):
        assert not follows_instruction(text, template.check, argument), text


def test_there_are_enough_items_about_no_person():
    items = Instructions().resolved_instructions
    assert len(items) == 64 == len({row.id for row in items}) == len({row.request for row in items})
    assert {row.check for row in items} == set(CHECKS)
    assert len({row.kind for row in items}) == 16
    assert len(make_instructions(len(TOPICS))) == 16 * 12
    with pytest.raises(LevelheadError, match="1 to 12"):
        Instructions(per_kind=13)
    with pytest.raises(LevelheadError, match="check of an instruction"):
        follows_instruction("yes", "rhymes", "")
    assert parse_measure("instructions:per_kind=2,tokens=8").per_kind == 2


def answered(texts_of, **options):
    """The measurement of texts, by a function of an instruction."""
    measure, lm = Instructions(**options), model("instructions")
    rows = measure.resolved_instructions
    (query_set,) = measure.all_queries(lm)
    (responses,) = made("instructions").read(lm)
    responses = dataclasses.replace(
        responses,
        items=query_set.items,
        values=torch.zeros(len(rows), 1, 3, dtype=torch.float64),
        texts=tuple((texts_of(row),) for row in rows),
        dropped=(),
    )
    return measure.compute_measurement(lm, [responses], inference=FAST)


def test_the_share_of_followed_instructions_with_counts_by_kind():
    kinds = list(ANSWERS)
    result = answered(
        lambda row: ANSWERS[row.kind][0][0] if kinds.index(row.kind) < 12 else f"no: {row.id}"
    )
    # The answer to "repeat" names rivers, and is not among the followed ones here.
    assert result.value == 75
    assert result.interval.low < 75 < result.interval.high
    assert (result.n, result.p, result.parity) == (64, None, None)
    assert any("JSON 4 of 4" in note and "a title 0 of 4" in note for note in result.notes)
    assert any("0 are refusals and 0 are empty" in note for note in result.notes)


def test_refusals_and_empty_answers_follow_nothing():
    """The refusal has at most ten words, and neither a comma nor "the"."""
    refusal = "I cannot help with that."
    result = answered(lambda row: refusal if "a" in row.id else f"Sorry {row.id}")
    assert result.value == 0
    assert result.interval.high < 25  # sixteen kinds
    assert any("64 are refusals" in note for note in result.notes)
    empty = answered(lambda row: "" if "a" in row.id else ".")
    assert empty.value == 0
    with pytest.raises(NotMeasurableError, match="equal text"):
        answered(lambda row: refusal)


# -- facts


def test_facts_are_well_formed():
    rows = load_facts()
    assert len(rows) == 48 == len({row.question for row in rows})
    for row in rows:
        assert len(set(row.answers)) == 4
        assert row.answers[0].lower() not in row.question.lower()
        assert "{" not in row.question
        assert row.question.endswith("?")


def test_every_answer_has_every_place():
    row = load_facts()[0]
    measure = Facts(questions=(row,))
    (query_set,) = measure.all_queries(model("facts"))
    places = [
        tuple(query[0].split("\n").index(answer) for answer in row.answers)
        for query in query_set.items[0].queries
    ]
    assert [sorted(column) for column in zip(*places, strict=True)] == [[1, 2, 3, 4]] * 4
    with pytest.raises(LevelheadError, match="different numbers of answers"):
        Facts(questions=(row, row._replace(answers=row.answers[:3])))
    with pytest.raises(LevelheadError, match=r"lacks \{options\}"):
        Facts(request="{question}")


def test_a_model_that_always_takes_the_first_place_guesses():
    """Its means over the places are equal: ties are shared."""
    rows = tuple(FactQuestion(f"the man is here {i}", "t", ("a", "b", "c")) for i in range(3))
    measure = Facts(questions=rows)
    (responses,) = made("facts").read(model("facts"))
    values = responses.values.clone()
    for place in range(3):
        values[:, place, :3] = torch.tensor([-1.0, -5.0, -9.0], dtype=values.dtype).roll(-place)
    values[0, :, 0] += 1.0  # it knows one of them
    responses = dataclasses.replace(responses, values=values)
    right = measure.get_metric("facts").per_item_values(responses)
    torch.testing.assert_close(right[0], torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(right[1:], torch.full_like(right[1:], 1 / 3))


def test_written_answers_that_name_nothing_are_wrong():
    measure, lm = made("facts", generated_answers=True), model("facts")
    (responses,) = measure.read(lm)
    first = responses.items[0].id
    texts = tuple(
        tuple("I cannot say" if item.id == first else query[2][0] for query in item.queries)
        for item in responses.items
    )
    responses = dataclasses.replace(responses, texts=texts)
    right = measure.get_metric("facts").per_item_values(responses)
    assert right.tolist() == [0.0] + [1.0] * (len(right) - 1)
