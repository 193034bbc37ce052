"""Judged by placebos: literal numbers, and how often chance is called mitigation."""

import numpy as np
import pytest
import torch
from metric_cases import made, model
from simulated import INFERENCE, Plain, follows, read, triples

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.controls.placebo_edits import (
    make_placebos,
    measure_variance_match,
    within_side_differences,
)
from levelhead.mitigate.controls.placebo_test import (
    PlaceboResponses,
    PlaceboTest,
    placebo_p_value,
    run_placebo_test,
)
from levelhead.models.edits.base import Projection
from levelhead.models.sites import Site


def case(gain, others, n=30):
    """A base with mean 1, an edit that gains so much, and placebos."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(len(others) + 2, n))
    noise -= noise.mean(axis=1, keepdims=True)
    base = 1 + noise[0]
    return (
        read(base),
        read(base - gain + 0.2 * noise[1]),
        [read(base - other + 0.2 * each) for other, each in zip(others, noise[2:], strict=True)],
    )


def test_a_gain_is_compared_with_those_of_placebos():
    others = [0.01 * i for i in range(-10, 29)]  # 39
    base, edited, placebos = case(0.5, others)
    result = run_placebo_test(
        Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE, min_placebos=39
    )
    assert result.gain.value == pytest.approx(0.5)
    assert result.gain.name == "gain of plain"
    assert result.gain.n == 30
    assert result.gain.detectable > 0
    assert result.change.value == pytest.approx(-0.5)
    assert result.placebo_gains == pytest.approx(others)
    assert result.quantile == pytest.approx(sorted(others)[37])  # place 0.95 x 38, rounded up
    assert result.p.value == 1 / 40
    assert result.p.n_resamples == 39
    assert result.exceeds_placebos
    assert result.mitigates
    assert result.outcome == "mitigates"
    assert result.verdict == (
        "mitigates: gains more than placebos do (39 placebos that amount to "
        f"{result.effective_placebos:.3g} independent ones, p 0.025)"
    )
    assert 19 < result.effective_placebos < 30  # of 30 items no more than 29 can be told apart
    assert result.base.value == pytest.approx(1)
    assert result.base.p.alternative == "two-sided"
    assert result.p.method == "placebo edits, one-sided for a gain"
    # 0.2 / sqrt(30) is about 0.04: a paired test finds what is beyond about 0.08, either way.
    t = np.abs(result.placebo_gains) / (0.2 / np.sqrt(30))
    assert (t > 3.2).mean() <= result.significant_share.value <= (t > 1.3).mean()
    assert 0 < result.significant_gain_share.value < result.significant_share.value < 1
    assert result.significant_share.n == 39
    assert PlaceboTest.from_json(result.to_json()) == result


def test_placebos_that_do_what_the_edit_does_are_no_control():
    """A gain a hair larger than theirs, on the same items: it is nearly the same edit."""
    rng = np.random.default_rng(0)
    base, change = 1 + rng.normal(size=300), 0.5 + 0.3 * rng.normal(size=300)
    noise = 0.09 * rng.normal(size=(199, 300))
    noise -= noise.mean(axis=1, keepdims=True)
    others = [read(base - change + 0.001 + item) for item in noise]
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(read(base), read(base - change), others),
        inference=INFERENCE,
        min_placebos=199,
    )
    assert result.exceeds_placebos
    assert result.gain.interval.low > 0
    assert result.item_correlation == pytest.approx(0.957, abs=0.005)
    assert result.effective_placebos > 19
    assert not result.mitigates
    assert "placebos do what the edit does (correlation 0.96" in result.verdict


def test_placebos_that_are_all_one_edit_test_nothing():
    """A gain beyond 39 of 39 placebos, which are one and the same: p is no p."""
    rng = np.random.default_rng(0)
    base, change = 1 + rng.normal(size=30), 0.5 + 0.3 * rng.normal(size=30)
    others = [read(base - change + 0.001 * i) for i in range(1, 40)]
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(read(base), read(base - change), others),
        inference=INFERENCE,
        min_placebos=39,
    )
    assert result.p.value == 1 / 40
    assert result.effective_placebos == pytest.approx(1)
    assert not result.mitigates
    assert result.outcome == "untestable: placebos not independent"
    assert "39 amount to 1 over 30 items, 19 are needed" in result.verdict
    # Nor does a gain that they reach show that the edit does not mitigate.
    less = run_placebo_test(
        Plain(),
        PlaceboResponses(read(base), read(base - 0.2 * change), others),
        inference=INFERENCE,
        min_placebos=39,
    )
    assert less.p.value == 1
    assert less.outcome == "untestable: placebos not independent"
    assert "not shown" not in less.verdict


@pytest.mark.parametrize("gain", [0.5, -0.5])
def test_a_model_without_a_bias_cannot_test_an_edit(gain):
    """Its mean is 0: every change that is no chance goes away from parity or looks like one."""
    base, edited, placebos = case(gain, [0.01 * i for i in range(-10, 29)])
    shifted = [read(item.values.numpy() - 1) for item in (base, edited, *placebos)]
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(shifted[0], shifted[1], shifted[2:]),
        inference=INFERENCE,
        min_placebos=39,
    )
    assert result.base.p.value > 0.05
    assert result.outcome == "untestable: base shows no effect"
    assert not result.mitigates
    assert not result.is_testable
    assert result.verdict.startswith("untestable: base shows no effect (plain of the base, from")
    assert "cannot be tested on this model" in result.verdict


def test_a_bias_to_the_other_side_is_one_that_can_be_reduced():
    base, edited, placebos = case(0.5, [0.01 * i for i in range(-10, 29)])
    turned = [read(-item.values.numpy()) for item in (base, edited, *placebos)]
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(turned[0], turned[1], turned[2:]),
        inference=INFERENCE,
        min_placebos=39,
    )
    assert result.base.value == pytest.approx(-1)
    assert result.mitigates


def test_a_bias_turned_to_the_other_side_is_no_reduction():
    """A smaller Strength of a model that leans the other way as far is not less bias."""
    rng = np.random.default_rng(2)
    odds = triples(rng, 60, 1.0, spread=1.0)
    way = np.array([1, 0, 0, 1])
    edited = follows(odds - 2.6 * way)
    others = [follows(odds + rng.normal(0, 0.3, size=odds.shape)) for _ in range(39)]
    queries = {"inference": INFERENCE, "min_placebos": 39, "objective": "value"}
    result = run_placebo_test(
        Strength(top=0.2), PlaceboResponses(follows(odds), edited, others), **queries
    )
    assert result.gain.interval.low > 0  # the value is smaller
    assert result.exceeds_placebos
    assert result.is_bias_reversed
    assert not result.mitigates
    assert result.verdict.startswith("not shown to mitigate: the bias is turned to the other side")
    half = run_placebo_test(
        Strength(top=0.2),
        PlaceboResponses(follows(odds), follows(odds - 0.8 * way), others),
        **queries,
    )
    assert not half.is_bias_reversed
    assert half.mitigates


def test_what_placebos_reach_is_no_mitigation():
    base, edited, placebos = case(0.5, [0.6, 0.5, 0.4] + [0.0] * 36)
    result = run_placebo_test(
        Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE, min_placebos=39
    )
    assert result.gain.interval.low > 0  # an ordinary test is impressed
    assert result.p.value == pytest.approx(3 / 40)
    assert not result.exceeds_placebos
    assert not result.mitigates
    assert result.verdict.startswith("not shown to mitigate: placebos gain as much")


def test_beyond_placebos_that_do_nothing_a_gain_must_still_be_one():
    base, edited, placebos = case(0.02, [-1.0] * 39)
    result = run_placebo_test(
        Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE, min_placebos=39
    )
    assert result.exceeds_placebos
    assert not result.mitigates
    assert "not shown for other items" in result.verdict
    base, edited, placebos = case(-0.5, [-1.0] * 39)
    assert not run_placebo_test(
        Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE, min_placebos=39
    ).exceeds_placebos


def test_beyond_parity_it_is_bias_again():
    base, edited, placebos = case(3.0, [0.1] * 39)
    result = run_placebo_test(
        Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE, min_placebos=39
    )
    assert result.gain.value == pytest.approx(-1.0)
    assert result.change.value == pytest.approx(-3.0)
    assert not result.mitigates


def test_too_few_placebos_are_refused():
    base, edited, placebos = case(0.5, [0.1] * 5)
    with pytest.raises(LevelheadError, match=r"5 placebos are too few.*\n.*at least 200, or fewer"):
        run_placebo_test(Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE)
    with pytest.raises(LevelheadError, match=r"0 placebos are too few.*\n.*at least 1"):
        run_placebo_test(
            Plain(), PlaceboResponses(base, edited, []), inference=INFERENCE, min_placebos=0
        )


def test_what_changes_nothing_is_refused_or_told():
    base, edited, placebos = case(0.5, [0.1] * 5)
    with pytest.raises(NotMeasurableError, match="gain of plain: the edit changes nothing"):
        run_placebo_test(
            Plain(), PlaceboResponses(base, base, placebos), inference=INFERENCE, min_placebos=5
        )
    with pytest.raises(NotMeasurableError, match="no placebo changes the measure"):
        run_placebo_test(
            Plain(), PlaceboResponses(base, edited, [base] * 5), inference=INFERENCE, min_placebos=5
        )
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(base, edited, [*placebos[:4], base]),
        inference=INFERENCE,
        min_placebos=5,
    )
    assert result.notes == ("1 of 5 placebos change nothing; they count as not significant",)


def test_items_that_a_placebo_lost_are_told():
    values = case(0.5, [0.1] * 5)[0].values.numpy()
    rng = np.random.default_rng(1)
    edits = [
        read(values + rng.normal(size=30), dropped=("i4",) if i == 3 else ()) for i in range(6)
    ]
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(read(values), edits[0], edits[1:]),
        inference=INFERENCE,
        min_placebos=5,
    )
    assert result.gain.n == 29
    assert [entry.item for entry in result.dropped] == ["i4"]


def test_another_aspect_may_be_judged():
    rng = np.random.default_rng(0)
    odds = triples(rng, 40, 0.5)
    edits = [follows(odds + rng.normal(0, 0.3, size=odds.shape)) for _ in range(6)]
    result = run_placebo_test(
        Strength(),
        PlaceboResponses(follows(odds), edits[0], edits[1:]),
        inference=INFERENCE,
        min_placebos=5,
        metric="signed mean",
    )
    p = 1 / (1 + np.exp(-odds))
    q = edits[0].values[..., 0].exp().numpy()
    s, t = (item[:, 0] - item[:, 1] - item[:, 2] + item[:, 3] for item in (p, q))
    assert result.gain.value == pytest.approx(abs(s.mean()) - abs(t.mean()))
    assert result.gain.name == "gain of signed mean"


def test_too_few_placebos_for_any_p_are_said_to_be():
    base, edited, placebos = case(0.5, [0.1] * 18)
    result = run_placebo_test(
        Plain(), PlaceboResponses(base, edited, placebos), inference=INFERENCE, min_placebos=18
    )
    assert result.outcome == "untestable: too few placebos"
    assert result.verdict == "untestable: too few placebos (18; a p of 0.05 needs 19)"


def simulated(run, effect, n=80, placebos=22):
    """An edit that shifts answers in a way of its own, as placebos do; and by its effect."""
    rng = np.random.default_rng([7, run])
    base = 1 + rng.normal(size=n)

    def edited():
        return base + rng.normal(0, 0.2) + rng.normal(0, 0.3, size=n)

    return run_placebo_test(
        Plain(),
        PlaceboResponses(
            read(base), read(edited() - effect), [read(edited()) for _ in range(placebos)]
        ),
        inference=INFERENCE, min_placebos=placebos, n_resamples=49,
    )  # fmt: skip


# A hundred runs show a rate of 15%, where 5% is asked, in 94 of 100 cases; two hundred in 99.
@pytest.mark.parametrize("runs", [100, pytest.param(200, marks=pytest.mark.full)])
def test_a_placebo_is_seldom_called_mitigation(runs):
    result = [simulated(run, 0.0) for run in range(runs)]
    assert np.mean([item.mitigates for item in result]) <= 0.08
    assert 0.01 <= np.mean([item.exceeds_placebos for item in result]) <= 0.09
    assert np.mean([item.is_testable for item in result]) > 0.95
    # Which is what an ordinary paired test would say of it:
    ordinary = np.mean([item.gain.interval.low > 0 for item in result])
    assert ordinary > 0.2
    assert np.mean([item.significant_gain_share.value for item in result]) == pytest.approx(
        ordinary, abs=0.08
    )


def chosen_p(rng, settings, placebos, alike=0.0):
    """The p of the best of so many settings on dev, on test, where none does what a placebo cannot.

    What a setting does is its own and the same on dev and on test, up to the noise of items.
    """

    def edits(count, common=0.0):
        return np.sqrt(alike) * common + np.sqrt(1 - alike) * rng.normal(size=count)

    common = rng.normal()
    real = edits(settings, common)
    best = int((real + 0.5 * rng.normal(size=settings)).argmax())
    gain = real[best] + 0.5 * rng.normal()
    others = np.sqrt(alike) * rng.normal(size=placebos) + edits(placebos)
    return placebo_p_value(gain, others + 0.5 * rng.normal(size=placebos), n_candidates=settings)


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_the_best_of_fifteen_that_do_nothing_is_rejected_at_most_at_the_level(alike):
    rng = np.random.default_rng(9)
    result = [chosen_p(rng, 15, 599, alike) for _ in range(2000)]
    level = np.mean([item.adjusted <= 0.05 for item in result])
    assert level <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 2000)
    # Without the correction it is far above:
    assert np.mean([item.value <= 0.05 for item in result]) > 0.1
    # And one setting alone keeps its level, not corrected at all.
    alone = [chosen_p(rng, 1, 199) for _ in range(2000)]
    assert {item.adjusted for item in alone} == {None}
    assert 0.035 <= np.mean([item.value <= 0.05 for item in alone]) <= 0.065


@pytest.mark.full
def test_the_best_of_fifteen_is_not_called_mitigation_by_the_whole_comparison():
    """As above, from readouts: chosen on dev, judged on test beside placebos at that setting."""
    calls, uncorrected, runs = 0, 0, 200
    for run in range(runs):
        rng = np.random.default_rng([11, run])
        base = 1 + rng.normal(size=(2, 60))
        shifts = rng.normal(0, 0.2, size=15)
        edited = base[:, None] - shifts[:, None] + rng.normal(0, 0.3, size=(2, 15, 60))
        best = int(np.abs(edited[0].mean(axis=1)).argmin())
        others = base[1] - rng.normal(0, 0.2, size=(399, 1)) + rng.normal(0, 0.3, size=(399, 60))
        result = run_placebo_test(
            Plain(),
            PlaceboResponses(
                read(base[1]), read(edited[1, best]), [read(other) for other in others]
            ),
            inference=INFERENCE, min_placebos=399, n_candidates=15, n_resamples=9,
        )  # fmt: skip
        assert result.p.family == 15
        calls += result.mitigates
        uncorrected += result.p.value <= 0.05
    assert calls / runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert uncorrected / runs > 0.1


def test_too_few_placebos_for_the_choice_are_said_to_be():
    base, edited, placebos = case(0.5, [0.01 * i for i in range(-10, 29)])
    result = run_placebo_test(
        Plain(),
        PlaceboResponses(base, edited, placebos),
        inference=INFERENCE,
        min_placebos=39,
        n_candidates=3,
    )
    assert result.p.adjusted == pytest.approx(3 / 40)
    assert result.outcome == "untestable: too few placebos"
    assert result.verdict == (
        "untestable: too few placebos (39; a p of 0.05 of the best of 3 settings needs 59)"
    )
    two = run_placebo_test(
        Plain(),
        PlaceboResponses(base, edited, placebos),
        inference=INFERENCE,
        min_placebos=39,
        n_candidates=2,
    )
    assert two.mitigates
    assert "p at most 0.05 for the best of 2 settings (0.025 for one)" in two.verdict


def test_a_real_effect_is_called_so():
    assert np.mean([simulated(run, 0.8).mitigates for run in range(30)]) >= 0.9


def test_an_edited_model_beside_its_placebos():
    measure, lm = made("strength"), model("strength")
    sites = [Site("pooled"), Site("value", 1, 0)]
    things = ("nurse", "doctor", "house", "river", "quick", "lazy", "tired")
    first, second = (lm.read([f"{w} is {a}." for a in things], sites) for w in ("she", "he"))
    texts = [f"{a} was {b}." for a in things for b in ("here", "there", *things)]
    activations = lm.read(texts, sites)
    real = []
    for site in sites:
        subset = (first[site] - second[site]).double()
        real.append(Projection(site, torch.linalg.svd(subset, full_matrices=False).Vh[:1]))
    pools = {
        site: [within_side_differences(first[site], second[site], seed=i) for i in range(2)]
        for site in sites
    }
    others = make_placebos(real, pools, activations, n_placebos=6)
    assert measure_variance_match(real, others, activations).variance_error < 1e-3
    base, edited, *rest = (measure.read(item)[0] for item in (
        lm, lm.edited(*real), *(lm.edited(*other) for other in others)
    ))  # fmt: skip
    result = run_placebo_test(
        measure, PlaceboResponses(base, edited, rest), inference=INFERENCE, min_placebos=6
    )
    assert result.gain.n == 12
    assert len(set(result.placebo_gains)) == 6
    assert not result.mitigates  # of 6 placebos none can say so
