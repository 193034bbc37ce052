"""Claims about settings: the paper's own table, and values whose differences are known."""

import numpy as np
import pytest
import torch
from simulated import INFERENCE, Plain, read

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.mitigate.controls.placebo_test import estimate_base_effect
from levelhead.mitigate.evaluation.gain import redrawn
from levelhead.mitigate.projection.config_grid import grid
from levelhead.replication.dawkins2024.claims import CLAIMS, Findings, column_of, findings
from levelhead.stats.designs import groups
from levelhead.study.table import rows

NAMES = [one.name for one in grid()]


def found(values, names=None, noise=0.0, base=None):
    """A base of 0 and settings of these values, each of 30 units that spread."""
    rng = np.random.default_rng(0)
    units = rng.normal(size=30)
    rows = [read(units)]
    rows += [read(units + own + noise * rng.normal(size=30)) for own in values]
    ruler = Plain()
    head = ruler.headline
    own = redrawn(ruler, rows, head.over, aspect=head, inference=INFERENCE)
    told = {"measure": "plain", "better": "lower", "unit": "points"}
    return findings(own, names or NAMES, base=base, **told)


def test_pairs_of_settings_are_as_many_as_the_paper_counts():
    values = [0.01 * i for i in range(74)]
    told = {(one.claim, one.level): one.pairs for one in found(values, noise=0.1).claims}
    assert told[("weighting at sent", "all")] == 37
    levels = ("sent", "last", "penultimate", "penultimate+attn")
    assert [told[("weighting at sent", level)] for level in levels] == [1, 4, 16, 16]
    assert told[("one level deeper", "all")] == 8 + 32 + 32
    assert told[("attention, unless two hard dimensions at its layer", "all")] == 24
    assert told[("attention, with two hard dimensions at its layer", "all")] == 8
    assert told[("weighting of two dimensions at penultimate", "all")] == 16
    assert told[("weighting of two dimensions at last", "all")] == 2 + 8 + 8
    assert {claim for claim, _ in told} == {claim.name for claim in CLAIMS}


def test_a_planted_difference_is_found_and_another_is_not():
    # Weighting at sent takes 1 off; nothing else does anything but noise.
    values = [-1.0 if name.endswith("1") else 0.0 for name in NAMES]
    told = found(values, noise=0.5)
    weighting = told.of("weighting at sent")
    assert weighting.difference.value == pytest.approx(weighting.with_it - weighting.without)
    assert weighting.difference.value == pytest.approx(-1, abs=0.1)
    assert -1 in weighting.difference.interval
    assert (weighting.holds, weighting.better) == ("yes", 37)
    assert told.of("one level deeper").holds == "undecided"
    assert told.of("weighting at sent", "sent").spread is None
    assert Findings.from_json(told.to_json()) == told
    worse = found([-value for value in values], noise=0.5).of("weighting at sent")
    assert (worse.holds, worse.better) == ("no", 0)


@pytest.mark.parametrize(("level", "holds"), [(0.0, "untestable"), (3.0, "yes"), (-3.0, "yes")])
def test_on_a_model_without_a_bias_less_is_not_better(level, holds):
    rng = np.random.default_rng(4)
    base = estimate_base_effect(Plain(), read(level + rng.normal(size=30)), inference=INFERENCE)
    values = [-1.0 if name.endswith("1") else 0.0 for name in NAMES]
    told = found(values, noise=0.5, base=base)
    weighting = told.of("weighting at sent")
    assert weighting.holds == holds
    assert weighting.difference.value == pytest.approx(-1, abs=0.1)
    assert told.untestable.startswith("untestable: base shows no effect") == (level == 0)
    assert Findings.from_json(told.to_json()) == told
    (first, *_) = rows("findings.nsp.test", told)
    assert (first.name, first.what.startswith("untestable")) == ("base", level == 0)


def test_a_price_has_no_side_that_could_be_tested():
    price = Plain("pppl", parity=None, role="utility", worse="higher")
    assert estimate_base_effect(price, read(np.arange(9.0)), inference=INFERENCE) is None
    with pytest.raises(NotMeasurable, match="plain of the model has no spread"):
        estimate_base_effect(Plain(), read(np.ones(9)), inference=INFERENCE)


def test_a_baseline_is_passed_over_and_a_lone_setting_refused():
    told = found([1.0, 2.0, 3.0], names=["sent 0", "sent 1", "sent-debias"], noise=0.3)
    assert [(one.claim, one.level, one.pairs) for one in told.claims] == [
        ("weighting at sent", "all", 1)
    ]
    assert told.claims[0].without == pytest.approx(1, abs=0.5)
    with pytest.raises(LevelheadError, match="no two settings differ in one thing only"):
        found([1.0], names=["sent 0"])
    with pytest.raises(LevelheadError, match="no claim 'other' at all"):
        told.of("other")


def test_beyond_parity_it_is_bias_again():
    parity, none = Plain(parity=5.0).headline, Plain(parity=None).headline
    whole = groups(2).whole
    over, better = column_of(parity)
    below, above = torch.tensor([3.0, 3.0]), torch.tensor([8.0, 8.0])
    assert (float(over(below, whole)), float(over(above, whole)), better) == (2, 3, "lower")
    over, better = column_of(none)
    assert (float(over(below, whole)), better) == (3, "lower")
    assert (
        column_of(Plain("snli", parity=None, role="utility", worse="lower").headline)[1] == "higher"
    )
    assert column_of(Plain(parity=None, role="parity").headline)[1] == "higher"
    with pytest.raises(LevelheadError, match="does not say whether higher or lower is worse"):
        column_of(Plain("own", parity=None, role="utility").headline)
