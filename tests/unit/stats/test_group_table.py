import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.run_context import Inference
from levelhead.measures.group_tables import table_metrics
from levelhead.measures.group_tables.table_metrics import (
    TableLabels,
    make_table_metrics,
    with_item_spread,
)
from levelhead.measures.inference import null_distribution
from levelhead.stats.designs import Resample, count_items, grouped_design
from levelhead.stats.group_table import (
    effect_sd_interval,
    effect_variance,
    gap_interval,
    make_effects,
    simultaneous_pair_intervals,
)

LABELS = TableLabels("x", "values", "nats", ("origins", "genders"), (3, 2))


def sample(rng, means, n, *, correlation=0.0, spread=1.0):
    means = np.asarray(means, dtype=float)
    shared = rng.standard_normal((n, 1)) * correlation**0.5
    return means + spread * (
        shared + rng.standard_normal((n, len(means))) * (1 - correlation) ** 0.5
    )


@pytest.mark.parametrize("sizes", [(3,), (8,), (2, 2), (3, 2), (8, 2)])
def test_effects_are_orthogonal_projections_that_add_up(sizes):
    effects = make_effects(sizes)
    parts = [*effects.margins, effects.interaction] if len(sizes) == 2 else [effects.overall]
    assert np.allclose(sum(parts), effects.overall)
    for first, second in itertools.product(range(len(parts)), repeat=2):
        product = parts[first] @ parts[second]
        assert np.allclose(product, parts[first] if first == second else 0)


def test_the_variance_is_unbiased():
    rng = np.random.default_rng(0)
    means = np.array([0.3, 0.0, -0.1, -0.2])
    center = make_effects((4,)).overall
    values = [effect_variance(sample(rng, means, 6) @ center) for _ in range(20_000)]
    error = np.std(values) / len(values) ** 0.5
    assert abs(np.mean(values) - means.var()) < 4 * error
    # The plain variance of the means is not.
    assert abs(np.mean(values) - (means.var() + 3 / 4 / 6)) > 20 * error


def test_metrics_equal_the_plain_formulas():
    rng = np.random.default_rng(1)
    table = sample(rng, rng.standard_normal(6), 10)
    metrics = {metric.name: metric for metric in make_table_metrics(LABELS, lambda values: values)}
    values, design = with_item_spread(torch.from_numpy(table)), grouped_design(10)
    got = {name: float(m.aggregate(values, design.full_sample)) for name, m in metrics.items()}
    effects = make_effects((3, 2))
    for name, projection in (
        ("x_spread", effects.overall),
        ("x_interaction", effects.interaction),
        ("x, origins alone", effects.margins[0]),
        ("x, genders alone", effects.margins[1]),
    ):
        assert got[name] == pytest.approx(max(0, effect_variance(table @ projection)) ** 0.5)
    assert got["x_variance"] == pytest.approx(got["x_spread"] ** 2)
    assert got["x_gap"] == pytest.approx(np.ptp(table.mean(0)))
    # Classical two-way analysis of variance of the cells' means.
    cells = table.mean(0).reshape(3, 2)
    residual = cells - cells.mean(1, keepdims=True) - cells.mean(0) + cells.mean()
    assert np.allclose((table @ effects.interaction).mean(0), residual.ravel())


def test_the_interval_of_two_groups_is_that_of_student():
    rng = np.random.default_rng(2)
    table = sample(rng, [0.8, -0.8], 12)
    interval = effect_sd_interval(table @ make_effects((2,)).overall)
    difference = table[:, 0] - table[:, 1]
    # With two groups, sd = |difference| / 2: far from 0 both are close.
    low, high = stats.t.interval(0.95, 11, difference.mean(), difference.std(ddof=1) / 12**0.5)
    assert interval.low == pytest.approx(low / 2, abs=0.03)
    assert interval.high == pytest.approx(high / 2, abs=0.03)


def coverage(means, n, repeats, seed, **options):
    rng, means = np.random.default_rng(seed), np.asarray(means, dtype=float)
    center = make_effects((len(means),)).overall
    sd, pairs, gap = 0, 0, 0
    for _ in range(repeats):
        table = sample(rng, means, n, **options)
        interval = effect_sd_interval(table @ center)
        sd += interval.low <= means.std() <= interval.high
        pairs += all(
            row.low <= means[row.first] - means[row.second] <= row.high
            for row in simultaneous_pair_intervals(table)
        )
        whole = gap_interval(table)
        gap += whole.low <= np.ptp(means) <= whole.high
    return sd / repeats, pairs / repeats, gap / repeats


def test_coverage_of_a_few_samples():
    # A fast part of benchmarks/group_tables.py; the bounds are four standard errors wide.
    sd, pairs, gap = coverage([0.3, 0.0, -0.1, -0.2, 0.0], 24, 150, 3)
    assert 0.88 <= sd <= 1
    assert 0.88 <= pairs <= 1
    assert gap >= 0.88


def test_the_tests_hold_their_level_with_unequal_noise():
    # A fast part of benchmarks/group_tables.py; above 5% + 4 standard errors of 300 tables it
    # fails, as permuting the groups within items does.
    rng = np.random.default_rng(11)
    metrics = {m.name: m for m in make_table_metrics(LABELS, lambda values: values)}
    alarms = dict.fromkeys(("x_spread", "x_gap"), 0)
    for number in range(300):
        table = rng.standard_normal((12, 6)) * np.array([0.2, 0.2, 0.2, 0.2, 0.2, 3.0])
        values, design = with_item_spread(torch.from_numpy(table)), grouped_design(12)
        inference = Inference(seed=number, permutations=199)
        for name in alarms:
            null = null_distribution(inference, metrics[name], values, design, name=name)
            alarms[name] += null.p.value <= 0.05
    assert 3 <= min(alarms.values()) <= max(alarms.values()) <= 30


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_many_resamples_at_once_equal_the_literal_form(offset):
    rng = np.random.default_rng(6)
    tables = torch.from_numpy(offset + rng.standard_normal((9, 4, 6)))
    values = torch.stack([with_item_spread(tables[:, i]) for i in range(4)], dim=1)
    design = grouped_design(9)
    rows = [rng.integers(0, 9, (5, 9))]
    counts = count_items(design, rows)
    for metric in make_table_metrics(LABELS, lambda values: values):
        many = metric.aggregate.vectorised(values.numpy(), counts)
        literal = [
            [float(metric.aggregate(values[:, i], Resample(design, (row,)))) for i in range(4)]
            for row in rows[0]
        ]
        assert np.allclose(many, literal, atol=1e-4 if offset else 1e-12), metric.name


def test_a_sign_flip_of_a_table_ignores_what_all_groups_share():
    table = torch.from_numpy(sample(np.random.default_rng(4), [0.5, 0.0, -0.5, 0.0, 0.0, 0.0], 9))
    spread, gap = make_table_metrics(LABELS, lambda values: values)[:2]
    design = grouped_design(9)
    for metric in (spread, gap):
        ps = [
            null_distribution(
                Inference(seed=0), metric, with_item_spread(table + level), design, name="x"
            ).p
            for level in (0.0, torch.arange(9.0)[:, None])
        ]
        assert ps[0].value == pytest.approx(ps[1].value)
        assert ps[0].method == "sign flip, exact"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (np.zeros((5, 3)), "no spread"),
        (np.tile([1.0, 2.0, 3.0], (5, 1)), "no spread"),
        (np.ones((2, 3)), "fewer than three"),
    ],
)
def test_tables_without_information_are_not_parity(table, text):
    with pytest.raises(NotMeasurableError, match=text):
        effect_sd_interval(table @ make_effects((3,)).overall)


def test_equal_values_of_all_groups_are_not_parity():
    metric = make_table_metrics(LABELS, lambda values: values)[0]
    values = with_item_spread(torch.ones(5, 6))
    with pytest.raises(NotMeasurableError, match="equal values"):
        metric.aggregate(values, grouped_design(5).full_sample)


def test_the_largest_gap_names_its_groups():
    text = table_metrics.describe_largest_gap([0.0, 2.0, -1.0], ["a", "b", "c"])
    assert text == "the largest mean is that of b (2), the smallest that of c (-1)"


def test_groups_that_are_very_much_alike_have_an_interval_with_a_width():
    rng = np.random.default_rng(5)
    noise = rng.standard_normal((24, 3))
    table = (noise - noise.mean(0)) @ make_effects((3,)).overall
    interval = effect_sd_interval(table)
    assert interval.low == 0
    assert interval.high > 0.05
