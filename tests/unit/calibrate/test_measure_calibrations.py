"""Verdicts on measures, from answers of which it is known what they should come to."""

import pytest

from levelhead.calibrate.dose_response import MeasureResponse, ModelResponses
from levelhead.calibrate.measure_calibrations import (
    compute_measure_calibrations,
    compute_skill_calibrations,
)
from levelhead.core.results import Interval

RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
BOUNDS = Interval(low=-1.0, high=2.0, level=0.95, method="given")


def responses_of(value, p, *, measure="ruler", expected="rises", deals=(), parity=0.0):
    why = "no item is left" if value is None else ""
    return MeasureResponse(
        measure=measure,
        expected=expected,
        value=value,
        interval=None if value is None else BOUNDS,
        parity=parity,
        p=p,
        n=10,
        dropped=0,
        permutation_p_values=deals,
        failure=why,
    )


def answered(rho, seed, *subset, variant="stereotype", architecture="bert"):
    return ModelResponses(
        architecture=architecture,
        rho=rho,
        variant=variant,
        seed=seed,
        texts="0" * 64,
        weights="0" * 64,
        skills=(("pronouns that agree", 1.0, 1.0),),
        responses=subset,
    )


def models(value, p, deals=(0.2,) * 20, **given):
    return [
        answered(
            rho,
            seed,
            responses_of(value(rho, seed), p(rho), deals=deals if rho == 0 else (), **given),
        )
        for rho in RHOS
        for seed in range(5)
    ]


def rising(rho, seed):
    return rho + 0.01 * seed


def found_from(least):
    return lambda rho: 0.002 if rho >= least else 0.5


def test_a_measure_that_follows_the_dose_is_not_refuted():
    rows = models(rising, found_from(0.5))
    once = (0.01, *(0.5,) * 19)  # one alarm of twenty, in every second model
    rows[::2] = [
        row.model_copy(
            update={
                "responses": (row.responses[0].model_copy(update={"permutation_p_values": once}),)
            }
        )
        if row.rho == 0
        else row
        for row in rows[::2]
    ]
    (single,) = compute_measure_calibrations(rows)
    assert single.verdict == "not refuted"
    assert single.rank == pytest.approx(0.98, abs=0.005)  # the most that ties in the dose allow
    assert single.rank_interval.low > 0.95
    assert single.alarms == pytest.approx(0.03)
    assert 0.05 < single.alarms_interval.high < 0.1
    assert (single.null_alarms, single.nulls) == (0, 5)
    assert [(item.rho, item.hits) for item in single.power] == [
        (0.25, 0),
        (0.5, 5),
        (0.75, 5),
        (1.0, 5),
    ]
    assert single.smallest == 0.5


def test_a_measure_without_an_alarm_is_not_refuted():
    (single,) = compute_measure_calibrations(models(rising, found_from(0.25)))
    assert single.verdict == "not refuted"
    assert single.alarms == 0


def test_a_measure_that_does_not_follow_it_misses():
    (single,) = compute_measure_calibrations(models(lambda rho, seed: float(seed), found_from(2)))
    assert single.verdict == "misses"
    assert single.reasons == (
        "Spearman's correlation with the dose is 0.00",
        "the full dose is found in 0 of 5 models",
    )
    assert single.smallest is None


def test_a_measure_of_parity_must_fall():
    (falls,) = compute_measure_calibrations(
        models(lambda r, s: -rising(r, s), found_from(0.5), expected="falls")
    )
    (rises,) = compute_measure_calibrations(models(rising, found_from(0.5), expected="falls"))
    assert (falls.verdict, rises.verdict) == ("not refuted", "misses")


def test_a_lean_to_the_other_side_is_not_found():
    (single,) = compute_measure_calibrations(models(lambda r, s: -rising(r, s), found_from(0.25)))
    assert all(item.hits == 0 for item in single.power)


def test_false_alarms_are_bounded_with_models_as_clusters():
    loud = [(0.01,) * 4 + (0.5,) * 16, (0.5,) * 20, (0.01,) * 6 + (0.5,) * 14]
    rows = [
        answered(
            rho,
            seed,
            responses_of(
                rising(rho, seed), 0.002 if rho else 0.5, deals=loud[seed % 3] if not rho else ()
            ),
        )
        for rho in RHOS
        for seed in range(3)
    ]
    (few,) = compute_measure_calibrations(rows)
    assert few.alarms == pytest.approx((0.2 + 0 + 0.3) / 3)
    assert few.alarms_interval.high > 0.5  # three models bound little, however many the deals
    assert few.verdict == "not refuted"
    assert "false alarms not known (n = 3 null models)" in few.full_verdict
    rows += [
        answered(0.0, seed, responses_of(rising(0.0, 0.01 * seed), 0.5, deals=loud[seed % 3]))
        for seed in range(3, 20)
    ]
    (enough,) = compute_measure_calibrations(rows)
    assert enough.verdict == "misses"
    assert "false alarms may be" in enough.reasons[0]


def test_what_could_not_be_read_is_no_silence():
    rows = models(rising, found_from(0.25))
    rows[-1] = answered(1.0, 4, responses_of(None, None))
    (single,) = compute_measure_calibrations(rows)
    assert single.unread == 1
    assert single.verdict == "misses"
    assert single.reasons == ("1 models could not be measured",)


def test_two_doses_are_judged_by_whether_the_full_one_is_found():
    def two(p):
        rows = [answered(rho, s, responses_of(rho, p(rho))) for rho in (0.0, 1.0) for s in range(3)]
        return compute_measure_calibrations(rows)[0]

    assert two(found_from(1)).verdict == "not refuted"
    assert two(found_from(2)).reasons == ("the full dose is found in 0 of 3 models",)
    assert two(found_from(0)).reasons == ("alarms in 3 of 3 models without a bias",)


def test_a_price_is_not_judged():
    (single,) = compute_measure_calibrations(models(rising, lambda rho: None, (), expected="none"))
    assert single.verdict == "not evaluated"


def test_a_measure_of_what_was_not_planted_must_still_be_silent():
    (silent,) = compute_measure_calibrations(models(rising, found_from(2), (), expected="none"))
    (loud,) = compute_measure_calibrations(models(rising, found_from(0), (), expected="none"))
    assert silent.verdict == "not evaluated"
    assert loud.reasons == ("alarms in 5 of 5 models without a bias",)
    # Where models without a dose may have what it asks for, finding it there refutes nothing.
    (either,) = compute_measure_calibrations(models(rising, found_from(0), (), expected="any"))
    assert either.verdict == "not evaluated"
    assert either.null_alarms == 5


@pytest.mark.parametrize(
    ("value", "p", "deals", "verdict", "why"),
    [
        (rising, lambda rho: 0.5, (0.2,) * 20, "misses", "the full dose is found in 0 of 5 models"),
        (rising, lambda rho: 0.01, (0.2,) * 20, "misses", "alarms in 5 of 5 models without a bias"),
        (rising, lambda rho: None, (), "not evaluated", "it has no test: "),
        (lambda r, s: None, lambda rho: None, (), "misses", "no model could be measured"),
        (
            *(lambda r, s: 1.0, lambda rho: None, (), "misses"),
            "it gives the same value for every model",
        ),
    ],
)
def test_nothing_passes_for_lack_of_an_answer(value, p, deals, verdict, why):
    (single,) = compute_measure_calibrations(models(value, p, deals))
    assert single.verdict == verdict
    assert single.reasons[0].startswith(why)


def test_an_alarm_more_never_lowers_the_bound():
    bounds = []
    for loud in range(8):  # alarms in so many of ten models, one each
        rows = [
            answered(
                0.0,
                s,
                responses_of(0.1 * s, 0.5, deals=((0.01 if s < loud else 0.5), *(0.5,) * 19)),
            )
            for s in range(10)
        ]
        rows += [answered(1.0, s, responses_of(9.0 + s, 0.002)) for s in range(3)]
        bounds.append(compute_measure_calibrations(rows)[0].alarms_interval.high)
    assert bounds == sorted(bounds)


def test_skills_are_told_by_the_worst_model():
    rows = models(rising, found_from(0.25))
    rows[3] = rows[3].model_copy(update={"skills": (("2.18 pronouns that agree", 0.8, 0.95),)})
    (single,) = compute_skill_calibrations(rows)
    assert single.skill == "pronouns that agree"
    assert (single.worst, single.best, single.models) == (0.8, 0.95, 25)


def test_confounders_are_told_in_shares_of_the_full_dose():
    rows = models(rising, found_from(0.25))
    rows += [answered(1.0, s, responses_of(0.52, 0.01), variant="one group") for s in range(3)]
    (single,) = compute_measure_calibrations(rows)
    (subset,) = single.confounded
    assert (subset.variant, subset.alarms, subset.models) == ("one group", 3, 3)
    assert subset.share == pytest.approx(0.5)
    assert subset.range == pytest.approx((0.5, 0.5))


def test_a_share_of_what_is_not_told_from_nothing_is_not_given():
    rows = models(lambda rho, seed: float(seed), found_from(2))
    rows += [answered(1.0, s, responses_of(50.0, 0.01), variant="skew") for s in range(3)]
    (single,) = compute_measure_calibrations(rows)
    assert (single.confounded[0].share, single.confounded[0].alarms) == (None, 3)


def test_families_are_judged_apart():
    rows = models(rising, found_from(0.25))
    rows += [
        answered(rho, s, responses_of(float(s), 0.5), architecture="llama")
        for rho in RHOS
        for s in (0, 1)
    ]
    assert [
        (calibration.architecture, calibration.verdict)
        for calibration in compute_measure_calibrations(rows)
    ] == [
        ("bert", "not refuted"),
        ("llama", "misses"),
    ]


def test_one_model_of_a_dose_bounds_nothing():
    rows = [
        answered(rho, 0, responses_of(rho, 0.01, deals=(0.01,) * 5 if rho == 0 else ()))
        for rho in (0.0, 0.5, 1.0)
    ]
    (single,) = compute_measure_calibrations(rows)
    assert (single.rank, single.rank_interval) == (1, None)
    assert single.verdict == "not evaluated"  # one model without a bias bounds no rate


def test_more_models_without_a_dose_do_not_lower_the_correlation():
    rows = models(rising, found_from(0.5))
    more = [answered(0.0, seed, responses_of(0.001 * seed, 0.5)) for seed in range(5, 20)]
    (few,), (many,) = compute_measure_calibrations(rows), compute_measure_calibrations(rows + more)
    assert many.rank == few.rank > 0.97
    assert (few.nulls, many.nulls) == (5, 20)
