"""Probes: AUCs against literal ones, words never in training and test at once, refusals."""

import numpy as np
import pytest
from planted import Case, planted
from sklearn.metrics import roc_auc_score

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.mitigate.probing.probes import (
    FOLDS,
    PairwiseWins,
    _count_wins,
    cross_validate_probe,
    label_vectors,
    split_folds,
)


def case(kind="erased", **changes):
    given = {"words": 40, "width": 5, "strength": 2.0, "twins": 0.3, "turn": 90.0, "seed": 3}
    return Case(kind, **(given | changes))


def test_an_auc_is_that_of_scikit_learn_without_a_words_own_twin():
    rng = np.random.default_rng(0)
    scores, labels = rng.standard_normal(24).round(1), np.arange(24) % 2 == 0
    units = np.arange(24) // 4
    above, pairs = _count_wins(scores, labels, units, 6)
    result = PairwiseWins(above, pairs, 0)
    rows = [
        (float(scores[i] > scores[j]) + 0.5 * float(scores[i] == scores[j]))
        for i in range(24)
        for j in range(24)
        if labels[i] and not labels[j] and units[i] != units[j]
    ]
    assert result.auc() == pytest.approx(np.mean(rows), abs=1e-12)
    alone, many = _count_wins(scores, labels, np.arange(24), 24)
    assert PairwiseWins(alone, many, 0).auc() == pytest.approx(roc_auc_score(labels, scores))


def test_a_word_drawn_twice_counts_twice_and_never_against_itself():
    above = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    result = PairwiseWins(above, 1 - np.eye(3), 0)
    # Words 0 twice and 1 once: 2 x (0 over 1) + 2 x (1 over 0) of 4.
    assert result.auc(np.array([2, 1, 0])) == pytest.approx((2 * 1 + 2 * 0) / 4)
    with pytest.raises(NotMeasurableError, match="no two words of one fold were drawn"):
        result.auc(np.array([3, 0, 0]))
    assert not result.has_no_spread
    assert PairwiseWins(0.5 * (1 - np.eye(3)), 1 - np.eye(3), 0).has_no_spread


def test_no_word_is_in_training_and_in_test():
    of = np.repeat(np.arange(23), 3)
    tested = []
    for train, test in split_folds(of, FOLDS, np.random.default_rng(0)):
        assert not set(of[train]) & set(of[test])
        tested += test.tolist()
    assert sorted(tested) == list(range(69))


def test_what_is_known_of_a_word_only_is_not_readable():
    # Every word has its own mark of the group: a probe that met the word would tell all of them.
    rng = np.random.default_rng(1)
    mark = rng.standard_normal((60, 30))
    vectors = np.stack([mark, -mark], 1).repeat(2, 1).reshape(-1, 30)
    vectors = vectors + 0.1 * rng.standard_normal(vectors.shape)
    data = label_vectors(
        vectors,
        [True, True, False, False] * 60,
        np.repeat(np.arange(60), 4).tolist(),
        contexts=[0, 1] * 120,
    )
    unseen = cross_validate_probe(data, "linear", rng=np.random.default_rng(0)).auc()
    known = cross_validate_probe(
        data, "linear", rng=np.random.default_rng(0), leave_out="contexts"
    ).auc()
    assert abs(unseen - 0.5) < 0.15
    assert known > 0.75


@pytest.mark.parametrize(
    ("kind", "linear", "nonlinear"),
    [("untouched", True, True), ("rotated", True, True), ("product", False, True)],
)
def test_each_probe_finds_what_it_can(kind, linear, nonlinear):
    data = planted(case(kind, words=120)).after
    for probe, finds in (("linear", linear), ("nonlinear", nonlinear)):
        auc = cross_validate_probe(data, probe, rng=np.random.default_rng(0)).auc()
        assert (auc > 0.8) == finds
        assert finds or auc < 0.62


def test_the_same_chance_gives_the_same_number_and_labels_can_be_dealt():
    data = planted(case("untouched")).before
    single, two = (
        cross_validate_probe(data, "linear", rng=np.random.default_rng(5)).auc() for _ in range(2)
    )
    assert single == two
    permuted = data.permute_labels(np.random.default_rng(0))
    turned = permuted.labels != data.labels
    assert 0 < turned.sum() < len(turned)
    for word in range(data.words):
        assert len(set(turned[data.units == word])) == 1  # a word and its twin turn together


def test_what_cannot_be_probed_is_refused():
    rows = np.zeros((40, 3))
    twins = [True, False] * 20
    words = np.repeat(np.arange(20), 2).tolist()
    assert label_vectors(rows, twins, words).words == 20
    with pytest.raises(NotMeasurableError, match="9 pairs of words: a probe needs 10"):
        label_vectors(rows[:18], twins[:18], words[:18])
    with pytest.raises(NotMeasurableError, match="0 pairs of words"):
        label_vectors(rows[:0], [], [])
    with pytest.raises(LevelheadError, match="some word stands in one group only"):
        label_vectors(rows, [True] * 2 + twins[2:], words)
    with pytest.raises(LevelheadError, match="40 vectors, 39 labels, 40 units, 40 contexts"):
        label_vectors(rows, twins[1:], words)
    with pytest.raises(LevelheadError, match="not finite"):
        label_vectors(np.full((40, 3), np.nan), twins, words)
    with pytest.raises(LevelheadError, match=r"vectors of shape \(40,\)"):
        label_vectors(rows[:, 0], twins, words)
    rng = np.random.default_rng(0)
    with pytest.raises(UnknownNameError, match="no probe named 'cubic'"):
        cross_validate_probe(label_vectors(rows, twins, words), "cubic", rng=rng)
    subset = label_vectors(rows, twins, words, contexts=[0] * 40)
    with pytest.raises(NotMeasurableError, match="all texts have one context"):
        cross_validate_probe(subset, "linear", rng=rng, leave_out="contexts")
    with pytest.raises(LevelheadError, match="rng must be a numpy Generator"):
        cross_validate_probe(label_vectors(rows, twins, words), "linear", rng=0)


def test_contexts_of_unequal_size_leave_few_rows_to_learn_from():
    """One frame holds most texts: without it fewer rows are left than there may be components."""
    rng = np.random.default_rng(0)
    words = np.repeat(np.arange(12), 10)
    contexts = ["many" if i % 10 else "few" for i in range(len(words))]
    data = label_vectors(
        rng.normal(size=(240, 64)),
        [True] * 120 + [False] * 120,
        [*words, *words],
        contexts=contexts * 2,
    )
    result = cross_validate_probe(data, "nonlinear", rng=rng, leave_out="contexts", repeats=1)
    assert 0 <= result.auc() <= 1
