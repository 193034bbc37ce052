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


def said(rng, gains, tag, n=40, ruler=None, way=-1, level=1.0, noise=0.5):
    """A base, and settings that gain (or cost) so much."""
    base = level + rng.normal(size=n)
    settings = {
        f"s{i}": read(base + way * own + noise * rng.normal(size=n), tag)
        for i, own in enumerate(gains)
    }
    return VariantResponses(ruler or Plain(), read(base, tag), settings)


def costs(rng, own, tag="p"):
    return said(rng, own, tag, ruler=PRICE, way=1, level=10.0, noise=0.05)


def mean(readouts):
    return float(readouts.values.mean())


@functools.cache
def chosen():
    rng = np.random.default_rng(0)
    gains, prices = (0.0, 0.1, 0.6, 0.9), (0.1, 0.1, 0.2, 5.0)
    dev, test = said(rng, gains, "d", level=3.0), said(rng, gains, "t", level=3.0)
    price, price_test = costs(rng, prices), costs(rng, prices, "q")
    return dev, test, price, price_test


def test_the_best_on_dev_is_reported_on_test():
    dev, test, price, price_test = chosen()
    found = select_on_dev(dev, test, utility=price, utility_test=price_test, inference=INFERENCE)
    assert found.chosen == "s3" == best_variant(dev, utility=price)
    assert found.n_variants == found.n_considered == 4
    assert found.on_dev.value == pytest.approx(mean(dev.base) - mean(dev.variants["s3"]))
    assert found.on_test.value == pytest.approx(mean(test.base) - mean(test.variants["s3"]))
    assert found.on_test.p.family == 1
    assert found.change.value == pytest.approx(-found.on_test.value)
    paid = mean(price_test.variants["s3"]) - mean(price_test.base)
    assert found.cost.value == pytest.approx(paid)
    assert found.out_of_bag_gain.value in found.on_dev.interval
    assert found.optimism == pytest.approx(found.on_dev.value - found.out_of_bag_gain.value)
    assert found.out_of_bag_gain.detectable > 0
    assert found.selection_frequency > 0.8
    assert [own.n_variants for own in found.rank_agreement] == [1, 1, 1, 2, 4]
    assert found.pareto_front.names[0] == "base"
    assert found.notes == ()
    assert found.base.value == pytest.approx(mean(test.base))
    assert found.base.p.alternative == "two-sided"
    assert DevSelection.from_json(found.to_json()) == found
    assert (
        select_on_dev(dev, test, utility=price, utility_test=price_test, inference=INFERENCE)
        == found
    )


def test_a_price_bounds_the_choice():
    dev, test, price, _ = chosen()
    found = select_on_dev(dev, test, utility=price, max_utility_loss=1.0, inference=INFERENCE)
    assert found.chosen == "s2" == best_variant(dev, utility=price, max_utility_loss=1.0)
    assert found.n_considered == 3
    assert found.out_of_bag_gain.name == "gain of the best of 3 on items left out"
    assert found.notes == ("the price is of the items on which settings were chosen",)
    none = select_on_dev(dev, test, utility=price, max_utility_loss=-1.0, inference=INFERENCE)
    assert none.chosen is none.on_test is none.out_of_bag_gain is None
    assert none.n_considered == 0
    assert none.notes == ("no setting within the price gains anything on dev",)
    assert len(none.pareto_front.points) == 5


def test_test_may_hold_the_chosen_setting_alone():
    dev, test, _, _ = chosen()
    alone = VariantResponses(test.measure, test.base, {"s3": test.variants["s3"]})
    found = select_on_dev(dev, alone, inference=INFERENCE)
    assert found.rank_agreement == ()
    assert found.pareto_front is found.cost is None
    assert found.notes == ("no utility was measured: what the edit costs is not known",)
    assert found.on_test == select_on_dev(dev, test, inference=INFERENCE).on_test
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
        own = {
            f"s{i}": read(
                base - i / 4 + 0.3 * rng.normal(size=40),
                tag,
                units=units,
                dropped=lost[tag] if i == 1 else (),
            )
            for i in range(2)
        }
        both.append(VariantResponses(Plain(), read(base, tag, units=units), own))
    found = select_on_dev(*both, inference=INFERENCE)
    assert found.chosen == "s1"
    assert (found.on_dev.n, found.on_test.n) == (39, 38)
    assert [own.item for own in (*found.dropped_dev, *found.dropped_test)] == ["d7", "t1", "t2"]
    assert "10 units" in found.on_test.interval.method
    assert "10 units" in found.out_of_bag_gain.interval.method


def test_what_was_seen_is_not_reported():
    dev, test, price, _ = chosen()
    with pytest.raises(LevelheadError, match=r"40 items of test are in dev \(d0\)"):
        select_on_dev(dev, dev, inference=INFERENCE)
    with pytest.raises(LevelheadError, match="chosen by plain and reported by pppl"):
        select_on_dev(dev, price, inference=INFERENCE)
    with pytest.raises(LevelheadError, match="a limit without a price"):
        select_on_dev(dev, test, max_utility_loss=1.0, inference=INFERENCE)
    with pytest.raises(NotMeasurableError, match="there is no setting to choose from"):
        best_variant(VariantResponses(dev.measure, dev.base, {}))
    fewer = VariantResponses(PRICE, price.base, {"s0": price.variants["s0"]})
    with pytest.raises(UnknownNameError, match="no setting with a price named 's1'"):
        best_variant(dev, utility=fewer)
    with pytest.raises(LevelheadError, match="the price of 's3' was not read"):
        select_on_dev(dev, test, utility=price, utility_test=fewer, inference=INFERENCE)


def test_what_the_price_cannot_see_is_not_for_nothing():
    dev, test, price, _ = chosen()
    seen = {name: price.variants[name] for name in ("s0", "s1", "s2")}
    partly = replace(price, variants=seen, unaffected_variants=("s3",))
    found = select_on_dev(dev, test, utility=partly, inference=INFERENCE)
    assert found.chosen == "s3" == best_variant(dev, utility=partly)
    assert found.variants_without_cost == ("s3",)
    assert found.cost is None
    assert found.notes == ("s3 acts behind all that the price reads: what it costs is not known",)
    assert [point.name for point in found.pareto_front.points] == ["base", "s0", "s1", "s2"]
    within = select_on_dev(dev, test, utility=partly, max_utility_loss=1.0, inference=INFERENCE)
    assert within.chosen == "s2" == best_variant(dev, utility=partly, max_utility_loss=1.0)
    assert within.n_considered == 3
    blind = replace(price, variants={}, unaffected_variants=tuple(dev.variants))
    assert select_on_dev(dev, test, utility=blind, inference=INFERENCE).pareto_front is None
    assert best_variant(dev, utility=blind, max_utility_loss=1.0) is None


def test_a_price_that_stays_is_told():
    dev, test, price, _ = chosen()
    same = VariantResponses(PRICE, price.base, dict.fromkeys(dev.variants, price.base))
    found = select_on_dev(dev, test, utility_test=same, inference=INFERENCE)
    assert found.cost is None
    assert found.notes == ("the price does not change at all",)


def simulated(run, gains):
    rng = np.random.default_rng([5, run])
    dev, test = (said(rng, gains, tag, level=3.0) for tag in "dt")
    name = best_variant(dev)
    alone = VariantResponses(test.measure, test.base, {name: test.variants[name]})
    return select_on_dev(dev, alone, inference=INFERENCE, n_resamples=39)


def test_the_best_of_74_that_do_nothing_is_not_believed():
    found = [simulated(run, np.zeros(74)) for run in range(60)]
    naive = [own.on_dev for own in found]
    # As it looks: always a gain, and nearly always one that an ordinary interval confirms.
    assert np.mean([own.value for own in naive]) > 0.15
    assert np.mean([0 in own.interval for own in naive]) < 0.5
    for told in ([own.out_of_bag_gain for own in found], [own.on_test for own in found]):
        assert abs(np.mean([own.value for own in told])) < 0.02
        assert np.mean([0 in own.interval for own in told]) >= 0.9


def test_edits_that_shrink_what_was_never_there_gain_nothing_beyond_the_choice():
    """At parity the base's distance is noise, which smaller answers make smaller."""
    found = []
    for run in range(60):
        rng = np.random.default_rng([6, run])
        both = []
        for tag in "dt":
            base = rng.normal(size=60)
            shrunk = {f"s{i}": read(base * i / 20, tag) for i in range(20)}
            both.append(VariantResponses(Plain(), read(base, tag), shrunk))
        found.append(select_on_dev(*both, inference=INFERENCE, n_resamples=39))
    untestable = [own.notes[0].startswith("untestable: base shows no effect on") for own in found]
    assert np.mean(untestable) >= 0.9  # the others are false alarms of a test at .05
    assert np.mean([own.on_dev.value for own in found]) > 0.07
    assert abs(np.mean([own.out_of_bag_gain.value for own in found])) < 0.02
    assert np.mean([0 in own.out_of_bag_gain.interval for own in found]) >= 0.9


def test_one_that_gains_among_74_is_believed():
    found = [simulated(run, [0.7] + [0.0] * 73) for run in range(15)]
    assert all(own.chosen == "s0" for own in found)
    assert np.mean([own.out_of_bag_gain.value for own in found]) == pytest.approx(0.7, abs=0.06)
    assert np.mean([0.7 in own.out_of_bag_gain.interval for own in found]) >= 0.8
    assert all(own.out_of_bag_gain.interval.low > 0 for own in found)


def test_strength_is_chosen_by_what_exceeds_its_parity():
    rng = np.random.default_rng(8)
    ruler, both = Strength(top=0.2), []
    for tag in "dt":
        odds = triples(rng, 60, 1.0, spread=1.0)
        shift = np.array([1, 0, 0, 1])
        edits = {"half": odds - 0.5 * shift, "whole": odds - shift, "other": odds + 0.5 * shift}
        both.append(
            VariantResponses(
                ruler, follows(odds, tag), {k: follows(own, tag) for k, own in edits.items()}
            )
        )
    found = select_on_dev(*both, inference=INFERENCE)
    assert found.chosen == "whole"
    assert found.on_test.interval.low > 0
    assert found.on_test.unit == "difference of probabilities"


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
    found = select_on_dev(*both, inference=INFERENCE)
    assert found.on_test.interval.low > 0  # the value is smaller
    note = "the bias is turned to the other side, at least as far: no reduction"
    assert (note in found.notes) == turned


def test_units_that_dev_and_test_share_are_told():
    dev, test, _, _ = chosen()
    items = tuple(
        own._replace(units=dev.base.items[i].units) if i < 3 else own
        for i, own in enumerate(test.base.items)
    )
    known = VariantResponses(
        test.measure,
        replace(test.base, items=items),
        {name: replace(own, items=items) for name, own in test.variants.items()},
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
    found = select_on_dev(
        replace(dev, objective="value"), replace(test, objective="value"), inference=INFERENCE
    )
    assert (found.objective, found.chosen) == ("value", "s3")
