"""Generations about two groups: shares by hand, errors of scorers, models that say nothing."""

import csv
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from assets import asset
from metric_cases import SaysThe
from scipy.stats import binom

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import Inference
from levelhead.measures.generation.counterfactual_generation import CounterfactualGeneration
from levelhead.measures.generation.scoring.scorer_calibration import (
    CALIBRATIONS,
    ScorerCalibration,
    calibrate_scorer,
)
from levelhead.measures.generation.scoring.scorers import RefusalPhrases, VaderSentiment
from levelhead.measures.inference import estimate
from levelhead.measures.metric import jackknife_variance
from levelhead.measures.responses import Responses
from levelhead.measures.skills.checks import check_skill

JOBS = ("nurse", "carpenter", "teacher", "mechanic", "librarian", "farmer")
GOOD, BAD = "The {job} sees the garden.", "This {job} sees a garden."


def measure(**options):
    given = {"occupations": JOBS, "scorer": SaysThe(), "calibration": None, "k": 4}
    return CounterfactualGeneration(**(given | options))


def responses(tested, texts_of):
    """What a model would have written: `texts_of(item, side)` gives the k texts of a side."""
    (query_set,) = tested.all_queries(None)
    texts = tuple(
        tuple(text for side in range(2) for text in texts_of(item, side))
        for item in query_set.items
    )
    return Responses(
        items=query_set.items,
        values=torch.zeros(len(texts), 2 * tested.k, 3, dtype=torch.float64),
        factors=query_set.factors,
        dropped=(),
        answers=torch.zeros(0, 3),
        owner=(),
        queries=(),
        query_kind="generate",
        settings=FrozenDict({}),
        texts=texts,
    )


def drawn(tested, shares, seed=0, refusals=(0.0, 0.0)):
    """Texts with the word in a share of those about each group."""
    rng = np.random.default_rng(seed)

    def texts_of(item, side):
        job = item.units[0]
        return [
            "I cannot help."
            if rng.random() < refusals[side]
            else (GOOD if rng.random() < shares[side] else BAD).format(job=job)
            for _ in range(tested.k)
        ]

    return responses(tested, texts_of)


def literally(texts, k, counts, hit):
    """Difference of shares in percent, by a loop."""
    shares = []
    for side in range(2):
        kept = [t for row in texts for t in row[side * k : (side + 1) * k] if counts(t)]
        shares.append(100 * sum(map(hit, kept)) / len(kept))
    return shares[0] - shares[1]


def test_every_number_is_that_of_a_literal_loop():
    tested = measure()
    read = drawn(tested, (0.7, 0.4), refusals=(0.1, 0.3))

    def is_refusal(text):
        return text.startswith("I cannot")

    def value(name):
        metric = tested.get_metric(name)
        return float(metric.value(read, tested.design(read, metric)))

    answered = literally(read.texts, 4, lambda t: not is_refusal(t), lambda t: "the" in t.split())
    assert value("generation") == pytest.approx(answered)
    refused = literally(read.texts, 4, lambda t: True, is_refusal)
    assert value("generation_refusals") == pytest.approx(refused)
    assert value("generation_failures") == 0
    words = literally(read.texts, 4, lambda t: not is_refusal(t), lambda t: len(t.split())) / 100
    assert value("generation_length") == pytest.approx(words)


def test_many_resamples_at_once_are_single_ones():
    tested = measure()
    metric = tested.primary_metric
    read = drawn(tested, (0.7, 0.4))
    values = metric.per_item_values(read)
    counts = np.random.default_rng(1).integers(0, 3, size=(5, 1, len(values)))
    at_once = metric.aggregate.vectorised(values.numpy()[:, None], counts)[:, 0]
    for row, value in zip(counts[:, 0], at_once, strict=True):
        items = np.repeat(np.arange(len(values)), row)
        sample = SimpleNamespace(items=items)
        assert value == pytest.approx(float(metric.aggregate.literal(values, sample)), abs=1e-12)


def test_a_planted_difference_is_shown_with_its_direction():
    tested = measure()
    planted = drawn(tested, (0.9, 0.2))
    result = estimate(
        Inference(resamples=199, permutations=199),
        tested.primary_metric,
        tested.primary_metric.per_item_values(planted),
        tested.design(planted, tested.primary_metric),
    )
    assert result.p.value < 0.05
    assert 50 < result.value < 90
    assert "female are more often with the word" in tested.primary_metric.above


def test_equal_treatment_raises_few_alarms():
    tested = measure()
    p_values = [
        estimate(
            Inference(seed=seed, resamples=99, permutations=199),
            tested.primary_metric,
            tested.primary_metric.per_item_values(read := drawn(tested, (0.6, 0.6), seed=seed)),
            tested.design(read, tested.primary_metric),
        ).p.value
        for seed in range(60)
    ]
    # Three are expected, and three deviations of that; six occupations allow p >= 2 / 64.
    assert sum(p <= 0.05 for p in p_values) <= 8
    assert sum(p <= 0.2 for p in p_values) >= 4  # the test can raise an alarm at all


def test_models_that_write_nothing_lack_the_skill():
    tested = measure()

    def skill(texts_of):
        read = responses(tested, texts_of)
        return check_skill(None, tested.make_skill_check(None, read), read)

    assert not skill(lambda item, side: ["I cannot help with that."] * 4).is_shown
    assert not skill(lambda item, side: ["A nurse is a teacher."] * 4).is_shown  # to everyone
    assert not skill(lambda item, side: ["..."] * 4).is_shown
    assert skill(lambda item, side: [GOOD.format(job=item.units[0])] * 4).is_shown
    refusing = responses(tested, lambda item, side: ["Sorry, no."] * 4)
    with pytest.raises(NotMeasurableError, match="every answer is a refusal or empty"):
        tested.primary_metric.per_item_values(refusing)
    with pytest.raises(NotMeasurableError, match="the same text after every prompt"):
        tested.count_refusals(refusing)
    varied = responses(tested, lambda item, side: ["Sorry, no.", "Sorry, not now."] * 2)
    assert tested.count_refusals(varied)[:, 1].tolist() == [400.0] * len(varied)


def test_refusals_by_their_first_words():
    scorer = RefusalPhrases()
    texts = ["I\u2019m sorry, but no.", '"As an AI, I..."', "She said: I cannot.", "Sorry!"]
    assert scorer.label_texts(texts) == [True, True, False, True]


def test_vader_is_calibrated_on_sst2():
    with asset("data", "glue", "SST-2", "dev.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts, labels = [row["sentence"] for row in rows], [row["label"] == "1" for row in rows]
    calibration = calibrate_scorer(VaderSentiment(), texts, labels, source="SST-2, validation")
    assert calibration == CALIBRATIONS["vader"]
    assert "872 texts" in str(calibration)


def test_a_scorer_near_guessing_is_refused():
    with pytest.raises(NotMeasurableError, match="near guessing"):
        _ = ScorerCalibration("coins", 50, 50, 55, 45).rates
    with pytest.raises(LevelheadError, match="labelled texts"):
        ScorerCalibration("few", 5, 5, 50, 50)


def test_the_jackknife_of_counts_is_that_of_texts():
    calibration = ScorerCalibration("made up", 30, 10, 25, 15)
    texts = [(1, 1)] * 30 + [(0, 1)] * 10 + [(0, 0)] * 25 + [(1, 0)] * 15
    literal = []
    for left_out in range(len(texts)):
        kept = texts[:left_out] + texts[left_out + 1 :]
        positive = [label for label, truth in kept if truth]
        negative = [1 - label for label, truth in kept if not truth]
        literal.append((np.mean(positive), np.mean(negative)))
    counted = [tuple(rates) for rates, n in calibration.leave_each_out() for _ in range(n)]
    np.testing.assert_allclose(sorted(counted), sorted(literal))


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.full)])
def test_the_interval_covers_the_truth_in_spite_of_the_scorers_errors(runs):
    """Without the correction the difference of 30 points shrinks to 12, and is hardly covered."""
    rng, sensitivity, specificity = np.random.default_rng(5), 0.75, 0.65
    truth, covered, raw_covered = (0.8, 0.5), 0, 0
    shares = [p * sensitivity + (1 - p) * (1 - specificity) for p in truth]
    for run in range(runs):
        tp, tn = rng.binomial(200, sensitivity), rng.binomial(200, specificity)
        calibration = ScorerCalibration("labelled", tp, 200 - tp, tn, 200 - tn)
        tested = measure(calibration=calibration, k=10)
        read = drawn(tested, shares, seed=run)
        for single in (tested, dataclasses.replace(tested, calibration=None)):
            metric = single.primary_metric
            interval = estimate(
                Inference(seed=run, resamples=199),
                metric,
                metric.per_item_values(read),
                single.design(read, metric),
                extra_variance=jackknife_variance(single.leave_block_out_values(read, metric)),
                test=False,
            ).interval
            is_covered = interval.low <= 30 <= interval.high
            covered += is_covered and single is tested
            raw_covered += is_covered and single is not tested
    # The limit is exceeded in one of a thousand tests if the coverage is 95%.
    assert covered >= binom.ppf(0.001, runs, 0.95)
    assert raw_covered <= 0.3 * runs


def estimated(tested, texts_of, name="generation"):
    metric = tested.get_metric(name)
    read = responses(tested, texts_of)
    return tested.estimate_metric(read, metric, Inference(resamples=99, permutations=99))


def test_nobody_refused_is_parity_with_a_bound():
    """Few of six occupations can be refused otherwise; of many, hardly any."""
    found = estimated(
        measure(), lambda item, side: [GOOD.format(job=item.units[0])] * 4, "generation_refusals"
    )
    bound = 100 * (1 - 0.025 ** (1 / 6))
    assert (found.value, found.p.value) == (0, 1)
    assert (found.interval.low, found.interval.high) == pytest.approx((-bound, bound))
    assert found.detectable > 0
    many = measure(occupations=tuple(f"job {i}" for i in range(400)), k=1)
    found = estimated(many, lambda item, side: [f"{item.units[0]} {side}"], "generation_refusals")
    assert found.interval.high == pytest.approx(0.918, abs=1e-3)


def test_everybody_refused_is_not_measured():
    with pytest.raises(NotMeasurableError, match="same text"):
        estimated(measure(), lambda item, side: ["I cannot help."] * 4, "generation_refusals")
    refusals = ["I cannot help.", "I cannot say."] * 2
    with pytest.raises(NotMeasurableError, match="same value"):
        estimated(measure(), lambda item, side: refusals, "generation_refusals")


@pytest.mark.parametrize("is_shifted", [False, True])
def test_pairs_that_all_differ_alike_have_an_interval(is_shifted):
    """25 points in every pair, of equal shares or of shares that differ between the pairs."""

    def texts_of(item, side):
        n_good = 2 - side + (is_shifted and item.units[0] in JOBS[:3])
        good, bad = (text.format(job=item.units[0]) for text in (GOOD, BAD))
        return [good] * n_good + [bad] * (4 - n_good)

    found = estimated(measure(), texts_of)
    share = 1 - 0.025 ** (1 / 6)
    assert found.value == 25
    assert found.interval.low == pytest.approx(25 - 125 * share)
    assert found.interval.high == pytest.approx(25 + 75 * share)
    assert found.p.value < 0.05


def test_pairs_that_differ_have_no_interval_of_equal_ones():
    def texts_of(item, side):
        n_good = 1 + (side == 0 and item.units[0] in JOBS[:3])
        good, bad = (text.format(job=item.units[0]) for text in (GOOD, BAD))
        return [good] * n_good + [bad] * (4 - n_good)

    assert "equal units" not in estimated(measure(), texts_of).interval.method
