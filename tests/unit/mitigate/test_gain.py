"""Gains: what counts as nearer to parity, and that all settings see the same units."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from simulated import INFERENCE, Plain, follows, read, triples

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.registry import metric_texts, parse_measure, utility_measures
from levelhead.mitigate.evaluation.gain import (
    bias_aggregate,
    cost_aggregate,
    keep_common_items,
    resample_paired,
)
from levelhead.stats.designs import grouped_design

WHOLE = grouped_design(4).full_sample
VALUES = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)  # mean 3


@pytest.mark.parametrize(
    ("measure", "distance"),
    [
        (Plain(parity=0.0), 3.0),
        (Plain(parity=5.0), 2.0),
        (Plain(parity=None), 3.0),
        (Plain(parity=None, role="parity"), -3.0),
    ],
)
def test_bias_is_the_distance_from_parity(measure, distance):
    assert float(bias_aggregate(measure.primary_metric)(VALUES, WHOLE)) == distance


def test_a_model_with_a_parity_of_its_own_is_judged_by_what_exceeds_it():
    head = Strength(top=0.25).primary_metric
    # The largest is 6; with all twins exchanged it is -1. Parity 2.5, and 3.5 above it.
    assert float(bias_aggregate(head)(VALUES, WHOLE)) == 3.5
    assert float(bias_aggregate(head)(-VALUES, WHOLE)) == 3.5
    # A tail that shrinks on both sides alike is a lower value, and no gain.
    wide, narrow = torch.tensor([-8.0, 0, 0, 8.0]), torch.tensor([-2.0, 0, 0, 2.0])
    assert float(head.aggregate(wide, WHOLE)) > float(head.aggregate(narrow, WHOLE))
    assert (
        float(bias_aggregate(head)(wide, WHOLE)) == float(bias_aggregate(head)(narrow, WHOLE)) == 0
    )


def test_a_smaller_value_is_a_gain_if_asked_for():
    head = Strength(top=0.25).primary_metric
    wide, narrow = torch.tensor([-8.0, 0, 0, 8.0]), torch.tensor([-2.0, 0, 0, 2.0])
    by_value = bias_aggregate(head, "value")
    assert (float(by_value(wide, WHOLE)), float(by_value(narrow, WHOLE))) == (8, 2)
    # One parity for all: the value itself may lie beyond it.
    assert float(bias_aggregate(Plain(parity=5.0).primary_metric, "value")(VALUES, WHOLE)) == 2
    with pytest.raises(UnknownNameError, match="way of gaining"):
        bias_aggregate(head, "lean")


def test_what_has_no_parity_is_refused():
    with pytest.raises(LevelheadError, match="cost is a utility: it has no parity"):
        bias_aggregate(Plain("cost", parity=None, role="utility", worse="lower").primary_metric)
    permuted = replace(Plain(parity=None).primary_metric, null="permute_units")
    with pytest.raises(LevelheadError, match="plain is the mean of a null"):
        bias_aggregate(permuted)


def test_a_price_says_which_way_is_worse():
    def price(responses, worse=None):
        head = Plain("cost", parity=None, role="utility", worse=responses).primary_metric
        return float(cost_aggregate(head, worse)(VALUES, WHOLE))

    assert price("higher") == 3
    assert price("lower") == -3
    assert price("higher", "lower") == -3
    with pytest.raises(LevelheadError, match="cost does not say whether higher or lower is worse"):
        price(None)
    with pytest.raises(UnknownNameError, match="way of being worse"):
        price("higher", "larger")
    for bias in (Plain(), Plain(parity=None), Plain(parity=None, role="parity")):
        assert float(cost_aggregate(bias.primary_metric, "higher")(VALUES, WHOLE)) == 3
        with pytest.raises(LevelheadError, match="plain does not say whether higher or lower"):
            cost_aggregate(bias.primary_metric)


def test_every_measure_of_utility_says_which_way_is_worse():
    worse = {
        name: parse_measure(metric_texts()[name]).primary_metric.worse
        for name in utility_measures()
    }
    lower = ("snli", "lms", "task", "accuracy", "pronoun_agreement")
    smooth = ("snli_likelihood", "lms_margin", "task_likelihood", "accuracy_likelihood")
    decisions = (
        *("bbq_accuracy", "bbq_likelihood", "bbq_unknown", "bbq_unknown_likelihood"),
        *("winobias_accuracy", "winobias_likelihood"),
    )
    higher = ("ppl", "pppl", "unqover_attribute_error", "unqover_position_error")
    chat = ("instructions", "facts", "facts_likelihood")
    knowledge = ("definitional_gender", "definitional_gender_margin")
    names = (*lower, *smooth, "pronoun_agreement_margin", *knowledge, *decisions, *chat)
    assert worse == dict.fromkeys(higher, "higher") | dict.fromkeys(names, "lower")


def test_a_role_that_contradicts_itself_is_refused():
    with pytest.raises(
        LevelheadError, match="plain has the role bias, so lower values cannot be worse"
    ):
        Plain(parity=None, worse="lower").get_metric("plain")


def test_items_that_one_model_lacks_are_left_out_and_told():
    (single, other), dropped = keep_common_items(
        [read(np.arange(5.0), dropped=("i0",)), read(np.arange(5.0), dropped=("i3",))]
    )
    assert [item.id for item in single.items] == ["i1", "i2", "i4"]
    assert single.values.tolist() == other.values.tolist() == [1, 2, 4]
    assert [tuple(item) for item in dropped] == [
        ("i0", "an unknown word"),
        ("i3", "not read by every edited model: an unknown word"),
    ]
    with pytest.raises(NotMeasurableError, match="no item could be read by every model"):
        keep_common_items([read([1.0]), read([1.0], "j")])
    turned = replace(single, items=single.items[::-1])
    with pytest.raises(LevelheadError, match="different orders"):
        keep_common_items([single, turned])


def test_units_are_redrawn_whole_and_the_same_for_all():
    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(12), 3)
    base = rng.normal(size=36)
    measure = Plain(parity=None)
    result = resample_paired(
        measure,
        [read(item, units=units) for item in (base, base + 1, 2 * base)],
        measure.primary_metric.aggregate,
        metric=measure.primary_metric,
        inference=INFERENCE,
        out_of_bag=True,
    )
    assert result.resamples.shape == result.out_of_bag.shape == (99, 3)
    # Paired: a shift stays a shift and a factor a factor in every draw, and in what it left out.
    for item in (result.resamples, result.out_of_bag):
        assert item[:, 1] == pytest.approx(item[:, 0] + 1)
        assert item[:, 2] == pytest.approx(2 * item[:, 0])
    # Every draw is a mean of 12 whole units; what is left out, of the others.
    means = base.reshape(12, 3).mean(axis=1)
    again = resample_paired(
        measure,
        [read(base, units=units)],
        measure.primary_metric.aggregate,
        metric=measure.primary_metric,
        inference=INFERENCE,
    )
    assert again.resamples[:, 0] == pytest.approx(result.resamples[:, 0])
    assert again.out_of_bag.shape == (0, 1)
    spread = means.std() / np.sqrt(12)
    assert result.resamples[:, 0].std() == pytest.approx(spread, rel=0.3)
    effects = result.effects([0], sign=-1)
    assert effects.values == pytest.approx([1.0])
    assert str(effects.design) == "12 units"


def test_draws_without_a_value_are_not_made_up():
    measure = Strength(top=0.01)
    odds = triples(np.random.default_rng(0), 60, 0.0)
    with pytest.raises(NotMeasurableError, match="only 0 of 495 resamples have a value"):
        resample_paired(
            measure,
            [follows(odds)],
            measure.primary_metric.aggregate,
            metric=measure.primary_metric,
            inference=INFERENCE,
            out_of_bag=True,  # about 22 of 60 are left out: 1% of them is none
        )
    measure = Plain()
    with pytest.raises(NotMeasurableError, match="1 of 3 responses are not finite"):
        resample_paired(
            measure,
            [read([1.0, np.nan, 2.0])],
            measure.primary_metric.aggregate,
            metric=measure.primary_metric,
            inference=INFERENCE,
        )


def test_rounding_is_no_effect():
    rng = np.random.default_rng(0)
    base = rng.normal(size=20)
    measure = Plain()
    result = resample_paired(
        measure,
        [read(base), read(base * 3 / 3), read(base + 1e-3 * rng.normal(size=20))],
        bias_aggregate(measure.primary_metric),
        metric=measure.primary_metric,
        inference=INFERENCE,
    ).effects()
    assert result.values[0] == result.standard_errors[0] == 0
    assert result.standard_errors[1] > 0
