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
    (one,) = compute_edit_calibrations(rows("leace", (-3.0, -3.2, -2.8), price=0.5))
    assert one.gone.value == pytest.approx(0.75)
    assert one.at_none.value == pytest.approx(0.02 / 3 / 4)  # up and down do not cancel
    assert one.verdict == "lowers it (n = 3); text about nobody is predicted worse"
    assert (one.significant, one.nulls, one.models) == (0, 3, 3)


def test_a_bias_to_the_other_side_is_not_gone():
    (one,) = compute_edit_calibrations(rows("leace", (-8.0, -8.2, -7.8)))  # from 4 to about -4
    assert one.gone.value == pytest.approx(0.0, abs=0.05)
    assert one.verdict == "not shown to lower it (n = 3)"


def test_what_changes_nothing_is_not_said_to_lower():
    (one,) = compute_edit_calibrations(rows("leace", (-0.1, 0.3, -0.2)))
    assert one.verdict == "not shown to lower it (n = 3)"


def test_a_change_without_a_bias_is_counted():
    (one,) = compute_edit_calibrations(rows("leace", (-3.0, -3.2, -2.8), none=(-0.5, 0.0, 0.4)))
    assert one.significant == 2


@pytest.mark.parametrize(
    ("placebo", "verdict"),
    [
        ((-1.0, -1.1, -0.9), "more than its placebo in 3 of 3 models, p 0.125 (not shown)"),
        ((-1.0, -3.5, -0.9), "more than its placebo in 2 of 3 models, p 0.5 (not shown)"),
    ],
)
def test_an_edit_is_tested_against_its_placebo_over_models(placebo, verdict):
    found = compute_edit_calibrations(
        rows("mask", (-3.0, -3.2, -2.8)) + rows(f"mask{PLACEBO}", placebo)
    )
    assert found[0].verdict == f"lowers it (n = 3); {verdict}"


def test_a_child_must_lower_more_than_one_that_is_only_trained_on():
    child = rows("counterfactual training", (-3.0, -3.2, -2.8))
    found = compute_edit_calibrations(child + rows(TRAINING_PLACEBO, (-3.1, -3.3, -2.9)))
    assert "more than its placebo in 0 of 3 models, p 1 (not shown)" in found[0].verdict


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
    plain = [
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
    (one,) = compute_locator_calibrations(known, plain)
    assert one.verdict == "not refuted (n = 10)"
    assert (one.learned, one.without, one.positive) == (10, 0.0, (4, 4))
    assert {by: own.hits for by, own in one.first.items()} == {
        "gradient": 10,
        "path": 9,
        "ablation": 10,
    }
    assert one.alone.hits == 9
    assert one.auroc["gradient"].value == pytest.approx(0.91)
    assert one.auroc["path"] is None
    assert one.agreement.n == 3
    (few,) = compute_locator_calibrations(known[:9], plain)
    assert few.verdict == "not evaluated: too few models"
    late = [own.model_copy(update={"ranks": own.ranks | {"path": 2}}) for own in known[:3]]
    assert compute_locator_calibrations(late + known[3:], plain)[0].verdict == "misses by path"


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
    told = Calibration(
        command="levelhead calibrate", versions={}, machine="", locators=(family,), **empty
    )
    shown = [
        dict(zip(one.columns, one.rows[0], strict=True))
        for one in make_calibration_tables(told)
        if one.rows
    ]
    assert shown[0]["first by gradient"].startswith("8 of 10")
    assert shown[0]["by path"].startswith("9 of 10")
    assert shown[0]["by ablation"].startswith("7 of 10")
    assert shown[1]["AUROC, gradient"].startswith("0.80")


def test_no_interval_goes_beyond_what_is_possible():
    found = mean_over_models([1.0, 0.9, 1.0], "AUROC", maximum=1.0)
    assert found.interval.high == 1.0
    assert found.interval.low < 0.9


def test_models_that_are_all_alike_are_told_without_a_spread():
    found = mean_over_models([1.0, None, 1.0], "AUROC")
    assert (found.value, found.n) == (1.0, 2)
    assert found.interval.method == "all models alike"
    assert mean_over_models([1.0], "AUROC") is None
