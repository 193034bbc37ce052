"""Inside and outside: correlations, viability and regret of settings whose values are known."""

import numpy as np
import pytest
from scipy import stats
from simulated import INFERENCE, Plain, read

from levelhead.core.errors import LevelheadError
from levelhead.mitigate.evaluation.gain import average_resamples, resample_paired
from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.replication.dawkins2024.downstream import (
    ColumnInfo,
    DownstreamReport,
    compare_downstream,
)

NAMES = [item.name for item in projection_grid()]
S = ColumnInfo(name="strength", better="lower")
ETA = ColumnInfo(name="fairness", better="higher")
PRICE = ColumnInfo(name="accuracy", better="higher")


def column(values, seed=0, noise=0.02, n=60, names=NAMES):
    """The base at 1 and settings at these values, of n units."""
    rng = np.random.default_rng(seed)
    units = 1 + 0.05 * rng.normal(size=n)
    rows = [
        read(units),
        *(read(units - 1 + value + noise * rng.normal(size=n)) for value in values),
    ]
    measure = Plain()
    output = {"metric": measure.primary_metric, "inference": INFERENCE, "out_of_bag": True}
    return resample_paired(measure, rows, measure.primary_metric.aggregate, **output)


def full_result(**how):
    rng = np.random.default_rng(5)
    inner = rng.normal(size=74)
    outer = -inner + 0.3 * rng.normal(size=74)
    price = np.where(np.arange(74) % 3, 1.0, 0.8)
    return compare_downstream(
        NAMES,
        {S: column(inner)},
        {ETA: [column(outer, 1), column(outer, 2)], PRICE: [column(price, 3), column(price, 4)]},
        **({"utility_measure": "accuracy"} | how),
    )


def test_a_correlation_is_that_of_all_settings_and_the_base():
    result = full_result()
    cell = result.correlations[0]
    assert cell.name == "spearman of strength and fairness"
    columns = [result.column(name) for name in ("strength", "fairness")]
    values = [[column.base, *column.values_by_config.values()] for column in columns]
    assert cell.value == pytest.approx(stats.spearmanr(*values).statistic)
    assert cell.n == 75
    assert -0.99 < cell.interval.low < cell.value < cell.interval.high < -0.8
    assert DownstreamReport.from_json(result.to_json()) == result


def test_classifiers_are_averaged_setting_by_setting():
    result = full_result()
    subset = result.column("fairness")
    assert [subset.base, *subset.values_by_config.values()] == pytest.approx(
        np.mean(subset.per_model, axis=0)
    )
    assert list(subset.values_by_config) == NAMES
    assert result.models == 2
    with pytest.raises(LevelheadError, match="did not respond to the same items"):
        average_resamples([column([0.0] * 74), column([0.0] * 74, n=61)])


def test_viability_is_absolute_or_relative():
    result = full_result(viability="absolute")
    base = result.column("accuracy").base
    assert result.utility_limit == pytest.approx(base - 0.05)
    assert set(result.viable) == {name for i, name in enumerate(NAMES) if i % 3}
    assert full_result(viability="relative", max_utility_loss=0.5).utility_limit == pytest.approx(
        base / 2
    )
    # Inside, nothing is asked of a price; outside, the best is viable.
    best = {(config.edit_point, config.measure): config for config in result.best_configs}
    column = result.column("fairness").values_by_config
    deep = best[("penultimate", "fairness")]
    some = [name for name in result.viable if name.startswith("penultimate ")]
    assert deep.config == max(some, key=column.get)
    assert deep.n_configs == 32
    inner = result.column("strength").values_by_config
    every = [name for name in NAMES if name.startswith("last ")]
    assert best[("last", "strength")].config == min(every, key=inner.get)
    nothing = full_result(max_utility_loss=-1)
    assert nothing.best_configs[-1].config is None
    assert nothing.regrets == ()
    for wrong in ({"viability": "other"}, {"utility_measure": "other"}):
        with pytest.raises(LevelheadError):
            full_result(**wrong)


def test_a_price_that_is_better_when_low():
    low = ColumnInfo(name="perplexity", better="lower")
    price = np.linspace(0.5, 2.0, 74)
    result = compare_downstream(
        NAMES,
        {S: column(np.zeros(74))},
        {ETA: [column(np.ones(74), 1)], low: [column(price, 3)]},
        utility_measure="perplexity",
    )
    assert result.utility_limit == pytest.approx(1.05 * result.column("perplexity").base)
    assert set(result.viable) == {
        name for name, subset in zip(NAMES, price, strict=True) if subset < 1.05
    }


def test_columns_of_another_length_are_refused():
    short = {S: column(np.zeros(73))}
    with pytest.raises(LevelheadError, match="74 settings, and columns of another length"):
        compare_downstream(NAMES, short, {PRICE: [column(np.ones(74))]}, utility_measure="accuracy")


def test_choosing_by_another_measure_costs_what_it_costs():
    values = np.zeros(74)
    inner, outer = values.copy(), values.copy()
    inner[3], outer[7] = -1.0, 1.0  # the best inside is not the best outside
    price = {PRICE: [column(values + 1, 3)]}
    result = compare_downstream(
        NAMES, {S: column(inner)}, {ETA: [column(outer, 1)], **price}, utility_measure="accuracy"
    )
    (regret,) = [regret for regret in result.regrets if regret.measure == "fairness"]
    assert (regret.chosen_by, regret.config, regret.best_config) == ("strength", NAMES[3], NAMES[7])
    assert regret.regret.value == pytest.approx(1, abs=0.05)
    assert (1 in regret.regret.interval, regret.verdict) == (True, "yes")
    outer[7] = 0.0
    outer[3] = 1.0
    same = compare_downstream(
        NAMES, {S: column(inner)}, {ETA: [column(outer, 1)], **price}, utility_measure="accuracy"
    )
    (regret,) = [regret for regret in same.regrets if regret.measure == "fairness"]
    assert (regret.verdict, regret.config) == ("no", regret.best_config)
    assert abs(regret.regret.value) < 0.05
