"""Candidates that say nothing do not stop the others, and are told."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from simulated import INFERENCE, Plain, read

from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.mitigate.evaluation.variant_responses import VariantResponses
from levelhead.mitigate.selection.candidate_evaluation import (
    CandidateEvaluator,
    CandidateResponses,
    UtilityLimit,
)
from levelhead.mitigate.selection.candidates import EditCandidate, EditCandidates

GAIN = Plain(parity=None)
PRICE = Plain("snli", parity=None, role="utility", worse="lower")
RULER = ControlledDifference(Counterfactual((), labels=("a", "b")))
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
        CandidateResponses(VariantResponses(GAIN, read(base), settings), without),
        CandidateResponses(
            VariantResponses(PRICE, read(right), prices | {"broken": read(right)}), {}
        ),
    )


def evaluator(**options):
    return CandidateEvaluator(INFERENCE, UtilityLimit(worse="lower", **options))


def test_every_candidate_has_its_row():
    gained, paid = both()
    tried = EditCandidates(tuple(EditCandidate(name, "mask", "a head", ()) for name in NAMES))
    rows, dropped = evaluator().evaluate_on_dev(tried, gained, paid)
    subset = {row.name: row for row in rows}
    assert tuple(subset) == NAMES
    assert subset["good"].exclusion_reason == ""
    assert subset["good"].gain.value == pytest.approx(1, abs=0.05)
    assert 0 < subset["good"].lower_bound < subset["good"].gain.interval.low
    assert subset["good"].loss.value == 0
    most = evaluator().allowed_loss(paid.responses)
    assert most == pytest.approx(0.05 * float(paid.responses.base.values.mean()))
    high = subset["dear"].loss.interval.high
    assert subset["dear"].exclusion_reason == f"may cost {high:.4g}, and the limit is {most:.4g}"
    assert subset["idle"].exclusion_reason == "changes nothing"
    assert subset["idle"].gain is subset["idle"].lower_bound is None
    assert subset["broken"].exclusion_reason == "not measurable: all answers are equal"
    assert subset["behind"].exclusion_reason == "not measurable: acts behind all that is read"
    assert [(what, [entry.item for entry in lost]) for what, lost in dropped] == [
        ("dev", ["i3"]),
        ("price on dev", []),
    ]


def test_where_nothing_changes_no_gain_is_made_up():
    gained, paid = both()
    idle = CandidateResponses(
        VariantResponses(GAIN, gained.responses.base, {"idle": gained.responses.base}), {}
    )
    tried = EditCandidates((EditCandidate("idle", "mask", "a head", ()),))
    rows, _ = evaluator().evaluate_on_dev(tried, idle, paid)
    assert rows[0].exclusion_reason == "changes nothing"
    none = EditCandidates((EditCandidate("broken", "mask", "a head", ()),))
    rows, dropped = evaluator().evaluate_on_dev(
        none, CandidateResponses(gained.responses, gained.unmeasurable), paid
    )
    assert rows[0].gain is None
    assert [len(lost) for _, lost in dropped] == [1, 0]


def test_on_test_what_cannot_be_read_confirms_nothing():
    gained, paid = both(1)
    result, lost = evaluator().evaluate_on_test("good", gained, paid)
    assert result.is_gain_confirmed
    assert result.is_utility_kept
    assert result.gain.p.family == 1
    assert [what for what, _ in lost] == ["test", "price on test"]
    dear, _ = evaluator().evaluate_on_test("dear", gained, paid)
    assert (dear.is_gain_confirmed, dear.is_utility_kept) == (True, False)
    broken, _ = evaluator().evaluate_on_test("broken", gained, paid)
    assert (broken.gain, broken.is_gain_confirmed, broken.is_utility_kept) == (None, False, True)
    idle, _ = evaluator().evaluate_on_test("idle", gained, paid)
    assert (idle.gain, idle.is_gain_confirmed) == (None, False)
    gone, _ = evaluator().evaluate_on_test("behind", gained, paid)
    assert (gone.loss, gone.is_utility_kept) == (None, False)


def test_what_may_be_paid_is_a_share_or_so_many_points():
    _, paid = both()
    assert evaluator(max_utility_loss=0.1).allowed_loss(paid.responses) == 0.1
    assert evaluator(max_utility_loss=0.0).allowed_loss(paid.responses) == 0
    assert evaluator(min_utility_kept=1.0).allowed_loss(paid.responses) == 0


def test_answers_that_are_no_numbers_are_told(monkeypatch):
    gained, _ = both()
    nothing = {"broken": read(torch.full((300,), math.nan))}
    broken = VariantResponses(GAIN, gained.responses.base, nothing, unaffected_variants=("behind",))
    monkeypatch.setattr(
        "levelhead.mitigate.selection.candidate_evaluation.read_variant_responses",
        lambda *a, **k: broken,
    )
    candidates = evaluator().read_candidates(None, GAIN, {}, {})
    assert dict(candidates.responses.variants) == {}
    assert candidates.unmeasurable == {
        "broken": "300 of 300 responses are not finite numbers",
        "behind": "acts behind all that is read",
    }


def decided(rng, twin, placebo, n=400):
    """A classifier of two classes whose decision flips so often with twins and placebo twins."""
    first = rng.random(n) < 0.5
    flips = [np.zeros(n, bool), rng.random(n) < twin, rng.random(n) < placebo]
    responses = np.stack([first ^ flip for flip in flips], axis=1)
    p = np.where(responses[..., None], [0.9, 0.1], [0.1, 0.9])
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
    gained = CandidateResponses(VariantResponses(RULER, base, {"one": edited}), {})
    paid = CandidateResponses(VariantResponses(PRICE, right, {"one": right}), {})
    tried = EditCandidates((EditCandidate("one", "mask", "a head", ()),))
    (row,), _ = evaluator().evaluate_on_dev(tried, gained, paid)
    assert row.gain.interval.low > 0  # by the difference alone both look like gains
    assert (row.exclusion_reason == "") == gains
    assert evaluator().evaluate_on_test("one", gained, paid)[0].is_gain_confirmed == gains


def test_flips_with_the_group_that_stay_are_no_gain():
    rng = np.random.default_rng(4)
    base, other = decided(rng, 0.3, 0.05), decided(rng, 0.3, 0.2)
    same = base.values.clone()
    changed = rng.random(400) < 0.2
    same[changed, 2] = base.values[changed, 2].flip(-1)  # placebo twins alone
    edited = replace(base, values=same)
    gained = CandidateResponses(VariantResponses(RULER, base, {"one": edited, "two": other}), {})
    right = read((rng.random(400) < 0.8).astype(float))
    paid = CandidateResponses(
        VariantResponses(PRICE, right, dict.fromkeys(("one", "two"), right)), {}
    )
    tried = EditCandidates(
        tuple(EditCandidate(name, "mask", "a head", ()) for name in ("one", "two"))
    )
    rows, _ = evaluator().evaluate_on_dev(tried, gained, paid)
    assert rows[0].gain.interval.low > 0
    assert rows[0].lower_bound is None
    assert rows[0].exclusion_reason == "no gain shown: what the bias is made of does not change"
    assert not evaluator().evaluate_on_test("one", gained, paid)[0].is_gain_confirmed
