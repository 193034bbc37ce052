"""Effects: every number against a loop over words, draws and heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from metric_cases import INFERENCE, made
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.locate.effects import estimate_effects, estimate_rank_agreement
from levelhead.measures.items import MeasureItem
from levelhead.measures.responses import Responses
from levelhead.stats import paired
from levelhead.stats.designs import crossed_design, grouped_design, single_factor_design
from levelhead.stats.paired_effects import PairedEffects

SIZES = {"X": 5, "Y": 6, "A": 3, "B": 2}
WIDTH = 4


def read(vectors):
    """Readouts of words that have these vectors."""
    items = [
        MeasureItem(f"{side}: {i}", (("text",),), (f"{side}: {i}",), side)
        for side, size in SIZES.items()
        for i in range(size)
    ]
    none = torch.zeros(0, 0)
    values = torch.from_numpy(vectors)
    return Responses(tuple(items), values, ("words",), (), none, (), (), metadata=FrozenDict({}))


def vectors(seed, change=0.0):
    rng = np.random.default_rng(0)
    base = rng.normal(size=(sum(SIZES.values()), WIDTH))
    return base + change * np.random.default_rng(seed).normal(size=base.shape)


def literal(subset, x, y):
    """SEAT of some of the words, by the printed formula."""
    a, b = subset[11:14], subset[14:16]

    def cos(u, v):
        return u @ v / np.sqrt((u @ u) * (v @ v))

    def s(i):
        return np.mean([cos(subset[i], u) for u in a]) - np.mean([cos(subset[i], u) for u in b])

    sx, sy = [s(i) for i in x], [s(i) for i in y]
    return (np.mean(sx) - np.mean(sy)) / np.std(sx + sy, ddof=1)


BASE = vectors(0)
OTHERS = [vectors(1, 0.3), vectors(2, 0.02), BASE.copy(), vectors(3, 0.6)]
"""What four variants say; the third changes nothing."""


def find_result(sign=1, draws=199, **options):
    return estimate_effects(
        made("seat"),
        read(BASE),
        [read(other) for other in OTHERS],
        sign=sign,
        inference=INFERENCE,
        n_resamples=draws,
        **options,
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_words_are_redrawn_and_the_formula_computed_anew(sign):
    subset = find_result(sign)
    x, y = np.arange(5), np.arange(5, 11)
    full = sign * literal(BASE, x, y)
    assert subset.values == pytest.approx([full - sign * literal(other, x, y) for other in OTHERS])
    rng = INFERENCE.rng("seat", "effects")
    for draw in range(20):
        dx, dy = rng.choice(x, 5), rng.choice(y, 6)
        base = sign * literal(BASE, dx, dy)
        assert subset.base[draw] == pytest.approx(base)
        expected = [base - sign * literal(other, dx, dy) for other in OTHERS]
        assert subset.resamples[draw] == pytest.approx(expected, abs=1e-12)


def test_a_positive_effect_is_of_a_part_that_adds_to_the_bias():
    """Where the measure falls without it; without a sign, larger is taken as more."""
    assert find_result(1).values == pytest.approx(-find_result(-1).values)
    assert find_result(0).values == pytest.approx(find_result(1).values)


def test_errors_and_intervals_are_students():
    subset = find_result()
    for i, estimate in enumerate(subset.to_estimates(list("abcd"))):
        if i == 2:
            assert estimate is None
            continue
        error = np.std(subset.resamples[:, i], ddof=1) * np.sqrt(11 / 9)
        assert subset.standard_errors[i] == pytest.approx(error)
        reach = stats.t.ppf(0.975, 9) * error
        ends = (estimate.interval.low, estimate.interval.high)
        assert ends == pytest.approx((subset.values[i] - reach, subset.values[i] + reach))
        assert (estimate.name, estimate.value, estimate.parity, estimate.n) == (
            "abcd"[i],
            subset.values[i],
            0,
            11,
        )
        assert "5+6 words" in estimate.interval.method
        # The effect that the corrected test at 0.05 finds four times out of five: its t must exceed
        # all but so many of the null's maxima that p = (b + 1) / (m + 1) is at most 0.05.
        maxima = sorted(subset.null_statistics(np.array([0, 1, 3])).max(axis=1), reverse=True)
        critical = next(t for b, t in enumerate(maxima) if (b + 2) / (len(maxima) + 1) > 0.05)
        assert critical > stats.t.ppf(0.975, 9)
        miss = stats.nct.cdf(critical, 9, estimate.detectable / error)
        assert miss == pytest.approx(0.2, abs=1e-6)


def statistics(subset, some):
    """What is compared: each observed t, and the draws' deviations as t of the same tail."""
    t = np.abs(subset.values[some]) / subset.standard_errors[some]
    null = np.empty((len(subset.resamples), len(some)))
    for place, i in enumerate(some):
        spread = np.std(subset.resamples[:, i], ddof=1)
        for draw, value in enumerate(subset.resamples[:, i]):
            tail = stats.norm.sf(abs(value - subset.values[i]) / spread)
            null[draw, place] = stats.t.isf(tail, 9)
    return t, null


def test_p_values_are_romano_and_wolfs():
    """Step down: the largest against the maximum of all, the next against that of the rest."""
    subset, some = find_result(), [0, 1, 3]
    t, null = statistics(subset, some)
    raw = [(1 + sum(row[i] >= t[i] for row in null)) / (1 + len(null)) for i in range(3)]
    order = sorted(range(3), key=lambda i: -t[i])
    adjusted, last = {}, 0.0
    for step, i in enumerate(order):
        rest = order[step:]
        b = sum(max(row[j] for j in rest) >= t[i] for row in null)
        last = max(last, (b + 1) / (len(null) + 1))
        adjusted[i] = last
    output = [estimate.p for estimate in subset.to_estimates(list("abcd")) if estimate is not None]
    assert [p.value for p in output] == pytest.approx(raw)
    assert [p.adjusted for p in output] == pytest.approx([adjusted[i] for i in range(3)])
    assert {(p.family, p.n_resamples, p.correction, p.alternative) for p in output} == {
        (3, 199, "romano-wolf", "two-sided")
    }
    assert all(p.adjusted >= p.value for p in output)


@pytest.mark.parametrize("units", [20, 60])
def test_the_family_wise_error_holds_with_few_units(units):
    """Thirty means of nothing, dependent as heads are: any is found in about 5% of families."""
    rng = np.random.default_rng(units)
    hits, families = 0, 100
    for _ in range(families):
        noise = rng.normal(size=(units, 30)) + rng.normal(size=(units, 1)) / 2
        times = rng.multinomial(units, [1 / units] * units, size=199)
        ablation_effects = PairedEffects(
            noise.mean(0),
            times @ noise / units,
            np.zeros(199),
            grouped_design(units, name="pairs"),
            0.95,
        )
        hits += (
            min(
                estimate.p.adjusted
                for estimate in ablation_effects.to_estimates([str(i) for i in range(30)])
            )
            <= 0.05
        )
    assert hits <= stats.binom.ppf(0.999, families, 0.06)  # 18% and 12% with normal tails


def test_a_p_below_the_level_is_an_interval_without_0():
    """Both by Student's t: they may differ by the draws' own chance alone."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(12, 40)) + np.linspace(0, 1.5, 40)
    times = rng.multinomial(12, [1 / 12] * 12, size=1999)
    design = grouped_design(12, name="pairs")
    ablation_effects = PairedEffects(
        noise.mean(0), times @ noise / 12, np.zeros(1999), design, 0.95
    )
    output = ablation_effects.to_estimates([str(i) for i in range(40)])
    apart = [item for item in output if (item.p.value <= 0.05) != (0 not in item.interval)]
    assert all(0.03 < item.p.value < 0.08 for item in apart)


def test_chance_has_a_seed_and_a_name():
    assert np.array_equal(find_result().resamples, find_result().resamples)
    assert not np.array_equal(find_result().resamples, find_result(name="others").resamples)


def test_where_nothing_changes_anything_there_is_no_family():
    same = estimate_effects(
        made("seat"), read(BASE), [read(BASE)], sign=1, inference=INFERENCE, n_resamples=99
    )
    with pytest.raises(NotMeasurableError, match="no part changes the measure at all"):
        same.to_estimates(["a"])


def alike():
    """Two words a side, one of each with the same vector: some draws have no spread."""
    subset = read(BASE).select(lambda item: item.id in ("X: 0", "X: 1", "Y: 0", "Y: 1")
                          or item.group in "AB")  # fmt: skip
    values = subset.values.clone()
    values[2] = values[0]
    return replace(subset, values=values), replace(subset, values=values + 0.1 * values.flip(1))


def test_a_draw_without_a_value_is_drawn_again(monkeypatch):
    base, other = alike()
    subset = estimate_effects(
        made("seat"), base, [other], sign=1, inference=INFERENCE, n_resamples=199
    )
    assert subset.resamples.shape == (199, 1)
    assert np.isfinite(subset.resamples).all()
    monkeypatch.setattr(paired, "MAX_TRIES_PER_RESAMPLE", 1)
    with pytest.raises(NotMeasurableError, match=r"only \d+ of 199 resamples have a value"):
        estimate_effects(made("seat"), base, [other], sign=1, inference=INFERENCE, n_resamples=199)


def test_what_is_no_number_is_refused():
    broken = BASE.copy()
    broken[0] = np.nan
    with pytest.raises(NotMeasurableError):
        estimate_effects(made("seat"), read(BASE), [read(broken)], sign=1, inference=INFERENCE)


def test_of_crossed_factors_the_scarcest_is_redrawn():
    labels = {"words": list("aabbccdd"), "frames": ["1", "2"] * 4}
    design = single_factor_design(crossed_design(labels))
    (factor,) = design.factors
    assert (factor.name, factor.n_units) == ("frames", 2)
    base = crossed_design({"words": list("abcd")})
    assert single_factor_design(base) is base


def test_rank_agreement_is_spearmans_on_fishers_scale():
    rng = np.random.default_rng(1)
    values = np.array([0.1, 0.5, -0.3, 0.9, 0.2])
    draws = values + 0.2 * rng.normal(size=(199, 5))
    ablation_effects = PairedEffects(
        values, draws, np.zeros(199), grouped_design(10, 12, name="words"), 0.9
    )
    scores = [1.0, 2.0, -1.0, 1.5, 0.5]
    output = estimate_rank_agreement(scores, ablation_effects)

    def rho(single):
        ranks = [np.argsort(np.argsort(side)) for side in (scores, single)]
        return np.corrcoef(*ranks)[0, 1]

    assert output.value == pytest.approx(rho(values))
    assert output.n == 5
    z = np.arctanh(np.clip([rho(draw) for draw in draws], -0.9999, 0.9999))
    reach = stats.t.ppf(0.95, 20) * np.std(z, ddof=1) * np.sqrt(22 / 20)
    middle = np.arctanh(output.value)
    ends = (output.interval.low, output.interval.high)
    assert ends == pytest.approx((np.tanh(middle - reach), np.tanh(middle + reach)))


def test_too_few_or_equal_scores_agree_with_nothing():
    subset = find_result()
    assert estimate_rank_agreement([1.0, 1.0, 1.0, 1.0], subset) is None
    short = PairedEffects(
        subset.values[:2], subset.resamples[:, :2], subset.base, subset.design, subset.level
    )
    assert estimate_rank_agreement([1.0, 2.0], short) is None
