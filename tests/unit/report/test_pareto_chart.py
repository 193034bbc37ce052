"""Gain against price: the front is joined and named, the base lies at 0."""

from itertools import pairwise

import pytest
from sweeps import estimate_of, front_of

from levelhead.mitigate.evaluation.pareto import ParetoFront, ParetoPoint
from levelhead.report.charts.edits.pareto import MAX_LABELS, pareto_chart, spread_labels


def data_of(spec, with_key):
    return next(item for item in spec["datasets"].values() if item and with_key in item[0])


def test_every_point_with_both_intervals_and_the_base_at_the_origin():
    subset = front_of()
    best = max(subset.points[1:], key=lambda point: point.gain.value).name
    spec = pareto_chart(subset, selected=best, subject="strength, a-model").to_dict()
    rows = data_of(spec, "gain low")
    assert len(rows) == 75
    assert (rows[0]["name"], rows[0]["gain"], rows[0]["price"]) == ("base", 0, 0)
    assert rows[0]["formatted price"] == "no change"
    assert rows[1]["gain low"] == subset.points[1].gain.interval.low
    assert rows[1]["price high"] == subset.points[1].cost.interval.high
    kinds = {row["name"]: row["kind"] for row in rows}
    assert (kinds["base"], kinds[best]) == ("base", "chosen")
    others = set(subset.names) - {"base", best}
    assert {name for name, kind in kinds.items() if kind == "on the front"} == others
    assert spec["title"]["subtitle"][0] == "strength, a-model"
    assert spec["layer"][-1]["encoding"]["y"]["title"] == "utility cost, nats"


def test_names_do_not_overlap_and_lead_to_their_points():
    subset = front_of()
    spec = pareto_chart(subset, selected=subset.names[-1]).to_dict()
    names = data_of(spec, "line")
    assert {row["formatted"].split(" (")[0] for row in names} == set(subset.names)
    low, high = spec["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    pixels = sorted(spec["height"] * (high - row["line"]) / (high - low) for row in names)
    steps = [after - before for before, after in pairwise(pixels)]
    assert min(steps) > 15 - 1e-6
    assert sum(row["formatted"].endswith(", chosen") for row in names) == 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], []),
        ([10, 12, 90], [10, 25, 90]),
        ([95, 97, 99], [70, 85, 100]),
        ([0, 0, 50, 52], [0, 15, 50, 65]),
    ],
)
def test_apart(wanted, expected):
    assert spread_labels(wanted, 15, 100) == expected


def test_a_price_that_nothing_changes_is_a_strip():
    points = [ParetoPoint(name="base", is_on_front=False, share=0.0)]
    points += [
        ParetoPoint(name="sent 0", gain=estimate_of("gain", 0.02), is_on_front=True, share=0.6),
        ParetoPoint(name="sent 1", gain=estimate_of("gain", 0.01), is_on_front=False, share=0.4),
    ]
    spec = pareto_chart(
        ParetoFront(points=tuple(points), n_resamples=199), selected="sent 1"
    ).to_dict()
    assert spec["height"] == 80
    assert spec["layer"][-1]["encoding"]["y"]["axis"]["values"] == [0]
    assert spec["title"]["subtitle"][-1] == ("no setting changes utility: its cost is not shown")
    output = [row["formatted"] for row in data_of(spec, "line")]
    assert "sent 1 (40%), chosen, not on the front" in output
    assert "sent 0 (60%)" in output


def test_a_long_front_is_counted():
    points = [
        ParetoPoint(
            name=f"setting {i}",
            gain=estimate_of("gain", 0.01 * i),
            cost=estimate_of("price", 0.01 * i),
            is_on_front=True,
            share=0.5,
        )
        for i in range(MAX_LABELS + 3)
    ]
    spec = pareto_chart(ParetoFront(points=tuple(points), n_resamples=99)).to_dict()
    assert len(data_of(spec, "line")) == MAX_LABELS
    texts = [item["mark"].get("text") for item in spec["layer"] if isinstance(item["mark"], dict)]
    assert "and 3 more on the front" in texts
