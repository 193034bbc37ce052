"""Claims about settings: the paper's own table, and values whose differences are known."""

import numpy as np
import pytest
import torch
from simulated import INFERENCE, Plain, read

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.mitigate.controls.placebo_test import estimate_base_effect
from levelhead.mitigate.evaluation.gain import resample_paired
from levelhead.mitigate.projection.config_grid import projection_grid
from levelhead.replication.dawkins2024.claims import (
    CLAIMS,
    ClaimTests,
    comparison_aggregate,
    run_claim_tests,
)
from levelhead.stats.designs import grouped_design
from levelhead.study.table import result_to_rows

NAMES = [item.name for item in projection_grid()]


def find_result(values, names=None, noise=0.0, base=None):
    """A base of 0 and settings of these values, each of 30 units that spread."""
    rng = np.random.default_rng(0)
    units = rng.normal(size=30)
    rows = [read(units)]
    rows += [read(units + value + noise * rng.normal(size=30)) for value in values]
    measure = Plain()
    head = measure.primary_metric
    subset = resample_paired(measure, rows, head.aggregate, metric=head, inference=INFERENCE)
    output = {"measure": "plain", "better": "lower", "unit": "points"}
    return run_claim_tests(subset, names or NAMES, base=base, **output)


def test_pairs_of_settings_are_as_many_as_the_paper_counts():
    values = [0.01 * i for i in range(74)]
    output = {
        (item.claim, item.edit_point): item.n_pairs
        for item in find_result(values, noise=0.1).claims
    }
    assert output[("weighting at sent", "all")] == 37
    levels = ("sent", "last", "penultimate", "penultimate+attn")
    assert [output[("weighting at sent", level)] for level in levels] == [1, 4, 16, 16]
    assert output[("one level deeper", "all")] == 8 + 32 + 32
    assert output[("attention, unless two hard dimensions at its layer", "all")] == 24
    assert output[("attention, with two hard dimensions at its layer", "all")] == 8
    assert output[("weighting of two dimensions at penultimate", "all")] == 16
    assert output[("weighting of two dimensions at last", "all")] == 2 + 8 + 8
    assert {claim for claim, _ in output} == {claim.name for claim in CLAIMS}


def test_a_planted_difference_is_found_and_another_is_not():
    # Weighting at sent takes 1 off; nothing else does anything but noise.
    values = [-1.0 if name.endswith("1") else 0.0 for name in NAMES]
    output = find_result(values, noise=0.5)
    weighting = output.claim_test("weighting at sent")
    assert weighting.difference.value == pytest.approx(weighting.mean_with - weighting.mean_without)
    assert weighting.difference.value == pytest.approx(-1, abs=0.1)
    assert -1 in weighting.difference.interval
    assert (weighting.verdict, weighting.improved_pairs) == ("yes", 37)
    assert output.claim_test("one level deeper").verdict == "undecided"
    assert output.claim_test("weighting at sent", "sent").spread is None
    assert ClaimTests.from_json(output.to_json()) == output
    worse = find_result([-value for value in values], noise=0.5).claim_test("weighting at sent")
    assert (worse.verdict, worse.improved_pairs) == ("no", 0)


@pytest.mark.parametrize(("level", "holds"), [(0.0, "untestable"), (3.0, "yes"), (-3.0, "yes")])
def test_on_a_model_without_a_bias_less_is_not_better(level, holds):
    rng = np.random.default_rng(4)
    base = estimate_base_effect(Plain(), read(level + rng.normal(size=30)), inference=INFERENCE)
    values = [-1.0 if name.endswith("1") else 0.0 for name in NAMES]
    output = find_result(values, noise=0.5, base=base)
    weighting = output.claim_test("weighting at sent")
    assert weighting.verdict == holds
    assert weighting.difference.value == pytest.approx(-1, abs=0.1)
    assert output.untestable_reason.startswith("untestable: base shows no effect") == (level == 0)
    assert ClaimTests.from_json(output.to_json()) == output
    (first, *_) = result_to_rows("findings.nsp.test", output)
    assert (first.name, first.what.startswith("untestable")) == ("base", level == 0)


def test_a_price_has_no_side_that_could_be_tested():
    price = Plain("pppl", parity=None, role="utility", worse="higher")
    assert estimate_base_effect(price, read(np.arange(9.0)), inference=INFERENCE) is None
    with pytest.raises(NotMeasurableError, match="plain of the model has no spread"):
        estimate_base_effect(Plain(), read(np.ones(9)), inference=INFERENCE)


def test_a_baseline_is_passed_over_and_a_lone_setting_refused():
    output = find_result([1.0, 2.0, 3.0], names=["sent 0", "sent 1", "sent-debias"], noise=0.3)
    assert [(item.claim, item.edit_point, item.n_pairs) for item in output.claims] == [
        ("weighting at sent", "all", 1)
    ]
    assert output.claims[0].mean_without == pytest.approx(1, abs=0.5)
    with pytest.raises(LevelheadError, match="no two settings differ in one thing only"):
        find_result([1.0], names=["sent 0"])
    with pytest.raises(LevelheadError, match="no claim 'other' at all"):
        output.claim_test("other")


def test_beyond_parity_it_is_bias_again():
    parity, none = Plain(parity=5.0).primary_metric, Plain(parity=None).primary_metric
    full = grouped_design(2).full_sample
    over, better = comparison_aggregate(parity)
    below, above = torch.tensor([3.0, 3.0]), torch.tensor([8.0, 8.0])
    assert (float(over(below, full)), float(over(above, full)), better) == (2, 3, "lower")
    over, better = comparison_aggregate(none)
    assert (float(over(below, full)), better) == (3, "lower")
    assert (
        comparison_aggregate(
            Plain("snli", parity=None, role="utility", worse="lower").primary_metric
        )[1]
        == "higher"
    )
    assert comparison_aggregate(Plain(parity=None, role="parity").primary_metric)[1] == "higher"
    with pytest.raises(LevelheadError, match="does not say whether higher or lower is worse"):
        comparison_aggregate(Plain("own", parity=None, role="utility").primary_metric)
