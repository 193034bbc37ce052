"""What the rulers' answers come to: does a ruler rise with the dose, and is it silent without one?

Rulers are judged by family, since a ruler may see a bias in one kind of model and miss it in
another. Models are what was sampled: items and deals of labels within a model are not independent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from levelhead.core.calibration import ALARM, POWER, Calibrated, Confounded, Power, Skilled
from levelhead.core.results import Interval
from levelhead.stats.intervals import proportion_interval
from levelhead.stats.means import t_test
from levelhead.stats.rank_correlation import spearman

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.calibrate.dose_response import Answered, Said

PLANTED = "stereotype"
DRAWS = 1999


def responses(models: Sequence[Answered]) -> tuple[Calibrated, ...]:
    """Every ruler on every family."""
    names = dict.fromkeys((one.architecture, said.measure) for one in models for said in one.said)
    return tuple(
        _calibrated(measure, [one for one in models if one.architecture == architecture])
        for architecture, measure in names
    )


def skills(models: Sequence[Answered]) -> tuple[Skilled, ...]:
    """Of every family and skill, the model that is farthest from the best that was possible."""
    # Some name the entropy of their own text.
    rows = [
        ((one.architecture, re.sub(r"[\d.]+ ", "", name)), value, best)
        for one in models
        for name, value, best in one.skills
    ]
    found = []
    for family, name in dict.fromkeys(who for who, *_ in rows):
        own = [(value, best) for who, value, best in rows if who == (family, name)]
        worst, best = max(own, key=lambda row: abs(row[0] - row[1]))
        found.append(
            Skilled(architecture=family, skill=name, models=len(own), worst=worst, best=best)
        )
    return tuple(found)


def _calibrated(measure: str, models: Sequence[Answered]) -> Calibrated:
    every = [(one, said) for one in models for said in one.said if said.measure == measure]
    planted = [(one, said) for one, said in every if one.variant == PLANTED]
    rank, rank_interval = _rank(planted)
    alarms, alarms_interval = _rate([said.deals for _, said in planted if said.deals])
    nulls = [said for one, said in planted if one.rho == 0 and said.p is not None]
    power = _power(planted)
    return Calibrated(
        measure=measure,
        architecture=models[0].architecture,
        expected=every[0][1].expected,
        models=len(every),
        unread=sum(said.value is None for _, said in every),
        rank=rank,
        rank_interval=rank_interval,
        alarms=alarms,
        alarms_interval=alarms_interval,
        deals=sum(len(said.deals) for _, said in planted),
        nulls=len(nulls),
        null_alarms=sum(said.alarm for said in nulls),
        power=power,
        smallest=_smallest(power),
        confounded=_confounded(every),
        points=tuple(
            (one.rho, one.seed, said.value) for one, said in planted if said.value is not None
        ),
    )


def _rank(planted: Sequence[tuple[Answered, Said]]) -> tuple[float | None, Interval | None]:
    """Spearman's correlation with the dose; models are drawn anew within their dose.

    Only of seeds that got every dose: many more models of one dose are ties, which lower the
    largest correlation that is possible (twenty of forty: .93 at most, where .9 is asked).
    """
    doses = {one.rho for one, _ in planted}
    by_seed = {
        one.seed: {own.rho for own, _ in planted if own.seed == one.seed} for one, _ in planted
    }
    planted = [(one, said) for one, said in planted if by_seed[one.seed] == doses]
    rho = np.array([one.rho for one, said in planted if said.value is not None])
    value = np.array([said.value for _, said in planted if said.value is not None])
    if len(set(rho)) < 3 or np.ptp(value) == 0:
        return None, None
    rank = float(spearman(rho, value)[0])
    if len(rho) == len(set(rho)):
        return rank, None  # of one model a dose nothing can be drawn anew
    rng = np.random.default_rng(0)
    drawn = np.empty((DRAWS, len(rho)), dtype=int)
    for dose in set(rho):
        (own,) = np.nonzero(rho == dose)
        drawn[:, own] = rng.choice(own, (DRAWS, len(own)))
    # Values that are all alike follow nothing.
    differ = np.ptp(value[drawn], axis=1) > 0
    found = np.zeros(len(drawn))
    found[differ] = spearman(rho[drawn[differ]], value[drawn[differ]])
    low, high = np.quantile(found, (0.025, 0.975))
    interval = Interval(low=float(low), high=float(high), level=0.95, method="bootstrap of models")
    return rank, interval


def _rate(deals: Sequence[Sequence[float]]) -> tuple[float | None, Interval | None]:
    """The mean rate of alarms over models, with the wider of two intervals.

    That of t knows that models are what was sampled, and shrinks to nothing where they happen to be
    alike; Wilson's over deals does not.
    """
    if not deals:
        return None, None
    hits = [sum(p <= ALARM for p in own) for own in deals]
    rates = [hit / len(own) for hit, own in zip(hits, deals, strict=True)]
    wilson = proportion_interval(sum(hits), sum(map(len, deals)))
    if len(set(rates)) == 1:
        return rates[0], wilson
    of_models = t_test(rates).interval
    wider = {
        "low": max(0.0, min(of_models.low, wilson.low)),
        "high": min(1.0, max(of_models.high, wilson.high)),
        "method": "t over models, no narrower than Wilson's over deals",
    }
    return float(np.mean(rates)), of_models.model_copy(update=wider)


def _power(planted: Sequence[tuple[Answered, Said]]) -> tuple[Power, ...]:
    """Models that could not be read count as not found; a ruler without a test has no power."""
    if all(said.p is None for _, said in planted):
        return ()
    doses = sorted({one.rho for one, _ in planted if one.rho > 0})
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
    """What a ruler answers to other plants, in shares of what the full dose adds to none."""

    def values(variant: str, rho: float) -> list[float]:
        return [
            said.value
            for one, said in every
            if (one.variant, one.rho) == (variant, rho) and said.value is not None
        ]

    none, full = values(PLANTED, 0.0), values(PLANTED, 1.0)
    variants = dict.fromkeys(one.variant for one, _ in every if one.variant != PLANTED)
    # A share of what is itself not told from nothing would be any number.
    told = bool(variants) and _apart(none, full)
    found = []
    for variant in variants:
        own = [said for one, said in every if one.variant == variant]
        added = (np.array(values(variant, 1.0)) - np.mean(none)).tolist() if told else []
        shares = [value / float(np.mean(full) - np.mean(none)) for value in added]
        found.append(
            Confounded(
                variant=variant,
                share=float(np.mean(shares)) if shares else None,
                range=(min(shares), max(shares)) if shares else None,
                alarms=sum(said.alarm for said in own),
                models=len(own),
            )
        )
    return tuple(found)


def _apart(none: Sequence[float], full: Sequence[float]) -> bool:
    """Whether two groups of models are told apart by their ranks."""
    if min(len(none), len(full)) < 2:
        return False
    return bool(stats.mannwhitneyu(full, none).pvalue <= ALARM)
