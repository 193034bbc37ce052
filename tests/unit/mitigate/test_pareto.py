"""The front of gain and price, against a loop over pairs of points."""

import numpy as np
import pytest
from simulated import INFERENCE, Plain, read

from levelhead.mitigate.evaluation.gain import bias_aggregate, cost_aggregate, resample_paired
from levelhead.mitigate.evaluation.pareto import ParetoFront, compute_pareto_front, is_non_dominated


def literal(gain, price):
    points = list(zip(gain, price, strict=True))
    return [
        not any(g >= subset and p <= cost and (g > subset or p < cost) for g, p in points)
        for subset, cost in points
    ]


def test_what_nothing_beats_is_on_the_front():
    rng = np.random.default_rng(0)
    for _ in range(30):
        gain, price = rng.integers(0, 4, size=(2, 8))  # with ties
        assert is_non_dominated(gain, price).tolist() == literal(gain, price)
    assert is_non_dominated([1, 1], [2, 2]).tolist() == [True, True]


def test_points_have_intervals_and_shares_of_resamples():
    rng = np.random.default_rng(1)
    base, texts = 2 + rng.normal(size=40), 10 + rng.normal(size=30)
    gains, costs = (1.0, 0.5, 0.98, 0.2), (2.0, 0.5, 2.0, 3.0)
    bias = [read(base), *(read(base - gain + 0.1 * rng.normal(size=40)) for gain in gains)]
    price = [read(texts), *(read(texts + cost + 0.1 * rng.normal(size=30)) for cost in costs)]
    measure, cost = Plain(), Plain("pppl", parity=None, role="utility", worse="higher")
    output = [
        resample_paired(subset, rows, over, metric=subset.primary_metric, inference=INFERENCE)
        for subset, rows, over in (
            (measure, bias, bias_aggregate(measure.primary_metric)),
            (cost, price, cost_aggregate(cost.primary_metric)),
        )
    ]
    names = ["best", "cheap", "close", "bad"]
    result = compute_pareto_front(
        names, output[0].effects(), output[1].effects(sign=-1), units=("points", "nats")
    )
    points = {point.name: point for point in result.points}
    assert list(points) == ["base", *names]
    assert result.n_resamples == 99
    assert points["base"].gain is None
    assert points["base"].is_on_front
    assert points["base"].share == 1  # nothing is cheaper
    assert points["cheap"].share == 1
    assert points["bad"].share == 0
    assert points["best"].share + points["close"].share >= 1
    assert 0 < points["close"].share < 1
    assert points["cheap"].gain.value == pytest.approx(0.5, abs=0.1)
    assert points["cheap"].cost.value == pytest.approx(0.5, abs=0.1)
    assert points["cheap"].cost.unit == "nats"
    assert points["bad"].cost.interval.low > 2.5
    assert points["best"].gain.p.family == 4
    assert result.names[:2] == ("base", "cheap")
    assert "bad" not in result.names
    assert ParetoFront.from_json(result.to_json()) == result


def test_a_price_that_no_setting_changes_is_none():
    rng = np.random.default_rng(1)
    base = 2 + rng.normal(size=20)
    measure = Plain()
    rows = [read(base), read(base - 1 + 0.1 * rng.normal(size=20))]
    gains, prices = (
        resample_paired(
            measure,
            item,
            bias_aggregate(measure.primary_metric),
            metric=measure.primary_metric,
            inference=INFERENCE,
        ).effects()
        for item in (rows, [rows[0], rows[0]])
    )
    result = compute_pareto_front(["one"], gains, prices, units=("points", "points"))
    assert result.points[1].cost is None
    assert result.names == ("one",)  # as cheap as the base, and better
