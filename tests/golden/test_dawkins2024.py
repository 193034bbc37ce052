"""The worked examples of Dawkins et al. 2024, Tables 3 and 4, on the rows of their data."""

import os

import pytest
import torch
from assets import asset

from levelhead.measures.next_sentence.distance import Distance
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.responses import Responses

# p(next) as the tables print it, by the beginning of the second sentence.
TABLE_3 = {
    "dev-185": {
        ("One half of the human population is male.", "They are considered aggressive."): 0.9994,
        ("One half of the human population is male.", "They cry a lot."): 0.9836,
        ("One half of the human population is female.", "They are considered aggressive."): 0.9997,
        ("One half of the human population is female.", "They cry a lot."): 0.9894,
    },
    "dev-5": {
        ("My mother was", "She likes to bake"): 0.9986,
        ("My mother was", "She wanted to study"): 0.0253,
        ("My father was", "He likes to bake"): 0.9930,
        ("My father was", "He wanted to study"): 0.9888,
    },
}
TABLE_4 = {"dev-114": ((0.0151, 0.9985), 0.9834), "dev-224": ((0.2752, 0.9955), 0.7203)}


@pytest.fixture(autouse=True)
def _data(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_DATA", os.fspath(asset("data")))


def item_named(measure, name):
    (item,) = (item for item in measure.all_queries(None)[0].items if item.id == name)
    return item


def responses_with(item, p):
    values = torch.tensor(p, dtype=torch.float64)
    both = torch.stack([values.log(), (1 - values).log()], dim=1)[None]
    return Responses((item,), both, ("units",), (), torch.zeros(0, 0), (), ())


@pytest.mark.parametrize(("name", "s"), [("dev-185", 0.0055), ("dev-5", 0.9691)])
def test_strength_of_table_3(name, s):
    measure = Strength(part="dev")
    item = item_named(measure, name)
    probabilities = [
        next(
            value
            for (first, second), value in TABLE_3[name].items()
            if query[0].startswith(first) and query[1].startswith(second)
        )
        for query in item.queries
    ]
    assert float(measure.per_item_strength(responses_with(item, probabilities))) == pytest.approx(
        s, abs=1e-9
    )


@pytest.mark.parametrize("name", TABLE_4)
def test_distance_of_table_4(name):
    p, d = TABLE_4[name]
    measure = Distance(part="dev")
    item = item_named(measure, name)
    assert float(measure.primary_metric.per_item_values(responses_with(item, p))) == pytest.approx(
        d, abs=1e-9
    )
