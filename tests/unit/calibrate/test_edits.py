"""What edits come to, from changes of which it is known what they should come to."""

import pytest

from levelhead.calibrate.edits import (
    PLACEBO,
    TRAINING_PLACEBO,
    EditEffect,
    compute_edit_calibrations,
)
from levelhead.calibrate.locators import (
    KnownHeadResult,
    OrdinaryResult,
    compute_locator_calibrations,
    mean_over_models,
)
from levelhead.calibrate.tables import make_calibration_tables
from levelhead.core.calibration import Calibration, LocatorCalibration, Proportion
from levelhead.core.results import Estimate, Interval
from levelhead.stats.intervals import proportion_interval


def estimate(value, reach=0.1):
    interval = Interval(low=value - reach, high=value + reach, level=0.95, method="given")
    return Estimate(name="change", value=value, interval=interval, n=10)


def edited(edit, rho, seed, change, *, price=0.0, before=4.0):
    return EditEffect(
        architecture="bert",
        rho=rho,
        seed=seed,
        weights="0" * 64,
        edit=edit,
        before=before if rho else 0.0,
        change=estimate(change),
        utility_cost=estimate(price),
        fluency=5.0,
    )


def rows(edit, full, none=(0.0, 0.01, -0.01), price=0.0):
    return [edited(edit, 1.0, seed, value, price=price) for seed, value in enumerate(full)] + [
        edited(edit, 0.0, seed, value) for seed, value in enumerate(none)
    ]


def test_an_edit_is_told_by_the_share_of_the_bias_that_is_gone():
    (single,) = compute_edit_calibrations(rows("leace", (-3.0, -3.2, -2.8), price=0.5))
    assert single.gone.value == pytest.approx(0.75)
    assert single.at_none.value == pytest.approx(0.02 / 3 / 4)  # up and down do not cancel
    assert single.verdict == "lowers it (n = 3); text about nobody is predicted worse"
    assert (single.significant, single.nulls, single.models) == (0, 3, 3)


def test_a_bias_to_the_other_side_is_not_gone():
    (single,) = compute_edit_calibrations(rows("leace", (-8.0, -8.2, -7.8)))  # from 4 to about -4
    assert single.gone.value == pytest.approx(0.0, abs=0.05)
    assert single.verdict == "not shown to lower it (n = 3)"


def test_what_changes_nothing_is_not_said_to_lower():
    (single,) = compute_edit_calibrations(rows("leace", (-0.1, 0.3, -0.2)))
    assert single.verdict == "not shown to lower it (n = 3)"


def test_a_change_without_a_bias_is_counted():
    (single,) = compute_edit_calibrations(rows("leace", (-3.0, -3.2, -2.8), none=(-0.5, 0.0, 0.4)))
    assert single.significant == 2


@pytest.mark.parametrize(
    ("placebo", "verdict"),
    [
        ((-1.0, -1.1, -0.9), "more than its placebo in 3 of 3 models, p 0.125 (not shown)"),
        ((-1.0, -3.5, -0.9), "more than its placebo in 2 of 3 models, p 0.5 (not shown)"),
    ],
)
def test_an_edit_is_tested_against_its_placebo_over_models(placebo, verdict):
    result = compute_edit_calibrations(
        rows("mask", (-3.0, -3.2, -2.8)) + rows(f"mask{PLACEBO}", placebo)
    )
    assert result[0].verdict == f"lowers it (n = 3); {verdict}"


def test_a_child_must_lower_more_than_one_that_is_only_trained_on():
    child = rows("counterfactual training", (-3.0, -3.2, -2.8))
    result = compute_edit_calibrations(child + rows(TRAINING_PLACEBO, (-3.1, -3.3, -2.9)))
    assert "more than its placebo in 0 of 3 models, p 1 (not shown)" in result[0].verdict


def test_locators_are_told_by_family():
    known = [
        KnownHeadResult(
            architecture="gpt2",
            seed=seed,
            weights="0" * 64,
            value=10.0,
            value_without_head=0.0,
            ranks={"gradient": 1, "path": 1 if seed else 2, "ablation": 1},
            confirmed=("2-3",),
            greedy_heads=("2-3",) if seed else ("2-3", "1-1"),
        )
        for seed in range(10)
    ]
    base = [
        OrdinaryResult(
            architecture="gpt2",
            seed=seed,
            weights="0" * 64,
            value=10.0,
            n_positive=4,
            n_heads=16,
            auroc={"gradient": 0.9 + seed / 100, "path": None},
            agreement=0.8 + seed / 100,
        )
        for seed in range(3)
    ]
    (single,) = compute_locator_calibrations(known, base)
    assert single.verdict == "not refuted (n = 10)"
    assert (single.learned, single.without, single.positive) == (10, 0.0, (4, 4))
    assert {by: subset.hits for by, subset in single.first.items()} == {
        "gradient": 10,
        "path": 9,
        "ablation": 10,
    }
    assert single.alone.hits == 9
    assert single.auroc["gradient"].value == pytest.approx(0.91)
    assert single.auroc["path"] is None
    assert single.agreement.n == 3
    (few,) = compute_locator_calibrations(known[:9], base)
    assert few.verdict == "not evaluated: too few models"
    late = [item.model_copy(update={"ranks": item.ranks | {"path": 2}}) for item in known[:3]]
    assert compute_locator_calibrations(late + known[3:], base)[0].verdict == "misses by path"


def test_every_number_stands_below_its_own_heading():
    """A file has its keys in another order than a locator's names."""
    first = {
        by: Proportion(hits=hits, of=10, interval=proportion_interval(hits, 10))
        for by, hits in (("ablation", 7), ("gradient", 8), ("path", 9))
    }
    auroc = {"path": estimate(0.7), "gradient": estimate(0.8)}
    family = LocatorCalibration(
        architecture="gpt2", known=10, learned=10, without=0.0, first=first, alone=first["path"],
        ordinary=3, positive=(4, 5), auroc=auroc, agreement=None,
    )  # fmt: skip
    empty = dict.fromkeys(("models", "skills", "measures", "edits", "removed"), ())
    calibration = Calibration(
        command="levelhead calibrate", versions={}, machine="", locators=(family,), **empty
    )
    shown = [
        dict(zip(table.columns, table.rows[0], strict=True))
        for table in make_calibration_tables(calibration)
        if table.rows
    ]
    assert shown[0]["first by gradient"].startswith("8 of 10")
    assert shown[0]["by path"].startswith("9 of 10")
    assert shown[0]["by ablation"].startswith("7 of 10")
    assert shown[1]["AUROC, gradient"].startswith("0.80")


def test_no_interval_goes_beyond_what_is_possible():
    result = mean_over_models([1.0, 0.9, 1.0], "AUROC", maximum=1.0)
    assert result.interval.high == 1.0
    assert result.interval.low < 0.9


def test_models_that_are_all_alike_are_told_without_a_spread():
    result = mean_over_models([1.0, None, 1.0], "AUROC")
    assert (result.value, result.n) == (1.0, 2)
    assert result.interval.method == "all models alike"
    assert mean_over_models([1.0], "AUROC") is None
