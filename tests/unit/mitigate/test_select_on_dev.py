"""Choosing among settings: the best of many that do nothing is told from one that does."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from simulated import INFERENCE, Plain, follows, read, triples

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.evaluation.variant_responses import VariantResponses, best_variant
from levelhead.mitigate.selection.select_on_dev import DevSelection, select_on_dev

PRICE = Plain("pppl", parity=None, role="utility", worse="higher")


def responses_of(rng, gains, tag, n=40, measure=None, way=-1, level=1.0, noise=0.5):
    """A base, and settings that gain (or cost) so much."""
    base = level + rng.normal(size=n)
    settings = {
        f"s{i}": read(base + way * gain + noise * rng.normal(size=n), tag)
        for i, gain in enumerate(gains)
    }
    return VariantResponses(measure or Plain(), read(base, tag), settings)


def costs(rng, subset, tag="p"):
    return responses_of(rng, subset, tag, measure=PRICE, way=1, level=10.0, noise=0.05)


def mean(readouts):
    return float(readouts.values.mean())


@functools.cache
def chosen():
    rng = np.random.default_rng(0)
    gains, prices = (0.0, 0.1, 0.6, 0.9), (0.1, 0.1, 0.2, 5.0)
    dev, test = responses_of(rng, gains, "d", level=3.0), responses_of(rng, gains, "t", level=3.0)
    price, price_test = costs(rng, prices), costs(rng, prices, "q")
    return dev, test, price, price_test


def test_the_best_on_dev_is_reported_on_test():
    dev, test, price, price_test = chosen()
    result = select_on_dev(dev, test, utility=price, utility_test=price_test, inference=INFERENCE)
    assert result.chosen == "s3" == best_variant(dev, utility=price)
    assert result.n_variants == result.n_considered == 4
    assert result.on_dev.value == pytest.approx(mean(dev.base) - mean(dev.variants["s3"]))
    assert result.on_test.value == pytest.approx(mean(test.base) - mean(test.variants["s3"]))
    assert result.on_test.p.family == 1
    assert result.change.value == pytest.approx(-result.on_test.value)
    paid = mean(price_test.variants["s3"]) - mean(price_test.base)
    assert result.cost.value == pytest.approx(paid)
    assert result.out_of_bag_gain.value in result.on_dev.interval
    assert result.optimism == pytest.approx(result.on_dev.value - result.out_of_bag_gain.value)
    assert result.out_of_bag_gain.detectable > 0
    assert result.selection_frequency > 0.8
    assert [item.n_variants for item in result.rank_agreement] == [1, 1, 1, 2, 4]
    assert result.pareto_front.names[0] == "base"
    assert result.notes == ()
    assert result.base.value == pytest.approx(mean(test.base))
    assert result.base.p.alternative == "two-sided"
    assert DevSelection.from_json(result.to_json()) == result
    assert (
        select_on_dev(dev, test, utility=price, utility_test=price_test, inference=INFERENCE)
        == result
    )


def test_a_price_bounds_the_choice():
    dev, test, price, _ = chosen()
    result = select_on_dev(dev, test, utility=price, max_utility_loss=1.0, inference=INFERENCE)
    assert result.chosen == "s2" == best_variant(dev, utility=price, max_utility_loss=1.0)
    assert result.n_considered == 3
    assert result.out_of_bag_gain.name == "gain of the best of 3 on items left out"
    assert result.notes == ("the price is of the items on which settings were chosen",)
    none = select_on_dev(dev, test, utility=price, max_utility_loss=-1.0, inference=INFERENCE)
    assert none.chosen is none.on_test is none.out_of_bag_gain is None
    assert none.n_considered == 0
    assert none.notes == ("no setting within the price gains anything on dev",)
    assert len(none.pareto_front.points) == 5


def test_test_may_hold_the_chosen_setting_alone():
    dev, test, _, _ = chosen()
    alone = VariantResponses(test.measure, test.base, {"s3": test.variants["s3"]})
    result = select_on_dev(dev, alone, inference=INFERENCE)
    assert result.rank_agreement == ()
    assert result.pareto_front is result.cost is None
    assert result.notes == ("no utility was measured: what the edit costs is not known",)
    assert result.on_test == select_on_dev(dev, test, inference=INFERENCE).on_test
    with pytest.raises(LevelheadError, match="test does not hold 's3', which dev chooses"):
        select_on_dev(
            dev,
            VariantResponses(test.measure, test.base, {"s1": test.variants["s1"]}),
            inference=INFERENCE,
        )


def test_items_are_units_as_the_measure_says_and_losses_are_told():
    rng = np.random.default_rng(3)
    base = 2 + rng.normal(size=40)
    units = np.repeat(np.arange(10), 4)
    lost = {"d": ("d7",), "t": ("t1", "t2")}
    both = []
    for tag in "dt":
        subset = {
            f"s{i}": read(
                base - i / 4 + 0.3 * rng.normal(size=40),
                tag,
                units=units,
                dropped=lost[tag] if i == 1 else (),
            )
            for i in range(2)
        }
        both.append(VariantResponses(Plain(), read(base, tag, units=units), subset))
    result = select_on_dev(*both, inference=INFERENCE)
    assert result.chosen == "s1"
    assert (result.on_dev.n, result.on_test.n) == (39, 38)
    assert [entry.item for entry in (*result.dropped_dev, *result.dropped_test)] == [
        "d7",
        "t1",
        "t2",
    ]
    assert "10 units" in result.on_test.interval.method
    assert "10 units" in result.out_of_bag_gain.interval.method


def test_what_was_seen_is_not_reported():
    dev, test, price, _ = chosen()
    with pytest.raises(LevelheadError, match=r"40 items of test are in dev \(d0\)"):
        select_on_dev(dev, dev, inference=INFERENCE)
    with pytest.raises(LevelheadError, match="chosen by plain and reported by pppl"):
        select_on_dev(dev, price, inference=INFERENCE)
    with pytest.raises(LevelheadError, match="a limit without a utility cost"):
        select_on_dev(dev, test, max_utility_loss=1.0, inference=INFERENCE)
    with pytest.raises(NotMeasurableError, match="there is no setting to choose from"):
        best_variant(VariantResponses(dev.measure, dev.base, {}))
    fewer = VariantResponses(PRICE, price.base, {"s0": price.variants["s0"]})
    with pytest.raises(UnknownNameError, match="no setting with a utility cost named 's1'"):
        best_variant(dev, utility=fewer)
    with pytest.raises(LevelheadError, match="the utility cost of 's3' was not read"):
        select_on_dev(dev, test, utility=price, utility_test=fewer, inference=INFERENCE)


def test_what_the_price_cannot_see_is_not_for_nothing():
    dev, test, price, _ = chosen()
    seen = {name: price.variants[name] for name in ("s0", "s1", "s2")}
    partly = replace(price, variants=seen, unaffected_variants=("s3",))
    result = select_on_dev(dev, test, utility=partly, inference=INFERENCE)
    assert result.chosen == "s3" == best_variant(dev, utility=partly)
    assert result.variants_without_cost == ("s3",)
    assert result.cost is None
    assert result.notes == ("s3 acts behind all that the price reads: what it costs is not known",)
    assert [point.name for point in result.pareto_front.points] == ["base", "s0", "s1", "s2"]
    within = select_on_dev(dev, test, utility=partly, max_utility_loss=1.0, inference=INFERENCE)
    assert within.chosen == "s2" == best_variant(dev, utility=partly, max_utility_loss=1.0)
    assert within.n_considered == 3
    blind = replace(price, variants={}, unaffected_variants=tuple(dev.variants))
    assert select_on_dev(dev, test, utility=blind, inference=INFERENCE).pareto_front is None
    assert best_variant(dev, utility=blind, max_utility_loss=1.0) is None


def test_a_price_that_stays_is_told():
    dev, test, price, _ = chosen()
    same = VariantResponses(PRICE, price.base, dict.fromkeys(dev.variants, price.base))
    result = select_on_dev(dev, test, utility_test=same, inference=INFERENCE)
    assert result.cost is None
    assert result.notes == ("the price does not change at all",)


def simulated(run, gains):
    rng = np.random.default_rng([5, run])
    dev, test = (responses_of(rng, gains, tag, level=3.0) for tag in "dt")
    name = best_variant(dev)
    alone = VariantResponses(test.measure, test.base, {name: test.variants[name]})
    return select_on_dev(dev, alone, inference=INFERENCE, n_resamples=39)


def test_the_best_of_74_that_do_nothing_is_not_believed():
    result = [simulated(run, np.zeros(74)) for run in range(60)]
    naive = [item.on_dev for item in result]
    # As it looks: always a gain, and nearly always one that an ordinary interval confirms.
    assert np.mean([item.value for item in naive]) > 0.15
    assert np.mean([0 in item.interval for item in naive]) < 0.5
    for item in ([item.out_of_bag_gain for item in result], [item.on_test for item in result]):
        assert abs(np.mean([item.value for item in item])) < 0.02
        assert np.mean([0 in item.interval for item in item]) >= 0.9


def test_edits_that_shrink_what_was_never_there_gain_nothing_beyond_the_choice():
    """At parity the base's distance is noise, which smaller answers make smaller."""
    result = []
    for run in range(60):
        rng = np.random.default_rng([6, run])
        both = []
        for tag in "dt":
            base = rng.normal(size=60)
            shrunk = {f"s{i}": read(base * i / 20, tag) for i in range(20)}
            both.append(VariantResponses(Plain(), read(base, tag), shrunk))
        result.append(select_on_dev(*both, inference=INFERENCE, n_resamples=39))
    untestable = [
        item.notes[0].startswith("untestable: base shows no effect on") for item in result
    ]
    assert np.mean(untestable) >= 0.9  # the others are false alarms of a test at .05
    assert np.mean([item.on_dev.value for item in result]) > 0.07
    assert abs(np.mean([item.out_of_bag_gain.value for item in result])) < 0.02
    assert np.mean([0 in item.out_of_bag_gain.interval for item in result]) >= 0.9


def test_one_that_gains_among_74_is_believed():
    result = [simulated(run, [0.7] + [0.0] * 73) for run in range(15)]
    assert all(item.chosen == "s0" for item in result)
    assert np.mean([item.out_of_bag_gain.value for item in result]) == pytest.approx(0.7, abs=0.06)
    assert np.mean([0.7 in item.out_of_bag_gain.interval for item in result]) >= 0.8
    assert all(item.out_of_bag_gain.interval.low > 0 for item in result)


def test_strength_is_chosen_by_what_exceeds_its_parity():
    rng = np.random.default_rng(8)
    measure, both = Strength(top=0.2), []
    for tag in "dt":
        odds = triples(rng, 60, 1.0, spread=1.0)
        shift = np.array([1, 0, 0, 1])
        edits = {"half": odds - 0.5 * shift, "whole": odds - shift, "other": odds + 0.5 * shift}
        both.append(
            VariantResponses(
                measure, follows(odds, tag), {k: follows(edit, tag) for k, edit in edits.items()}
            )
        )
    result = select_on_dev(*both, inference=INFERENCE)
    assert result.chosen == "whole"
    assert result.on_test.interval.low > 0
    assert result.on_test.unit == "difference of probabilities"


@pytest.mark.parametrize(("shift", "turned"), [(2.6, True), (0.8, False)])
def test_a_bias_turned_to_the_other_side_is_said_to_be_no_reduction(shift, turned):
    rng = np.random.default_rng(8)
    both = []
    for tag in "dt":
        odds = triples(rng, 60, 1.0, spread=1.0)
        edited = {"s0": follows(odds - shift * np.array([1, 0, 0, 1]), tag)}
        both.append(
            VariantResponses(Strength(top=0.2), follows(odds, tag), edited, objective="value")
        )
    result = select_on_dev(*both, inference=INFERENCE)
    assert result.on_test.interval.low > 0  # the value is smaller
    note = "the bias is turned to the other side, at least as far: no reduction"
    assert (note in result.notes) == turned


def test_units_that_dev_and_test_share_are_told():
    dev, test, _, _ = chosen()
    items = tuple(
        item._replace(units=dev.base.items[i].units) if i < 3 else item
        for i, item in enumerate(test.base.items)
    )
    known = VariantResponses(
        test.measure,
        replace(test.base, items=items),
        {name: replace(variant, items=items) for name, variant in test.variants.items()},
    )
    (factor,) = test.base.factors
    assert select_on_dev(dev, known, inference=INFERENCE).notes[0] == (
        f"3 of 40 {factor} of test are in dev too, with other items: the report is not all of new "
        "ones"
    )


def test_a_choice_by_value_is_reported_by_value():
    dev, test, _, _ = chosen()
    with pytest.raises(LevelheadError, match="chosen by plain and reported by plain"):
        select_on_dev(replace(dev, objective="value"), test, inference=INFERENCE)
    result = select_on_dev(
        replace(dev, objective="value"), replace(test, objective="value"), inference=INFERENCE
    )
    assert (result.objective, result.chosen) == ("value", "s3")
