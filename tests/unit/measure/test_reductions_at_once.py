"""Many resamples at once give what the literal form gives, one resample after another."""

import numpy as np
import pytest
import torch

from levelhead.core.errors import NotMeasurable
from levelhead.locate.effects import resampled
from levelhead.measures.metric import exchanged
from levelhead.measures.reductions import (
    absolute,
    group_effect_size,
    half_difference,
    less,
    mean,
    of_columns,
    one_sided_part,
    scaled_by,
    share_above_zero,
    top_mean_of,
)
from levelhead.measures.utility.perplexity import perplexity
from levelhead.stats.designs import Draw, clusters, groups, times_of
from levelhead.stats.permutation import sign_flip

TOP = top_mean_of(0.1, "round")
DESIGNS = {
    "words": groups(23, 31),
    "terms": clusters([i % 17 for i in range(54)]),
    "terms in groups": clusters([i % 18 for i in range(54)], within=[i % 2 for i in range(54)]),
}
ONE_COLUMN = {
    "mean": mean,
    "percent": scaled_by(100, mean),
    "share": share_above_zero,
    "distance": absolute(less(mean, 0.3)),
    "top": TOP,
    "lean": one_sided_part(TOP),
}
TWO_GROUPS = {"difference": half_difference, "effect size": group_effect_size}
TWO_COLUMNS = {"excess": of_columns(TOP, 0, 1), "perplexity": perplexity}
CASES = [
    *((over, design, 1) for over in ONE_COLUMN for design in DESIGNS),
    *((over, design, 1) for over in TWO_GROUPS for design in ("words", "terms in groups")),
    *((over, design, 2) for over in TWO_COLUMNS for design in DESIGNS),
]
ALL = ONE_COLUMN | TWO_GROUPS | TWO_COLUMNS


def values(columns, variants=5, offset=10.0):
    rng = np.random.default_rng(1)
    shape = (54, variants) if columns == 1 else (54, variants, columns)
    found = rng.normal(size=shape)
    # A variant far from 0 with a small spread, where sums of squares lose digits; and ties.
    found[:, 1] = offset + 0.1 * found[:, 1]
    found[:, 2] = np.round(found[:, 2])
    return found if columns == 1 else np.abs(found) + np.array([0, 1])


@pytest.mark.parametrize(("name", "design", "columns"), CASES)
def test_at_once_is_one_after_the_other(name, design, columns):
    over, sampled, numbers = ALL[name], DESIGNS[design], values(columns)
    rng = np.random.default_rng(2)
    rows = [tuple(rng.choice(s, len(s)) for s in sampled.samples) for _ in range(40)]
    times = times_of(sampled, [np.stack(column) for column in zip(*rows, strict=True)])
    found = over.many(numbers, times)
    for row, own in zip(rows, found, strict=True):
        draw = Draw(sampled, row)
        literal = [float(over(torch.from_numpy(numbers[:, k]), draw)) for k in range(5)]
        np.testing.assert_allclose(own, literal, rtol=1e-11, atol=1e-12)


def test_a_resample_without_spread_has_no_value():
    design = groups(2, 2)
    times = times_of(design, [np.array([[0, 0], [0, 1]]), np.array([[2, 2], [2, 3]])])
    alike = np.array([5.0, 1.0, 5.0, 3.0])[:, None]  # of the first resample all are equal
    found = group_effect_size.many(alike, times)[:, 0]
    assert np.isnan(found[0])
    assert np.isfinite(found[1])


@pytest.mark.parametrize("name", ["mean", "top", "lean", "share"])
def test_exchanges_at_once_are_those_of_one_after_the_other(name):
    over, design = ALL[name], DESIGNS["terms"]
    numbers = torch.from_numpy(values(1)[:, 0]) + 0.2
    once = times_of(design, [s[None] for s in design.samples])

    def literal(signs):
        return float(over(exchanged(numbers, torch.from_numpy(signs)), design.whole)) - 1.0

    def at_once(signs):
        flipped = [exchanged(numbers, torch.from_numpy(row)).numpy() for row in signs]
        return over.many(np.stack(flipped, axis=1), once)[0] - 1.0

    told = {"rng": None, "draws": 199, "alternative": "greater"}
    one, two = (
        sign_flip(literal, design, **told | {"rng": np.random.default_rng(3), "at_once": many})
        for many in (None, at_once)
    )
    assert one.p == two.p
    assert one.mean == pytest.approx(two.mean, abs=1e-12)
    assert one.deviation == pytest.approx(two.deviation, abs=1e-12)


def test_paired_resamples_are_the_same_whichever_form():
    design = DESIGNS["terms in groups"]
    numbers = [torch.from_numpy(values(1)[:, k]) for k in range(3)]
    told = {"left_out": (TOP,)}
    fast = resampled(design, numbers, (TOP, mean), np.random.default_rng(4), 150, **told)
    slow = resampled(
        design,
        numbers,
        (TOP.literal, mean.literal),
        np.random.default_rng(4),
        150,
        left_out=(TOP.literal,),
    )
    for one, other in zip(fast, slow, strict=True):
        assert one.shape == (150, 3)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_resamples_without_a_value_are_drawn_again_for_all_formulas():
    design = groups(3, 3)
    numbers = [torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 2.0], dtype=torch.float64)]
    (effects, means) = resampled(
        design, numbers, (group_effect_size, mean), np.random.default_rng(5), 99
    )
    assert np.isfinite(effects).all()
    assert (means < 2).all()  # those without the only other word have no effect size
    constant = [torch.full((6,), 2.0, dtype=torch.float64)]
    with pytest.raises(NotMeasurable, match="only 0 of 495 draws"):
        resampled(design, constant, (group_effect_size,), np.random.default_rng(5), 99)
