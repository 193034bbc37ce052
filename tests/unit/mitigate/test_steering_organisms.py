"""On models with a planted bias: what steering removes beyond placebos, and nothing without one."""

import csv
import importlib.util
import math
import sys
from pathlib import Path

import pytest

from levelhead.calibrate.locators import VISIBLE_HEAD
from levelhead.calibrate.organisms.organism import make_organism

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("steering", ROOT / "benchmarks" / "steering.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["steering"] = module
    spec.loader.exec_module(module)
    return module


def row(benchmark, method="leace", rho=1.0, share=0.5, outcome="mitigates", seed=0):
    return benchmark.Result(
        *("bert", rho, seed, method, "word", 2),
        *(4.0, share, share - 0.1, share + 0.1, 0.1, 0.01, 0.02, 1.0),
        outcome,
    )


def test_a_summary_counts_models_with_and_without_a_bias(benchmark):
    results = [
        row(benchmark, share=0.4),
        row(benchmark, share=0.6, seed=1),
        row(benchmark, share=math.nan, outcome="no setting gains on dev", seed=2),
        row(benchmark, rho=0.0, outcome="untestable: base shows no effect"),
        row(benchmark, rho=0.0, outcome="not shown to mitigate", seed=1),
        row(benchmark, "shift", rho=0.0),
    ]
    summary = benchmark.summarise(results)
    assert list(summary) == ["leace", "shift"]
    single = summary["leace"]
    assert single["share"][0] == pytest.approx(1 / 3)  # where nothing gains, nothing is gone
    assert single["share"][1] < 1 / 3 < single["share"][2]
    assert (single["models"], single["mitigates"]) == (3, 2)
    assert (single["null_models"], single["null_mitigates"], single["null_untestable"]) == (2, 0, 1)
    assert summary["shift"]["null_mitigates"] == 1


def test_mean_matching_removes_a_planted_bias_and_finds_none_where_none_is(benchmark):
    """A cached model; its labels at random are a null. The full tier has models without a bias."""
    organism = make_organism("gpt2", 1.0, visible_head=VISIBLE_HEAD, quick=True)
    (biased,), (null,) = (
        benchmark.run_model(
            organism, benchmark.N_QUICK, methods=["mean_matching"], label_seed=label_seed
        )
        for label_seed in (None, 0)
    )
    assert biased.outcome == "mitigates"
    assert biased.low > max(biased.placebo_share, 0)
    assert biased.accuracy > 0.9
    assert null.outcome != "mitigates"


@pytest.mark.full
def test_over_ten_models(benchmark):
    """The fast counterpart is above; this takes tens of minutes of one core."""
    results = [
        result
        for seed in range(5)
        for name in benchmark.ARCHITECTURES
        for rho in (1.0, 0.0)
        for result in benchmark.run_model(make_organism(name, rho, seed=seed, quick=True))
    ]
    summary = benchmark.summarise(results)
    for method in ("leace", "mean_matching", "conditional"):
        assert summary[method]["models"] == summary[method]["null_models"] == 10
        assert summary[method]["share"][1] > 0
        assert summary[method]["null_mitigates"] == 0


def test_the_table_holds_what_the_documents_say(benchmark):
    with (ROOT / "docs" / "development" / "data" / "steering.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == benchmark.Result._fields
    models = {(one["architecture"], one["seed"]) for one in rows if one["rho"] == "1"}
    assert len(models) >= 10
    assert {one["method"] for one in rows} == set(benchmark.METHODS)
    assert not [one for one in rows if one["rho"] == "0" and one["outcome"] == "mitigates"]
