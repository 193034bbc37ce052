"""Many resamples at once give what the literal form gives, one resample after another."""

import numpy as np
import pytest
import torch

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.metric import flip_signs
from levelhead.measures.reductions import (
    absolute_value,
    column_difference,
    group_effect_size,
    half_difference,
    make_signed_part,
    make_top_mean,
    mean,
    scale_aggregate,
    share_above_zero,
    subtract_constant,
)
from levelhead.measures.utility.perplexity import perplexity
from levelhead.stats.designs import Resample, clustered_design, count_items, grouped_design
from levelhead.stats.paired import resample_statistics
from levelhead.stats.permutation import sign_flip

TOP = make_top_mean(0.1, "round")
DESIGNS = {
    "words": grouped_design(23, 31),
    "terms": clustered_design([i % 17 for i in range(54)]),
    "terms in groups": clustered_design(
        [i % 18 for i in range(54)], within=[i % 2 for i in range(54)]
    ),
}
ONE_COLUMN = {
    "mean": mean,
    "percent": scale_aggregate(100, mean),
    "share": share_above_zero,
    "distance": absolute_value(subtract_constant(mean, 0.3)),
    "top": TOP,
    "lean": make_signed_part(TOP),
}
TWO_GROUPS = {"difference": half_difference, "effect size": group_effect_size}
TWO_COLUMNS = {"excess": column_difference(TOP, 0, 1), "perplexity": perplexity}
# Two models, each with a log-probability and a number of tokens for every item.
TWO_PAIRS = {"difference of perplexity": column_difference(perplexity, 1, 0)}
CASES = [
    *((over, design, 1) for over in ONE_COLUMN for design in DESIGNS),
    *((over, design, 1) for over in TWO_GROUPS for design in ("words", "terms in groups")),
    *((over, design, 2) for over in TWO_COLUMNS for design in DESIGNS),
    *((over, design, (2, 2)) for over in TWO_PAIRS for design in DESIGNS),
]
ALL = ONE_COLUMN | TWO_GROUPS | TWO_COLUMNS | TWO_PAIRS


def values(columns, variants=5, offset=10.0):
    rng = np.random.default_rng(1)
    sizes = columns if isinstance(columns, tuple) else (columns,)
    shape = (54, variants) if columns == 1 else (54, variants, *sizes)
    result = rng.normal(size=shape)
    # A variant far from 0 with a small spread, where sums of squares lose digits; and ties.
    result[:, 1] = offset + 0.1 * result[:, 1]
    result[:, 2] = np.round(result[:, 2])
    return result if columns == 1 else np.abs(result) + np.array([0, 1])


@pytest.mark.parametrize(("name", "design", "columns"), CASES)
def test_at_once_is_one_after_the_other(name, design, columns):
    over, sampled, numbers = ALL[name], DESIGNS[design], values(columns)
    rng = np.random.default_rng(2)
    rows = [tuple(rng.choice(s, len(s)) for s in sampled.samples) for _ in range(40)]
    times = count_items(sampled, [np.stack(column) for column in zip(*rows, strict=True)])
    result = over.vectorised(numbers, times)
    for row, subset in zip(rows, result, strict=True):
        draw = Resample(sampled, row)
        literal = [float(over(torch.from_numpy(numbers[:, k]), draw)) for k in range(5)]
        np.testing.assert_allclose(subset, literal, rtol=1e-11, atol=1e-12)


def test_a_resample_without_spread_has_no_value():
    design = grouped_design(2, 2)
    times = count_items(design, [np.array([[0, 0], [0, 1]]), np.array([[2, 2], [2, 3]])])
    alike = np.array([5.0, 1.0, 5.0, 3.0])[:, None]  # of the first resample all are equal
    result = group_effect_size.vectorised(alike, times)[:, 0]
    assert np.isnan(result[0])
    assert np.isfinite(result[1])


@pytest.mark.parametrize("name", ["mean", "top", "lean", "share"])
def test_exchanges_at_once_are_those_of_one_after_the_other(name):
    over, design = ALL[name], DESIGNS["terms"]
    numbers = torch.from_numpy(values(1)[:, 0]) + 0.2
    once = count_items(design, [s[None] for s in design.samples])

    def literal(signs):
        return float(over(flip_signs(numbers, torch.from_numpy(signs)), design.full_sample)) - 1.0

    def at_once(signs):
        flipped = [flip_signs(numbers, torch.from_numpy(row)).numpy() for row in signs]
        return over.vectorised(np.stack(flipped, axis=1), once)[0] - 1.0

    output = {"rng": None, "n_resamples": 199, "alternative": "greater"}
    single, two = (
        sign_flip(literal, design, **output | {"rng": np.random.default_rng(3), "vectorised": many})
        for many in (None, at_once)
    )
    assert single.p == two.p
    assert single.mean == pytest.approx(two.mean, abs=1e-12)
    assert single.deviation == pytest.approx(two.deviation, abs=1e-12)


def test_paired_resamples_are_the_same_whichever_form():
    design = DESIGNS["terms in groups"]
    numbers = [torch.from_numpy(values(1)[:, k]) for k in range(3)]
    output = {"left_out_statistics": (TOP,)}
    fast = resample_statistics(
        design, numbers, (TOP, mean), np.random.default_rng(4), 150, **output
    )
    slow = resample_statistics(
        design,
        numbers,
        (TOP.literal, mean.literal),
        np.random.default_rng(4),
        150,
        left_out_statistics=(TOP.literal,),
    )
    for single, other in zip(fast, slow, strict=True):
        assert single.shape == (150, 3)
        np.testing.assert_allclose(single, other, rtol=1e-12, atol=1e-12)


def test_resamples_without_a_value_are_drawn_again_for_all_formulas():
    design = grouped_design(3, 3)
    numbers = [torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 2.0], dtype=torch.float64)]
    (effects, means) = resample_statistics(
        design, numbers, (group_effect_size, mean), np.random.default_rng(5), 99
    )
    assert np.isfinite(effects).all()
    assert (means < 2).all()  # those without the only other word have no effect size
    constant = [torch.full((6,), 2.0, dtype=torch.float64)]
    with pytest.raises(NotMeasurableError, match="only 0 of 495 resamples have a value"):
        resample_statistics(design, constant, (group_effect_size,), np.random.default_rng(5), 99)
