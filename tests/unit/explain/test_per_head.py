"""Head by head: corrected p-values and intervals, against loops written out."""

import numpy as np
import pytest
from metric_cases import INFERENCE
from scipy import stats

from levelhead.core.errors import NotMeasurableError
from levelhead.explain.attention.per_head import compute_head_changes
from levelhead.models.sites import Site

EVERY = [Site("head_out", layer, head) for layer in range(3) for head in range(4)]


def flips(d, words, draws, rng):
    """Max-T by loops: sign flips by target."""
    names = sorted(set(words))
    totals = np.array([[sum(v for v, w in zip(column, words, strict=True) if w == name)
                        for name in names] for column in d.T])  # fmt: skip
    scale = np.sqrt((totals**2).sum(1))
    t = np.abs(totals.sum(1)) / scale
    signs = rng.choice([-1.0, 1.0], size=(draws, len(names)))
    null = np.array([[abs((row * total).sum()) / s for total, s in zip(totals, scale, strict=True)]
                     for row in signs])  # fmt: skip
    order = np.argsort(-t, kind="stable")
    adjusted, last = np.empty(len(t)), 0.0
    for place, i in enumerate(order):
        rest = order[place:]
        count = sum(max(row[rest]) >= t[i] - 1e-12 for row in null)
        last = max(last, (count + 1) / (draws + 1))
        adjusted[i] = last
    return adjusted


def test_corrected_p_is_that_of_a_loop_and_still_heads_are_left_out():
    rng = np.random.default_rng(0)
    words = [f"w{i % 7}" for i in range(40)]
    d = rng.normal(0.1, 1, (40, 12))
    d[:, 0] += 2
    d[:, 3] = 0
    d[:, 4] = [1.0 if word == "w1" else 0.0 for word in words]
    groups = {"biased": tuple(range(5)), "regular": tuple(range(5, 12))}
    heads, notes = compute_head_changes("attention", d, groups, EVERY, words, INFERENCE)
    assert notes == ("attention: not tested, changed in too few targets: 0.3, 1.0",)
    stored = [i for i in range(12) if i not in (3, 4)]
    expected = flips(
        d[:, stored], words, INFERENCE.permutations, INFERENCE.rng("attention", "heads")
    )
    assert [head.p.adjusted for head in heads] == pytest.approx(list(expected))
    assert heads[0].p.adjusted < 0.05
    # The interval, from the sandwich formula written out.
    sums = [sum(d[i, 0] for i in range(40) if words[i] == name) for name in sorted(set(words))]
    sizes = [words.count(name) for name in sorted(set(words))]
    mean = d[:, 0].mean()
    square = sum((s - mean * k) ** 2 for s, k in zip(sums, sizes, strict=True))
    reach = stats.t.ppf(0.975, 6) * np.sqrt(square * 7 / 6) / 40
    assert heads[0].interval.low == pytest.approx(mean - reach)
    assert heads[0].interval.high == pytest.approx(mean + reach)
    with pytest.raises(NotMeasurableError, match="no head changes in two targets"):
        compute_head_changes("attention", np.zeros((40, 12)), groups, EVERY, words, INFERENCE)
