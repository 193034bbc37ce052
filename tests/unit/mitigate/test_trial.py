"""Candidates that say nothing do not stop the others, and are told."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from simulated import INFERENCE, Plain, read

from levelhead.measures.classification.controlled_difference import Excess
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.mitigate.evaluation.variant_responses import Said
from levelhead.mitigate.selection.candidates import Candidate, Candidates
from levelhead.mitigate.selection.trial import Told, Trial

GAIN = Plain(parity=None)
PRICE = Plain("snli", parity=None, role="utility", worse="lower")
RULER = Excess(Counterfactual((), labels=("a", "b")))
NAMES = ("good", "dear", "idle", "broken", "behind")


def both(seed=0, n=300):
    """One that gains for nothing, one that costs, one that does nothing, one without answers."""
    rng = np.random.default_rng(seed)
    base = 5 + rng.normal(size=n)
    settings = {
        "good": read(base - 1 + 0.1 * rng.normal(size=n)),
        "dear": read(base - 2 + 0.1 * rng.normal(size=n)),
        "idle": read(base, dropped=("i3",)),
    }
    right = (rng.random(n) < 0.8).astype(float)
    worse = np.where(rng.random(n) < 0.3, 0.0, right)
    prices = {"good": read(right), "dear": read(worse), "idle": read(right)}
    without = {"broken": "all answers are equal", "behind": "acts behind all that is read"}
    return (
        Told(Said(GAIN, read(base), settings), without),
        Told(Said(PRICE, read(right), prices | {"broken": read(right)}), {}),
    )


def trial(**options):
    return Trial(INFERENCE, "lower", **({"keep": 0.95, "most": None} | options))


def test_every_candidate_has_its_row():
    gained, paid = both()
    tried = Candidates(tuple(Candidate(name, "mask", "a head", ()) for name in NAMES))
    rows, dropped = trial().on_dev(tried, gained, paid)
    own = {row.name: row for row in rows}
    assert tuple(own) == NAMES
    assert own["good"].why_not == ""
    assert own["good"].gain.value == pytest.approx(1, abs=0.05)
    assert 0 < own["good"].low < own["good"].gain.interval.low
    assert own["good"].loss.value == 0
    most = trial().allowed(paid.said)
    assert most == pytest.approx(0.05 * float(paid.said.base.values.mean()))
    high = own["dear"].loss.interval.high
    assert own["dear"].why_not == f"may cost {high:.4g}, and {most:.4g} may be paid"
    assert own["idle"].why_not == "changes nothing"
    assert own["idle"].gain is own["idle"].low is None
    assert own["broken"].why_not == "not measurable: all answers are equal"
    assert own["behind"].why_not == "not measurable: acts behind all that is read"
    assert [(what, [one.item for one in lost]) for what, lost in dropped] == [
        ("dev", ["i3"]),
        ("price on dev", []),
    ]


def test_where_nothing_changes_no_gain_is_made_up():
    gained, paid = both()
    idle = Told(Said(GAIN, gained.said.base, {"idle": gained.said.base}), {})
    tried = Candidates((Candidate("idle", "mask", "a head", ()),))
    rows, _ = trial().on_dev(tried, idle, paid)
    assert rows[0].why_not == "changes nothing"
    none = Candidates((Candidate("broken", "mask", "a head", ()),))
    rows, dropped = trial().on_dev(none, Told(gained.said, gained.without), paid)
    assert rows[0].gain is None
    assert [len(lost) for _, lost in dropped] == [1, 0]


def test_on_test_what_cannot_be_read_confirms_nothing():
    gained, paid = both(1)
    found, lost = trial().on_test("good", gained, paid)
    assert found.gains
    assert found.keeps
    assert found.gain.p.family == 1
    assert [what for what, _ in lost] == ["test", "price on test"]
    dear, _ = trial().on_test("dear", gained, paid)
    assert (dear.gains, dear.keeps) == (True, False)
    broken, _ = trial().on_test("broken", gained, paid)
    assert (broken.gain, broken.gains, broken.keeps) == (None, False, True)
    idle, _ = trial().on_test("idle", gained, paid)
    assert (idle.gain, idle.gains) == (None, False)
    gone, _ = trial().on_test("behind", gained, paid)
    assert (gone.loss, gone.keeps) == (None, False)


def test_what_may_be_paid_is_a_share_or_so_many_points():
    _, paid = both()
    assert trial(keep=None, most=0.1).allowed(paid.said) == 0.1
    assert trial(keep=None, most=0.0).allowed(paid.said) == 0
    assert trial(keep=1.0).allowed(paid.said) == 0


def test_answers_that_are_no_numbers_are_told(monkeypatch):
    gained, _ = both()
    nothing = {"broken": read(torch.full((300,), math.nan))}
    broken = Said(GAIN, gained.said.base, nothing, behind=("behind",))
    monkeypatch.setattr("levelhead.mitigate.selection.trial.said", lambda *a, **k: broken)
    told = trial().read(None, GAIN, {}, {})
    assert dict(told.said.settings) == {}
    assert told.without == {
        "broken": "300 of 300 readouts are not finite numbers",
        "behind": "acts behind all that is read",
    }


def decided(rng, twin, placebo, n=400):
    """A classifier of two classes whose decision flips so often with twins and placebo twins."""
    first = rng.random(n) < 0.5
    flips = [np.zeros(n, bool), rng.random(n) < twin, rng.random(n) < placebo]
    said = np.stack([first ^ own for own in flips], axis=1)
    p = np.where(said[..., None], [0.9, 0.1], [0.1, 0.9])
    return read(np.log(p))


@pytest.mark.parametrize(
    ("twin", "placebo", "gains"),
    [(0.05, 0.05, True), (0.3, 0.3, False)],
    ids=["the group counts less", "everything counts more"],
)
def test_a_difference_that_shrinks_because_its_control_grows_is_no_gain(twin, placebo, gains):
    rng = np.random.default_rng(3)
    base, edited = decided(rng, 0.3, 0.05), decided(rng, twin, placebo)
    right = read((rng.random(400) < 0.8).astype(float))
    gained = Told(Said(RULER, base, {"one": edited}), {})
    paid = Told(Said(PRICE, right, {"one": right}), {})
    tried = Candidates((Candidate("one", "mask", "a head", ()),))
    (row,), _ = trial().on_dev(tried, gained, paid)
    assert row.gain.interval.low > 0  # by the difference alone both look like gains
    assert (row.why_not == "") == gains
    assert trial().on_test("one", gained, paid)[0].gains == gains


def test_flips_with_the_group_that_stay_are_no_gain():
    rng = np.random.default_rng(4)
    base, other = decided(rng, 0.3, 0.05), decided(rng, 0.3, 0.2)
    same = base.values.clone()
    changed = rng.random(400) < 0.2
    same[changed, 2] = base.values[changed, 2].flip(-1)  # placebo twins alone
    edited = replace(base, values=same)
    gained = Told(Said(RULER, base, {"one": edited, "two": other}), {})
    right = read((rng.random(400) < 0.8).astype(float))
    paid = Told(Said(PRICE, right, dict.fromkeys(("one", "two"), right)), {})
    tried = Candidates(tuple(Candidate(name, "mask", "a head", ()) for name in ("one", "two")))
    rows, _ = trial().on_dev(tried, gained, paid)
    assert rows[0].gain.interval.low > 0
    assert rows[0].low is None
    assert rows[0].why_not == "no gain shown: what the bias is made of does not change"
    assert not trial().on_test("one", gained, paid)[0].gains
