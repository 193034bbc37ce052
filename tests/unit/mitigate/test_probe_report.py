"""What is told of probes: intervals, dealt labels, the control task, clusters."""

import numpy as np
import pytest
from planted import Case, planted
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from levelhead.core.errors import LevelheadError
from levelhead.core.run_context import Inference
from levelhead.mitigate.probing import probes
from levelhead.mitigate.probing.probe_report import (
    ProbeReport,
    _interval,
    cluster_words,
    probe_vectors,
    run_probe,
)
from levelhead.mitigate.probing.probes import cross_validate_probe, label_vectors

INFERENCE = Inference(level=0.9, resamples=199, seed=4)


def data(kind="untouched", which="after", **changes):
    given = {"words": 80, "width": 5, "strength": 2.0, "twins": 0.3, "turn": 90.0, "seed": 2}
    return getattr(planted(Case(kind, **(given | changes))), which)


@pytest.fixture
def few_settings(monkeypatch):
    """Two strengths instead of four: what is told of a probe does not depend on how many it had."""
    monkeypatch.setattr(probes, "C_VALUES", (0.01, 1.0))


@pytest.mark.usefixtures("few_settings")
def test_the_interval_is_students_with_dealt_labels_as_its_floor():
    subset = data("erased")
    result = run_probe(subset, "linear", inference=INFERENCE, label_permutations=9)
    rng = INFERENCE.rng("linear", "folds")
    true = cross_validate_probe(subset, "linear", rng=rng)
    null = [
        cross_validate_probe(
            subset.permute_labels(rng), "linear", rng=rng, config=true.config
        ).auc()
        for _ in range(9)
    ]
    assert result.auc.value == true.auc()
    assert result.permuted_auc.value == pytest.approx(np.mean(null))
    sample = np.random.default_rng(0).integers(80, size=(400, 80))
    error = np.std([true.auc(np.bincount(item, minlength=80)) for item in sample])
    floor = max(float(np.std(null, ddof=1)), error)
    reach = stats.t.ppf(0.95, 79) * floor
    assert result.auc.interval.high - result.auc.value == pytest.approx(reach, rel=0.15)
    assert result.auc.p.value == (1 + sum(item >= true.auc() for item in null)) / 10
    output = (result.auc.interval.high - result.auc.value) / stats.t.ppf(0.95, 79)
    assert result.auc.detectable == pytest.approx(2.84 * output, rel=0.01)
    assert result.auc.n == 80
    assert result.control is None  # one frame only
    assert result.selectivity is None


@pytest.mark.usefixtures("few_settings")
def test_twins_without_any_difference_are_sure_by_the_words_that_were_met():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((100, 4)).repeat(2, 0)
    subset = label_vectors(rows, [True, False] * 100, np.repeat(np.arange(100), 2).tolist())
    result = run_probe(subset, "linear", inference=INFERENCE, label_permutations=9)
    assert result.auc.value == 0.5
    # Three of a hundred words could differ and none be met: 1 - 0.05 ** (1 / 100).
    assert result.auc.interval.high == pytest.approx(0.5 + 1 - 0.05**0.01)
    assert result.auc.detectable is None
    assert _interval(1.0, 0.0, 100, 0.9, "").low == pytest.approx(1 - 2 * (1 - 0.05**0.01))
    assert _interval(1.0, 0.0, 100, 0.9, "").high == 1.0


@pytest.mark.usefixtures("few_settings")
@pytest.mark.parametrize(("runs", "least"), [(5, 4), pytest.param(20, 16, marks=pytest.mark.full)])
def test_intervals_hold_chance_as_often_as_they_say(runs, least):
    held = 0
    for seed in range(runs):
        subset = data("erased", words=40, width=4, seed=seed)
        result = run_probe(
            subset,
            "linear",
            inference=Inference(level=0.9, resamples=99, seed=seed),
            label_permutations=9,
        )
        held += 0.5 in result.auc.interval
    assert held >= least  # at 90%: fewer than 16 of 20 in 4% of such runs


def test_a_control_task_tells_what_is_known_by_heart():
    # Thirty dimensions for sixty words: labels that mean nothing can be learnt, word by word.
    result = run_probe(
        data(words=60, width=30, frames=3), "nonlinear", inference=INFERENCE, label_permutations=9
    )
    assert result.control.value > 0.75
    assert abs(result.permuted_auc.value - 0.5) < 0.1
    known = result.selectivity.value + result.control.value
    assert known >= result.auc.value
    base = run_probe(
        data(words=60, width=4, frames=3), "linear", inference=INFERENCE, label_permutations=9
    )
    assert base.selectivity.value > 0.2
    assert base.selectivity.interval.low < base.selectivity.value


def test_clusters_are_those_of_scikit_learn():
    subset = data("untouched", strength=4.0, frames=2)
    result = cluster_words(subset, inference=INFERENCE)
    means = np.array(
        [
            subset.vectors[(subset.units == word) & (subset.labels == label)].mean(0)
            for word in range(80)
            for label in (False, True)
        ]
    )
    seed = int(INFERENCE.rng("clusters").integers(2**31))
    cluster = KMeans(2, n_init=10, random_state=seed).fit_predict(means)
    share = np.mean(cluster == np.arange(160) % 2)
    assert result.accuracy.value == pytest.approx(max(share, 1 - share))
    assert result.v_measure == pytest.approx(v_measure_score(np.arange(160) % 2, cluster))
    assert result.accuracy.value > 0.9
    assert result.accuracy.p.value == 0.001
    assert result.accuracy.n == 160


def test_clusters_of_nothing_are_at_what_dealt_labels_give():
    result = cluster_words(data("erased"), inference=INFERENCE)
    assert result.accuracy.value >= 0.5
    # The better of two namings: above a half by chance alone.
    assert 0.51 < result.accuracy.parity < 0.58
    assert result.accuracy.p.value > 0.05


def test_all_is_told_together_and_reads_back():
    steps = []
    result = probe_vectors(
        data(words=20),
        inference=INFERENCE,
        label_permutations=9,
        on_step=lambda *single: steps.append(single),
    )
    assert [item.probe for item in result.probes] == ["linear", "nonlinear"]
    assert result.probe_result("linear") == result.probes[0]
    assert steps == [(i + 1, 20) for i in range(20)]
    assert ProbeReport.from_json(result.to_json()) == result
    with pytest.raises(LevelheadError, match="labels permuted 8 times: too few"):
        probe_vectors(data(words=20), inference=INFERENCE, label_permutations=8)
