"""GLUE's metrics against scikit-learn and scipy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics

from levelhead.measures.utility.glue_metrics import METRICS
from levelhead.stats.designs import crossed_design
from levelhead.stats.intervals import proportion_interval


def answers(responses, true):
    responses, true = np.array(responses), np.array(true)
    return torch.from_numpy(np.stack([responses == true, responses, true], axis=1).astype(float))


def design(n):
    return crossed_design({"texts": [str(i) for i in range(n)]})


def test_metrics_of_two_classes_are_scikit_learns():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 60)
    responses = np.where(rng.random(60) < 0.3, 1 - true, true)
    values, full = answers(responses, true), design(60).full_sample
    result = {name: float(METRICS[name].aggregate(values, full)) for name in list(METRICS)[:3]}
    assert result == pytest.approx(
        {
            "accuracy": 100 * metrics.accuracy_score(true, responses),
            "F1": 100 * metrics.f1_score(true, responses),
            "Matthews": 100 * metrics.matthews_corrcoef(true, responses),
        }
    )
    draw = replace(full, samples=(np.arange(20),))
    some = float(METRICS["Matthews"].aggregate(values, draw))
    assert some == pytest.approx(100 * metrics.matthews_corrcoef(true[:20], responses[:20]))


def test_correlations_are_scipys():
    rng = np.random.default_rng(1)
    true = np.round(rng.random(50) * 5)  # ties
    values = torch.from_numpy(np.stack([true + rng.normal(size=50), true], axis=1))
    full = design(50).full_sample
    pearson, spearman = (
        float(METRICS[item].aggregate(values, full)) for item in ("Pearson", "Spearman")
    )
    assert pearson == pytest.approx(100 * stats.pearsonr(values[:, 0], values[:, 1])[0])
    assert spearman == pytest.approx(100 * stats.spearmanr(values[:, 0], values[:, 1])[0])
    flat = torch.stack([torch.ones(50), values[:, 1]], dim=1)
    assert float(METRICS["Pearson"].aggregate(flat, full)) == 0


def test_what_is_0_by_0_is_0():
    full = design(4).full_sample
    never = answers([0, 0, 0, 0], [0, 1, 0, 1])
    assert float(METRICS["F1"].aggregate(never, full)) == 0
    assert float(METRICS["Matthews"].aggregate(never, full)) == 0


def test_intervals_where_one_class_is_said_of_all():
    """100 texts, 70 acceptable, all called so: by hand from Wilson's upper end of 0 of 100."""
    true = [1] * 70 + [0] * 30
    q = proportion_interval(0, 100).high
    result = METRICS["Matthews"].closed_form_interval(answers([1] * 100, true), design(100), 0.95)
    assert result.method == "wilson of what was never seen"
    assert result.high == pytest.approx(100 * math.sqrt(q / (1 - q) * 0.7 / 0.3))
    assert result.low == pytest.approx(-100 * math.sqrt(q / (1 - q) * 0.3 / 0.7))
    result = METRICS["F1"].closed_form_interval(answers([0] * 100, true), design(100), 0.95)
    assert (result.low, result.high) == (0, pytest.approx(100 * 2 * q / (q + 0.7)))
    # Always yes has an F1 that resampling moves: no formula is wanted.
    assert METRICS["F1"].closed_form_interval(answers([1] * 100, true), design(100), 0.95) is None


def test_intervals_where_all_is_right():
    true = [1] * 70 + [0] * 30
    q, values = proportion_interval(0, 100).high, answers(true, true)
    share = METRICS["accuracy"].closed_form_interval(values, design(100), 0.95)
    assert (share.low, share.high) == (pytest.approx(100 * (1 - q)), 100)
    result = METRICS["F1"].closed_form_interval(values, design(100), 0.95)
    assert (result.low, result.high) == (pytest.approx(200 * (0.7 - q) / (1.4 - q)), 100)
    result = METRICS["Matthews"].closed_form_interval(values, design(100), 0.95)
    assert 80 < result.low < result.high == pytest.approx(100)
    mixed = answers([1] * 69 + [0] * 31, true)
    assert all(
        METRICS[name].closed_form_interval(mixed, design(100), 0.95) is None
        for name in list(METRICS)[:3]
    )
