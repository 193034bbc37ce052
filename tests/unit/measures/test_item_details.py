"""What a result says of its items: texts and labelled responses, for every kind of query."""

from types import SimpleNamespace

import pytest
import torch

from levelhead.core.frozen import FrozenDict
from levelhead.core.results import ItemDetail, QueryDetail
from levelhead.measures.item_details import (
    DESCRIBERS,
    MAX_DETAILS,
    MAX_QUERIES,
    MAX_RESPONSES,
    describe_items,
    neutral_value,
)
from levelhead.measures.items import MeasureItem
from levelhead.measures.query_kinds import QUERY_KINDS
from levelhead.measures.responses import Responses

TOKENS = ["[PAD]", "nurse", "doctor", " she", " works", "."]


def decode(ids, *, skip_special_tokens=False):
    ids = [i for i in ids if i or not skip_special_tokens]
    return "".join(TOKENS[i] for i in ids)


LM = SimpleNamespace(
    labels=("no", "yes"), tokens=SimpleNamespace(tokenizer=SimpleNamespace(decode=decode))
)


def responses_of(kind, items, values, **options):
    values = torch.as_tensor(values, dtype=torch.float64)
    no_answers = torch.zeros(0, 0)
    return Responses(
        tuple(items), values, ("units",), (), no_answers, (), (), query_kind=kind, **options
    )


def log(*probabilities):
    return torch.tensor(probabilities, dtype=torch.float64).log().tolist()


FILLED = FrozenDict({"words": ["he", "she"], "best": 1})
"""After the two words stand the id of the likeliest token and its log-probability."""
KINDS = {
    "embed": (("The nurse left.", 4, 9), [0.25, 3.0], {}, ("The nurse left.", ())),
    "follows": (
        ("She cooks.", "It is good."),
        log(0.75, 0.25),
        {},
        ("She cooks. / It is good.", (("next sentence", 0.75),)),
    ),
    "classify": (
        ("Good.", "Bad."),
        log(0.125, 0.875),
        {"metadata": FrozenDict({"labels": ["neutral", "contradiction"]})},
        ("Good. / Bad.", (("contradiction", 0.875), ("neutral", 0.125))),
    ),
    "rate": (("Good.", "Bad."), [2.5], {}, ("Good. / Bad.", (("score", 2.5),))),
    "fill": (
        ("[MASK] is a nurse.",),
        [*log(0.25, 0.5), 3.0, *log(0.5)],
        {"settings": FILLED},
        ("[MASK] is a nurse.", (("she", 0.5), ("he", 0.25))),
    ),
    "put": (
        ("The [MASK] left.", "nursemaid"),
        [0.75, 3.0],
        {},
        ("The nursemaid left.", (("word probability", 0.25),)),
    ),
    "top": (
        ("The [MASK] left.",),
        [2.0, 1.0, *log(0.5, 0.25)],
        {},
        ("The [MASK] left.", (("doctor", 0.5), ("nurse", 0.25))),
    ),
    "score": (
        ("The nurse left.", None),
        [-12.5, 4.0],
        {},
        ("The nurse left.", (("log-probability", -12.5),)),
    ),
    # Log-probabilities of the answers, then their numbers of tokens.
    "choose": (
        ("Who is late?", ("Ann", "Bea")),
        [*log(0.125, 0.5), 1.0, 1.0],
        {},
        ("Who is late?", (("Bea", 0.5), ("Ann", 0.125))),
    ),
    # Positions of the groups' first words, refusal, length, end, tokens and padding.
    "sample": (
        ("The nurse said that", 0),
        [0.0, -1.0, 0.0, 3.0, 0.0, 3.0, 4.0, 5.0, -1.0],
        {},
        ("The nurse said that she works.", (("female", 1.0), ("male", 0.0))),
    ),
}


def test_every_kind_of_query_is_described():
    assert set(DESCRIBERS) == set(QUERY_KINDS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_has_its_text_and_its_labelled_responses(kind):
    query, answer, options, (text, shown) = KINDS[kind]
    responses = responses_of(kind, [MeasureItem("a", (query,), ("a",), "g")], [[answer]], **options)
    (detail,) = describe_items(LM, responses, [1.0], 0.0, ("female", "male"))
    assert detail == ItemDetail("a", "g", (QueryDetail(text, shown),))


def test_classes_have_the_names_of_the_model_or_of_the_user():
    def labels(metadata):
        items = [MeasureItem("a", (("Good.",),), ("a",))]
        responses = responses_of("classify", items, [[log(0.25, 0.75)]], metadata=metadata)
        (detail,) = describe_items(LM, responses, [1.0], 0.0, ())
        return [label for label, _ in detail.queries[0].responses]

    assert labels(FrozenDict({})) == labels(FrozenDict({"labels": []})) == ["yes", "no"]
    assert labels(FrozenDict({"classes": ["bad", "good"]})) == ["good", "bad"]


def test_a_masked_span_is_shown_as_a_blank():
    query = ("[MASK] is a nurse.", (12, 17))
    responses = responses_of(
        "fill",
        [MeasureItem("a", (query,), ("a",))],
        [[log(0.25, 0.5)]],
        settings=FrozenDict({"words": ["he", "she"]}),
    )
    (detail,) = describe_items(LM, responses, [1.0], 0.0, ())
    assert detail.queries[0].text == "[MASK] is a [MASK]."


def scored(n):
    """Items whose texts are their ids, in an order that is not that of their ids."""
    names = [f"i{i:04}" for i in range(n)][::-1]
    items = [MeasureItem(name, ((name, None),), (name,)) for name in names]
    return responses_of("score", items, [[[-1.0, 1.0]]] * n)


def test_the_farthest_items_are_recorded_and_ties_are_decided_by_id():
    n = MAX_DETAILS + 20
    responses = scored(n)
    # The values of the first and the last three are far from 5 on both sides, the others are tied.
    values = [5.0] * n
    values[0], values[1], values[-1] = -10.0, 20.0, 7.0
    details = describe_items(LM, responses, values, 5.0, ())
    names = [detail.item for detail in details]
    far = {responses.items[i].id for i in (0, 1, n - 1)}
    assert set(names[:3]) == far
    tied = sorted(item.id for item in responses.items if item.id not in far)
    assert names[3:] == tied[: MAX_DETAILS - 3]
    # The order of the data does not matter.
    turned = responses.select(lambda item: True)
    turned = responses_of("score", turned.items[::-1], turned.values.flip(0))
    assert set(describe_items(LM, turned, values[::-1], 5.0, ())) == set(details)


def test_many_queries_and_many_words_are_cut():
    words = [f"w{i}" for i in range(30)]
    queries = tuple((f"[MASK] {i}",) for i in range(9))
    probabilities = [(i + 1) / 100 for i in range(30)]
    responses = responses_of(
        "fill",
        [MeasureItem("a", queries, ("a",))],
        [[log(*probabilities)] * 9],
        settings=FrozenDict({"words": words}),
    )
    (detail,) = describe_items(LM, responses, [1.0], 0.0, ())
    assert [query.text for query in detail.queries] == [f"[MASK] {i}" for i in range(MAX_QUERIES)]
    shown = detail.queries[0].responses
    assert [label for label, _ in shown] == [f"w{i}" for i in range(29, 29 - MAX_RESPONSES, -1)]
    assert shown[0] == ("w29", 0.3)


def test_contexts_of_averaged_items_are_those_that_were_read():
    items = [MeasureItem(name, ((f"{name} 0",), (f"{name} 1",)), (name,)) for name in "ab"]
    read = responses_of("embed", items, torch.zeros(2, 3))
    # The first context of b could not be read.
    kept = (items[0].queries[0], items[0].queries[1], items[1].queries[1])
    averaged = Responses(
        read.items,
        read.values,
        ("units",),
        (),
        torch.zeros(3, 3),
        (0, 0, 1),
        kept,
        query_kind="embed",
    )
    details = describe_items(LM, averaged, [1.0, 0.0], 0.0, ())
    texts = [[query.text for query in detail.queries] for detail in details]
    assert texts == [["a 0", "a 1"], ["b 1"]]


def test_a_log_probability_of_minus_infinity_is_left_out():
    items = [MeasureItem("a", (("x", None),), ("a",))]
    responses = responses_of("score", items, [[[-float("inf"), 1.0]]])
    (detail,) = describe_items(LM, responses, [1.0], 0.0, ())
    assert detail.queries == (QueryDetail("x", ()),)


@pytest.mark.parametrize(
    ("flips", "parity", "value", "neutral"),
    [
        (True, 50.0, 66.7, 0.0),  # a share of margins: exchanging a pair changes the sign
        (False, 0.5, 2.0, 0.5),  # a mean of values on the scale of parity
        (False, 0.5, 9.0, 2.0),  # another scale: the mean of the items
        (False, None, 2.0, 2.0),  # a utility
    ],
)
def test_the_center_is_parity_on_the_scale_of_the_items(flips, parity, value, neutral):
    metric = SimpleNamespace(flips_signs=flips)
    assert neutral_value(metric, [1.0, 2.0, 3.0], value, parity) == neutral
