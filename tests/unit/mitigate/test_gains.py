"""Gains: what counts as nearer to parity, and that all settings see the same units."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from simulated import INFERENCE, Plain, follows, read, triples

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.registry import metric_texts, parsed, utility_measures
from levelhead.mitigate.evaluation.gain import bias_of, paid_by, redrawn, shared
from levelhead.stats.designs import groups

WHOLE = groups(4).whole
VALUES = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)  # mean 3


@pytest.mark.parametrize(
    ("ruler", "distance"),
    [
        (Plain(parity=0.0), 3.0),
        (Plain(parity=5.0), 2.0),
        (Plain(parity=None), 3.0),
        (Plain(parity=None, role="parity"), -3.0),
    ],
)
def test_bias_is_the_distance_from_parity(ruler, distance):
    assert float(bias_of(ruler.headline)(VALUES, WHOLE)) == distance


def test_a_model_with_a_parity_of_its_own_is_judged_by_what_exceeds_it():
    head = Strength(top=0.25).headline
    # The largest is 6; with all twins exchanged it is -1. Parity 2.5, and 3.5 above it.
    assert float(bias_of(head)(VALUES, WHOLE)) == 3.5
    assert float(bias_of(head)(-VALUES, WHOLE)) == 3.5
    # A tail that shrinks on both sides alike is a lower value, and no gain.
    wide, narrow = torch.tensor([-8.0, 0, 0, 8.0]), torch.tensor([-2.0, 0, 0, 2.0])
    assert float(head.over(wide, WHOLE)) > float(head.over(narrow, WHOLE))
    assert float(bias_of(head)(wide, WHOLE)) == float(bias_of(head)(narrow, WHOLE)) == 0


def test_a_smaller_value_is_a_gain_if_asked_for():
    head = Strength(top=0.25).headline
    wide, narrow = torch.tensor([-8.0, 0, 0, 8.0]), torch.tensor([-2.0, 0, 0, 2.0])
    by_value = bias_of(head, "value")
    assert (float(by_value(wide, WHOLE)), float(by_value(narrow, WHOLE))) == (8, 2)
    # One parity for all: the value itself may lie beyond it.
    assert float(bias_of(Plain(parity=5.0).headline, "value")(VALUES, WHOLE)) == 2
    with pytest.raises(UnknownName, match="way of gaining"):
        bias_of(head, "lean")


def test_what_has_no_parity_is_refused():
    with pytest.raises(LevelheadError, match="cost is a price: it has no parity"):
        bias_of(Plain("cost", parity=None, role="utility", worse="lower").headline)
    dealt = replace(Plain(parity=None).headline, null="deal")
    with pytest.raises(LevelheadError, match="plain is the mean of a null"):
        bias_of(dealt)


def test_a_price_says_which_way_is_worse():
    def price(said, worse=None):
        head = Plain("cost", parity=None, role="utility", worse=said).headline
        return float(paid_by(head, worse)(VALUES, WHOLE))

    assert price("higher") == 3
    assert price("lower") == -3
    assert price("higher", "lower") == -3
    with pytest.raises(LevelheadError, match="cost does not say whether higher or lower is worse"):
        price(None)
    with pytest.raises(UnknownName, match="way of being worse"):
        price("higher", "larger")
    for bias in (Plain(), Plain(parity=None), Plain(parity=None, role="parity")):
        assert float(paid_by(bias.headline, "higher")(VALUES, WHOLE)) == 3
        with pytest.raises(LevelheadError, match="plain does not say whether higher or lower"):
            paid_by(bias.headline)


def test_every_measure_of_utility_says_which_way_is_worse():
    worse = {name: parsed(metric_texts()[name]).headline.worse for name in utility_measures()}
    lower = ("snli", "lms", "task", "accuracy", "pronoun_agreement")
    smooth = ("snli_likelihood", "lms_margin", "task_likelihood", "accuracy_likelihood")
    assert worse == dict.fromkeys(("ppl", "pppl"), "higher") | dict.fromkeys(
        (*lower, *smooth, "pronoun_agreement_margin"), "lower"
    )


def test_a_role_that_contradicts_itself_is_refused():
    with pytest.raises(LevelheadError, match="plain is of bias, and lower is said to be worse"):
        Plain(parity=None, worse="lower").aspect("plain")


def test_items_that_one_model_lacks_are_left_out_and_told():
    (one, other), dropped = shared(
        [read(np.arange(5.0), dropped=("i0",)), read(np.arange(5.0), dropped=("i3",))]
    )
    assert [item.id for item in one.items] == ["i1", "i2", "i4"]
    assert one.values.tolist() == other.values.tolist() == [1, 2, 4]
    assert [tuple(own) for own in dropped] == [
        ("i0", "an unknown word"),
        ("i3", "not read by every edited model: an unknown word"),
    ]
    with pytest.raises(NotMeasurable, match="no item could be read by every model"):
        shared([read([1.0]), read([1.0], "j")])
    turned = replace(one, items=one.items[::-1])
    with pytest.raises(LevelheadError, match="different orders"):
        shared([one, turned])


def test_units_are_redrawn_whole_and_the_same_for_all():
    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(12), 3)
    base = rng.normal(size=36)
    ruler = Plain(parity=None)
    found = redrawn(
        ruler,
        [read(own, units=units) for own in (base, base + 1, 2 * base)],
        ruler.headline.over,
        aspect=ruler.headline,
        inference=INFERENCE,
        left=True,
    )
    assert found.draws.shape == found.left.shape == (99, 3)
    # Paired: a shift stays a shift and a factor a factor in every draw, and in what it left out.
    for own in (found.draws, found.left):
        assert own[:, 1] == pytest.approx(own[:, 0] + 1)
        assert own[:, 2] == pytest.approx(2 * own[:, 0])
    # Every draw is a mean of 12 whole units; what is left out, of the others.
    means = base.reshape(12, 3).mean(axis=1)
    again = redrawn(
        ruler,
        [read(base, units=units)],
        ruler.headline.over,
        aspect=ruler.headline,
        inference=INFERENCE,
    )
    assert again.draws[:, 0] == pytest.approx(found.draws[:, 0])
    assert again.left.shape == (0, 1)
    spread = means.std() / np.sqrt(12)
    assert found.draws[:, 0].std() == pytest.approx(spread, rel=0.3)
    effects = found.effects([0], way=-1)
    assert effects.values == pytest.approx([1.0])
    assert str(effects.design) == "12 units"


def test_draws_without_a_value_are_not_made_up():
    ruler = Strength(top=0.01)
    odds = triples(np.random.default_rng(0), 60, 0.0)
    with pytest.raises(NotMeasurable, match="only 0 of 495 draws have a value"):
        redrawn(
            ruler,
            [follows(odds)],
            ruler.headline.over,
            aspect=ruler.headline,
            inference=INFERENCE,
            left=True,  # about 22 of 60 are left out: 1% of them is none
        )
    ruler = Plain()
    with pytest.raises(NotMeasurable, match="1 of 3 readouts are not finite"):
        redrawn(
            ruler,
            [read([1.0, np.nan, 2.0])],
            ruler.headline.over,
            aspect=ruler.headline,
            inference=INFERENCE,
        )


def test_rounding_is_no_effect():
    rng = np.random.default_rng(0)
    base = rng.normal(size=20)
    ruler = Plain()
    found = redrawn(
        ruler,
        [read(base), read(base * 3 / 3), read(base + 1e-3 * rng.normal(size=20))],
        bias_of(ruler.headline),
        aspect=ruler.headline,
        inference=INFERENCE,
    ).effects()
    assert found.values[0] == found.errors[0] == 0
    assert found.errors[1] > 0
