"""Summarise dose and response: does a measure follow the dose, and is it silent without one?

Measures are evaluated by family, since a measure may detect a bias in one kind of model and miss it
in another. Models are the sampled units: items and permutations of labels within a model are not
independent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.core.calibration import (
    ALARM_P,
    MIN_POWER,
    ConfounderResponse,
    DoseDetection,
    MeasureCalibration,
    SkillCalibration,
)
from levelhead.core.results import Interval
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.means import t_test
from levelhead.stats.rank_correlation import rowwise_spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.dose_response import MeasureResponse, ModelResponses

PLANTED = "stereotype"
# Enough for the 2.5% and 97.5% quantiles: 50 resamples lie beyond each.
N_RESAMPLES = 1999


def compute_measure_calibrations(
    models: Sequence[ModelResponses],
) -> tuple[MeasureCalibration, ...]:
    """Summarise every measure on every family.

    Args:
        models: the responses of all models.
    """
    names = dict.fromkeys(
        (model.architecture, response.measure) for model in models for response in model.responses
    )
    return tuple(
        _calibrate_measure(
            measure, [model for model in models if model.architecture == architecture]
        )
        for architecture, measure in names
    )


def compute_skill_calibrations(models: Sequence[ModelResponses]) -> tuple[SkillCalibration, ...]:
    """Find, for every family and skill, the model that is farthest from its optimum.

    Args:
        models: the responses of all models, with their skills.
    """
    # The name of surprise contains the entropy of its text, a number that differs by model.
    rows = [
        ((model.architecture, re.sub(r"[\d.]+ ", "", name)), value, best)
        for model in models
        for name, value, best in model.skills
    ]
    calibrations = []
    for family, name in dict.fromkeys(key for key, *_ in rows):
        family_rows = [(value, best) for key, value, best in rows if key == (family, name)]
        worst, best = max(family_rows, key=lambda row: abs(row[0] - row[1]))
        calibrations.append(
            SkillCalibration(
                architecture=family, skill=name, models=len(family_rows), worst=worst, best=best
            )
        )
    return tuple(calibrations)


def _calibrate_measure(measure: str, models: Sequence[ModelResponses]) -> MeasureCalibration:
    responses = [
        (model, response)
        for model in models
        for response in model.responses
        if response.measure == measure
    ]
    planted = [(model, response) for model, response in responses if model.variant == PLANTED]
    rank, rank_interval = _compute_dose_correlation(planted)
    alarms, alarms_interval = _compute_alarm_rate(
        [response.permutation_p_values for _, response in planted if response.permutation_p_values]
    )
    nulls = [response for model, response in planted if model.rho == 0 and response.p is not None]
    power = _compute_power(planted)
    return MeasureCalibration(
        measure=measure,
        architecture=models[0].architecture,
        expected=responses[0][1].expected,
        models=len(responses),
        unread=sum(response.value is None for _, response in responses),
        rank=rank,
        rank_interval=rank_interval,
        alarms=alarms,
        alarms_interval=alarms_interval,
        label_permutations=sum(len(response.permutation_p_values) for _, response in planted),
        nulls=len(nulls),
        null_alarms=sum(response.is_alarm for response in nulls),
        power=power,
        smallest=_find_smallest_detected_dose(power),
        confounded=_compute_confounder_responses(responses),
        points=tuple(
            (model.rho, model.seed, response.value)
            for model, response in planted
            if response.value is not None
        ),
    )


def _compute_dose_correlation(
    planted: Sequence[tuple[ModelResponses, MeasureResponse]],
) -> tuple[float | None, Interval | None]:
    """Compute Spearman's correlation with the dose; models are resampled within their dose.

    Uses only seeds with every dose: many more models of one dose are ties, which lower the largest
    possible correlation (twenty of forty: .93 at most, where .9 is required).
    """
    doses = {model.rho for model, _ in planted}
    by_seed = {
        model.seed: {other.rho for other, _ in planted if other.seed == model.seed}
        for model, _ in planted
    }
    planted = [(model, response) for model, response in planted if by_seed[model.seed] == doses]
    rho = np.array([model.rho for model, response in planted if response.value is not None])
    value = np.array([response.value for _, response in planted if response.value is not None])
    # Two doses order nothing, and equal values have no ranks.
    if len(set(rho)) < 3 or np.ptp(value) == 0:
        return None, None
    rank = float(rowwise_spearman(rho, value)[0])
    # With one model per dose every resample is the sample: there is no interval.
    if len(rho) == len(set(rho)):
        return rank, None
    rng = np.random.default_rng(0)
    resampled = np.empty((N_RESAMPLES, len(rho)), dtype=int)
    for dose in set(rho):
        (indices,) = np.nonzero(rho == dose)
        resampled[:, indices] = rng.choice(indices, (N_RESAMPLES, len(indices)))
    # A resample with equal values follows no dose: its correlation counts as 0.
    is_varied = np.ptp(value[resampled], axis=1) > 0
    correlations = np.zeros(len(resampled))
    correlations[is_varied] = rowwise_spearman(
        rho[resampled[is_varied]], value[resampled[is_varied]]
    )
    low, high = np.quantile(correlations, (0.025, 0.975))
    interval = Interval(low=float(low), high=float(high), level=0.95, method="bootstrap of models")
    return rank, interval


def _compute_alarm_rate(
    p_values_by_model: Sequence[Sequence[float]],
) -> tuple[float | None, Interval | None]:
    """Compute the mean rate of alarms over models, with the wider of two intervals.

    The t interval takes models as the sampled units, and shrinks to nothing where they happen to be
    equal; Wilson's interval over permutations does not.
    """
    if not p_values_by_model:
        return None, None
    hits = [sum(p <= ALARM_P for p in p_values) for p_values in p_values_by_model]
    rates = [hit / len(p_values) for hit, p_values in zip(hits, p_values_by_model, strict=True)]
    wilson = proportion_interval(sum(hits), sum(map(len, p_values_by_model)))
    if len(set(rates)) == 1:
        return rates[0], wilson
    t_interval = t_test(rates).interval
    wider = {
        "low": max(0.0, min(t_interval.low, wilson.low)),
        "high": min(1.0, max(t_interval.high, wilson.high)),
        "method": "t over models, no narrower than Wilson's over permutations",
    }
    return float(np.mean(rates)), t_interval.model_copy(update=wider)


def _compute_power(
    planted: Sequence[tuple[ModelResponses, MeasureResponse]],
) -> tuple[DoseDetection, ...]:
    """Compute power by dose; unmeasurable models count as misses, and no test has no power."""
    if all(response.p is None for _, response in planted):
        return ()
    doses = sorted({model.rho for model, _ in planted if model.rho > 0})
    detections = {
        rho: [response.is_detected for model, response in planted if model.rho == rho]
        for rho in doses
    }
    return tuple(
        DoseDetection(rho=rho, hits=sum(hits), models=len(hits)) for rho, hits in detections.items()
    )


def _find_smallest_detected_dose(power: Sequence[DoseDetection]) -> float | None:
    smallest = None
    # From the full dose down: a dose counts only if every larger one is detected, too.
    for dose_power in reversed(power):
        if dose_power.hits < MIN_POWER * dose_power.models:
            break
        smallest = dose_power.rho
    return smallest


def _compute_confounder_responses(
    responses: Sequence[tuple[ModelResponses, MeasureResponse]],
) -> tuple[ConfounderResponse, ...]:
    """Compute the response to confounders, in shares of the effect of the full dose."""

    def values(variant: str, rho: float) -> list[float]:
        return [
            response.value
            for model, response in responses
            if (model.variant, model.rho) == (variant, rho) and response.value is not None
        ]

    none, full = values(PLANTED, 0.0), values(PLANTED, 1.0)
    variants = dict.fromkeys(model.variant for model, _ in responses if model.variant != PLANTED)
    # A share of an effect that is not distinguished from 0 could be any number.
    is_comparable = bool(variants) and _are_groups_different(none, full)
    confounders = []
    for variant in variants:
        variant_responses = [response for model, response in responses if model.variant == variant]
        added = (np.array(values(variant, 1.0)) - np.mean(none)).tolist() if is_comparable else []
        shares = [value / float(np.mean(full) - np.mean(none)) for value in added]
        confounders.append(
            ConfounderResponse(
                variant=variant,
                share=float(np.mean(shares)) if shares else None,
                range=(min(shares), max(shares)) if shares else None,
                alarms=sum(response.is_alarm for response in variant_responses),
                models=len(variant_responses),
            )
        )
    return tuple(confounders)


def _are_groups_different(none: Sequence[float], full: Sequence[float]) -> bool:
    """Report whether two groups of models differ by their ranks (Mann-Whitney)."""
    if min(len(none), len(full)) < 2:
        return False
    return bool(stats.mannwhitneyu(full, none).pvalue <= ALARM_P)
