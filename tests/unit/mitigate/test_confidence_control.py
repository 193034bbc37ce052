"""Lost confidence: the temperature against a root finder, and what is left beyond it."""

import numpy as np
import pytest
import torch
from metric_cases import made, model
from scipy import optimize
from simulated import INFERENCE, Plain, follows, read, triples

from levelhead.core.errors import NotMeasurableError
from levelhead.measures.next_sentence.strength import Strength
from levelhead.mitigate.controls.confidence_control import (
    ConfidenceControl,
    apply_temperature,
    fit_temperature,
    match_moments,
    run_confidence_control,
)
from levelhead.mitigate.controls.placebo_test import PlaceboResponses

RULER = Strength(top=0.2)


def test_the_temperature_makes_the_base_as_unsure_as_the_edit():
    rng = np.random.default_rng(0)
    before, after = rng.normal(1, 3, size=(20, 4)), rng.normal(-1, 1, size=(20, 4))
    wanted = np.abs(after).mean()
    root = optimize.brentq(lambda t: np.abs(before / t).mean() - wanted, 1e-3, 1e3)
    result = fit_temperature(follows(before), follows(after))
    assert result == pytest.approx(root)
    values = apply_temperature(follows(before), result).values
    torch.testing.assert_close(values, follows(before / root).values)
    assert float(values.exp().sum(-1).sub(1).abs().max()) < 1e-12


def test_gains_are_told_apart():
    rng = np.random.default_rng(1)
    odds = triples(rng, 80, 1.0)
    other = (odds - np.array([1, 0, 0, 1])) / 2 + rng.normal(0, 0.1, size=odds.shape)
    result = run_confidence_control(
        RULER, PlaceboResponses(follows(odds), follows(other)), inference=INFERENCE
    )
    cooled = odds / result.temperature

    def lean(subset):
        p = 1 / (1 + np.exp(-subset))
        s = np.sort(p[:, 0] - p[:, 1] - p[:, 2] + p[:, 3])
        return (s[-16:].mean() + s[:16].mean()) / 2

    assert result.confidence == pytest.approx((np.abs(odds).mean(), np.abs(other).mean()))
    assert result.temperature == pytest.approx(result.confidence[0] / result.confidence[1])
    assert result.gain.value == pytest.approx(abs(lean(cooled)) - abs(lean(other)))
    assert result.gain_from_temperature.value == pytest.approx(abs(lean(odds)) - abs(lean(cooled)))
    assert result.exceeds_confidence_loss
    assert result.p is None
    assert result.verdict.startswith("mitigates beyond lost confidence (temperature ")
    assert ConfidenceControl.from_json(result.to_json()) == result


def test_an_edit_that_only_tempers_is_not_beyond_it():
    odds = triples(np.random.default_rng(2), 80, 1.0, spread=0.7)
    result = run_confidence_control(
        RULER, PlaceboResponses(follows(odds), follows(odds / 8)), inference=INFERENCE
    )
    assert result.temperature == pytest.approx(8)
    assert result.gain is None
    assert result.gain_from_temperature.interval.low > 0
    assert not result.exceeds_confidence_loss
    assert result.verdict == "no mitigation shown beyond lost confidence (temperature 8)"
    called, gained = [], []
    for run in range(60):
        rng = np.random.default_rng([3, run])
        odds = triples(rng, 80, 1.0, spread=0.7)
        other = odds / 8 + rng.normal(0, 0.05, size=odds.shape)
        output = run_confidence_control(
            RULER,
            PlaceboResponses(follows(odds), follows(other)),
            inference=INFERENCE,
            n_resamples=49,
        )
        called.append(output.exceeds_confidence_loss)
        gained.append(output.gain_from_temperature.interval.low > 0)
    assert np.mean(called) <= 0.08
    assert np.mean(gained) >= 0.8


@pytest.mark.parametrize(("offset", "scale"), [(3.0, 0.01), (9.0, 1.0)])
def test_saying_the_same_of_everything_is_not_beyond(offset, scale):
    # Sure of everything, and as sure as before: a temperature alone would pass it.
    rng = np.random.default_rng(5)
    odds = triples(rng, 80, 1.0) + 2
    other = (odds - odds.mean()) * scale + offset + rng.normal(0, 0.01 * scale, size=odds.shape)
    result = run_confidence_control(
        RULER, PlaceboResponses(follows(odds), follows(other)), inference=INFERENCE
    )
    assert result.temperature < 1.5
    assert result.gain.interval.low > 0
    assert not result.exceeds_confidence_loss
    assert result.verdict == "no mitigation shown beyond a shift and a scale of all log-odds"
    alike = match_moments(follows(odds), follows(other)).values
    difference = alike[..., 0] - alike[..., 1]
    assert float(difference.mean()) == pytest.approx(other.mean())
    assert float(difference.std(correction=0)) == pytest.approx(other.std())


def test_placebos_are_tempered_too():
    rng = np.random.default_rng(4)
    odds = triples(rng, 80, 1.0)
    shift = np.array([1, 0, 0, 1])
    others = [follows(odds / 2 + rng.normal(0, 0.1, size=odds.shape)) for _ in range(19)]
    real = follows((odds - shift) / 2)
    result = run_confidence_control(
        RULER, PlaceboResponses(follows(odds), real, others), inference=INFERENCE
    )
    assert result.p.value == 1 / 20
    assert result.exceeds_confidence_loss
    output = run_confidence_control(
        RULER, PlaceboResponses(follows(odds), real, [*others[2:], real, real]), inference=INFERENCE
    )
    assert output.p.value == 3 / 20
    assert not output.exceeds_confidence_loss


def test_other_readouts_are_refused():
    rows = follows(np.ones((3, 4)))
    with pytest.raises(NotMeasurableError, match=r"shape \[3\] are no log-probabilities of two"):
        fit_temperature(read([1.0, 2.0, 3.0]), rows)
    with pytest.raises(NotMeasurableError, match=r"shape \[2, 1, 2\] are no log-prob"):
        run_confidence_control(
            Plain(), PlaceboResponses(*[read(-np.ones((2, 1, 2)))] * 2), inference=INFERENCE
        )
    measure = made("contrast")  # log-likelihoods and numbers of tokens
    (result,) = measure.read(model("contrast"))
    with pytest.raises(NotMeasurableError, match="no log-probabilities of two classes"):
        run_confidence_control(measure, PlaceboResponses(result, result), inference=INFERENCE)
    with pytest.raises(NotMeasurableError, match=r"is 1 before and 0 after the edit"):
        fit_temperature(rows, follows(np.zeros((3, 4))))


def test_a_next_sentence_head_is_understood():
    measure, lm = made("strength"), model("strength")
    (result,) = measure.read(lm)
    assert fit_temperature(result, apply_temperature(result, 2.0)) == pytest.approx(2.0)
