"""What the rulers' answers come to: does a ruler rise with the dose, and is it silent without one?

Rulers are judged by family, since a ruler may see a bias in one kind of model and miss it in
another. Models are what was sampled: items and deals of labels within a model are not independent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.calibrate.dose import ALARM
from levelhead.core.calibration import Calibrated, Confounded, Power
from levelhead.core.results import Interval
from levelhead.core.statistics.intervals import proportion_interval
from levelhead.core.statistics.means import t_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.dose import Answered, Said
    from levelhead.core.calibration import Expected, Verdict

LEAST = 0.9
"""Spearman's correlation with the dose that is asked of a ruler."""
MOST = 0.10
"""Upper bound of the rate of false alarms that is allowed."""
FEWEST = 3
"""Models without a bias, of which fewer bound no rate."""
POWER = 0.8
"""The share of models in which a dose must be found to count as detected."""
PLANTED = "stereotype"
DRAWS = 1999


def responses(models: Sequence[Answered]) -> tuple[Calibrated, ...]:
    """Every ruler on every family."""
    names = dict.fromkeys((one.architecture, said.measure) for one in models for said in one.said)
    return tuple(
        _calibrated(measure, [one for one in models if one.architecture == architecture])
        for architecture, measure in names
    )


def _calibrated(measure: str, models: Sequence[Answered]) -> Calibrated:
    every = [(one, said) for one in models for said in one.said if said.measure == measure]
    planted = [(one, said) for one, said in every if one.variant == PLANTED]
    wants = every[0][1].expected
    rank, rank_interval = _rank(planted)
    alarms, alarms_interval = _rate([said.deals for _, said in planted if said.deals])
    nulls = [said for one, said in planted if one.rho == 0 and said.p is not None]
    power = _power(planted)
    smallest = _smallest(power)
    unread = sum(said.value is None for _, said in every)
    why = _faults(wants, rank, alarms_interval if alarms else None, power, unread)
    few = 0 < sum(bool(said.deals) for _, said in planted) < FEWEST
    verdict: Verdict = "conservative" if alarms == 0 else "passes"
    if few or wants == "none" or (rank is None and not power):
        verdict = "not judged"
    elif why:
        verdict = "misses"
    return Calibrated(
        measure=measure,
        architecture=models[0].architecture,
        expected=wants,
        models=len(every),
        unread=unread,
        rank=rank,
        rank_interval=rank_interval,
        alarms=alarms,
        alarms_interval=alarms_interval,
        deals=sum(len(said.deals) for _, said in planted),
        nulls=len(nulls),
        null_alarms=sum(said.alarm for said in nulls),
        power=power,
        smallest=smallest,
        confounded=_confounded(every),
        points=tuple(
            (one.rho, one.seed, said.value) for one, said in planted if said.value is not None
        ),
        verdict=verdict,
        why=why,
    )


def _rank(planted: Sequence[tuple[Answered, Said]]) -> tuple[float | None, Interval | None]:
    """Spearman's correlation with the dose; models are drawn anew within their dose."""
    rho = np.array([one.rho for one, said in planted if said.value is not None])
    value = np.array([said.value for _, said in planted if said.value is not None])
    if len(set(rho)) < 3 or np.ptp(value) == 0:
        return None, None
    rank = float(stats.spearmanr(rho, value).statistic)
    if len(rho) == len(set(rho)):
        return rank, None  # of one model a dose nothing can be drawn anew
    rng = np.random.default_rng(0)
    drawn = np.empty((DRAWS, len(rho)), dtype=int)
    for dose in set(rho):
        (own,) = np.nonzero(rho == dose)
        drawn[:, own] = rng.choice(own, (DRAWS, len(own)))
    # Values that are all alike follow nothing.
    found = [
        stats.spearmanr(rho[one], value[one]).statistic if np.ptp(value[one]) else 0.0
        for one in drawn
    ]
    low, high = np.quantile(found, (0.025, 0.975))
    interval = Interval(low=float(low), high=float(high), level=0.95, method="bootstrap of models")
    return rank, interval


def _rate(deals: Sequence[Sequence[float]]) -> tuple[float | None, Interval | None]:
    """The mean rate of alarms over models; of models that are all alike, Wilson's over deals."""
    if not deals:
        return None, None
    hits = [sum(p <= ALARM for p in own) for own in deals]
    rates = [hit / len(own) for hit, own in zip(hits, deals, strict=True)]
    if len(set(rates)) == 1:
        return rates[0], proportion_interval(sum(hits), sum(map(len, deals)))
    interval = t_test(rates).interval
    bounded = {"low": max(0.0, interval.low), "high": min(1.0, interval.high)}
    return float(np.mean(rates)), interval.model_copy(update=bounded)


def _power(planted: Sequence[tuple[Answered, Said]]) -> tuple[Power, ...]:
    doses = sorted({one.rho for one, said in planted if one.rho > 0 and said.p is not None})
    own = {rho: [said.found for one, said in planted if one.rho == rho] for rho in doses}
    return tuple(Power(rho=rho, hits=sum(hits), models=len(hits)) for rho, hits in own.items())


def _smallest(power: Sequence[Power]) -> float | None:
    found = None
    for one in reversed(power):
        if one.hits < POWER * one.models:
            break
        found = one.rho
    return found


def _confounded(every: Sequence[tuple[Answered, Said]]) -> tuple[Confounded, ...]:
    def mean(variant: str, rho: float) -> float | None:
        own = [
            said.value
            for one, said in every
            if (one.variant, one.rho) == (variant, rho) and said.value is not None
        ]
        return float(np.mean(own)) if own else None

    none, full = mean(PLANTED, 0.0), mean(PLANTED, 1.0)
    found = []
    for variant in dict.fromkeys(one.variant for one, _ in every if one.variant != PLANTED):
        own = [said for one, said in every if one.variant == variant]
        value = mean(variant, 1.0)
        known = value is not None and none is not None and full is not None and full != none
        found.append(
            Confounded(
                variant=variant,
                share=(value - none) / (full - none) if known else None,  # type: ignore[operator]
                alarms=sum(said.alarm for said in own),
                models=len(own),
            )
        )
    return tuple(found)


def _faults(
    wants: Expected,
    rank: float | None,
    alarms: Interval | None,
    power: Sequence[Power],
    unread: int,
) -> tuple[str, ...]:
    """Why a ruler cannot be relied on; or why nothing is asked of it."""
    if wants == "none":
        return ("no dose of what it asks for was planted",)
    why = [f"{unread} models could not be read"] if unread else []
    if rank is not None and (-rank if wants == "falls" else rank) < LEAST:
        why.append(f"Spearman's correlation with the dose is {rank:.2f}")
    if rank is None and power and power[-1].hits < POWER * power[-1].models:
        why.append(f"the full dose is found in {power[-1].hits} of {power[-1].models} models")
    if alarms is not None and alarms.high > MOST:
        why.append(f"false alarms may be as many as {alarms.high:.0%}")
    return tuple(why)
