"""Dose and response in models with an injected association, measure by measure.

With few seeds, models cannot be resampled: the interval of a rank correlation comes from the
uncertainty of each value, drawn as normal with the standard error that its own interval implies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.core.calibration import ALARM_P
from levelhead.core.results import Interval, Record
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.rank_correlation import rowwise_spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.injection.run import InjectedModelResponses, InjectionResponse

N_DRAWS = 1999
# A 95% interval of a normal variable is this many standard errors wide.
WIDTH = 2 * float(stats.norm.ppf(0.975))


class DoseResponse(Record):
    """One measure over the doses of an injection and of its placebo."""

    measure: str
    items: str
    models: int
    """Models with the association that gave a value."""
    unread: int
    """Models of either kind that gave none."""
    rank: float | None
    """Spearman correlation of the value with the dose; None with fewer than three doses."""
    rank_interval: Interval | None
    placebo_rank: float | None
    """The same under the placebo."""
    placebo_rank_interval: Interval | None
    effect: float | None
    """Mean difference of the full dose from dose 0."""
    smallest: float | None
    """Smallest dose that differs from dose 0 in every seed, to the side that was planted, with
    every larger one."""
    alarms: int
    """Placebo models that differ significantly from their dose 0, to either side."""
    placebos: int
    alarms_interval: Interval | None


def summarise_injection(models: Sequence[InjectedModelResponses]) -> tuple[DoseResponse, ...]:
    """Summarise every measure.

    Args:
        models: the models of the injection ("groups") and of its placebo ("colours").
    """
    keys = dict.fromkeys(
        (response.items, response.measure) for model in models for response in model.responses
    )
    return tuple(_summarise_measure(items, measure, models) for items, measure in keys)


def _summarise_measure(
    items: str, measure: str, models: Sequence[InjectedModelResponses]
) -> DoseResponse:
    by_kind: dict[str, list[tuple[InjectedModelResponses, InjectionResponse]]] = {
        "groups": [],
        "colours": [],
    }
    for model in models:
        for response in model.responses:
            if (response.items, response.measure) == (items, measure):
                by_kind[model.association].append((model, response))
    planted, placebo = (
        [(model.dose, response) for model, response in by_kind[kind] if response.value is not None]
        for kind in ("groups", "colours")
    )
    dosed = [response for dose, response in placebo if dose > 0 and response.p is not None]
    alarms = sum(response.p <= ALARM_P for response in dosed if response.p is not None)
    full = [
        response.difference
        for dose, response in planted
        if dose == 1 and response.difference is not None
    ]
    rank, rank_interval = compute_dose_rank(planted)
    placebo_rank, placebo_rank_interval = compute_dose_rank(placebo)
    return DoseResponse(
        measure=measure,
        items=items,
        models=len(planted),
        unread=sum(len(rows) for rows in by_kind.values()) - len(planted) - len(placebo),
        rank=rank,
        rank_interval=rank_interval,
        placebo_rank=placebo_rank,
        placebo_rank_interval=placebo_rank_interval,
        effect=float(np.mean(full)) if full else None,
        smallest=_find_smallest_dose(planted),
        alarms=alarms,
        placebos=len(dosed),
        alarms_interval=proportion_interval(alarms, len(dosed)) if dosed else None,
    )


def compute_dose_rank(
    rows: Sequence[tuple[float, InjectionResponse]],
) -> tuple[float | None, Interval | None]:
    """Compute Spearman's correlation of values with doses, and its interval.

    Args:
        rows: dose and response of every model that gave a value.
    """
    doses = np.array([dose for dose, _ in rows])
    values = np.array([response.value for _, response in rows], dtype=float)
    # Two doses order nothing, and equal values have no ranks.
    if len(set(doses)) < 3 or np.ptp(values) == 0:
        return None, None
    rank = float(rowwise_spearman(doses, values)[0])
    errors = np.array(
        [
            np.nan
            if response.interval is None
            else (response.interval.high - response.interval.low) / WIDTH
            for _, response in rows
        ]
    )
    if not np.isfinite(errors).all():
        return rank, None
    drawn = np.random.default_rng(0).normal(values, errors, (N_DRAWS, len(values)))
    is_varied = np.ptp(drawn, axis=1) > 0
    ranks = np.zeros(N_DRAWS)
    ranks[is_varied] = rowwise_spearman(np.tile(doses, (int(is_varied.sum()), 1)), drawn[is_varied])
    low, high = np.quantile(ranks, (0.025, 0.975))
    return rank, Interval(
        low=float(low), high=float(high), level=0.95, method="parametric bootstrap of values"
    )


def _find_smallest_dose(planted: Sequence[tuple[float, InjectionResponse]]) -> float | None:
    smallest = None
    # From the full dose down: a dose counts only if every larger one is detected, too.
    for dose in sorted({dose for dose, _ in planted if dose > 0}, reverse=True):
        if not all(_is_detected(response) for other, response in planted if other == dose):
            break
        smallest = dose
    return smallest


def _is_detected(response: InjectionResponse) -> bool:
    """Whether a value is significantly above that of dose 0."""
    is_alarm = response.p is not None and response.p <= ALARM_P
    return is_alarm and response.difference is not None and response.difference > 0
