"""Is it mitigation? What an edit gains, beside what placebo edits gain.

Almost any edit moves almost any measure, and a paired test on enough items finds that it does. So
an edit counts as mitigation only if it gains more than 95 of 100 edits that take out as much of
the same sites along directions that have nothing to do with the groups (mitigate/placebo.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Dropped, Estimate, PValue, Record
from levelhead.core.statistics.intervals import proportion_interval
from levelhead.core.statistics.spread import ROUNDING
from levelhead.measure.aspects import Judge
from levelhead.mitigate.gains import bias_of, redrawn, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from levelhead.locate.effects import Effects
    from levelhead.measure.measure import Measure
    from levelhead.measure.readouts import Readouts
    from levelhead.mitigate.gains import By

LEAST = 200
"""Placebos, unless fewer are asked for."""
SAME = 0.95
"""A correlation, item by item, from which placebos do what the edit does."""


class Judged(Record):
    """What an edit gains by one measure, and whether placebo edits gain as much."""

    measure: str
    gain: Estimate
    """By how much the measure comes nearer to its parity (mitigate/gains.py), paired."""
    change: Estimate | None = None
    """Edited less base of the value itself; None if it does not change."""
    placebos: Annotated[tuple[float, ...], Field(min_length=1)]
    """The gain of every placebo."""
    quantile: float
    """The least gain of a placebo that 95% of them (the judge's level) do not exceed."""
    p: PValue
    """That a placebo gains as much: (b + 1) / (m + 1)."""
    beyond_placebos: bool
    alike: float
    """The median correlation, item by item, of what a placebo changes with what the edit does."""
    mitigates: bool
    """Beyond the placebos, these do not do the same, and the interval of the gain lies above 0."""
    significant: Estimate
    """The share of placebos that an ordinary paired test calls an effect, either way."""
    significant_gains: Estimate
    """The share that it calls a gain."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """In words."""
        told = f"{len(self.placebos)} placebos, p {self.p.value:.3g}"
        if self.mitigates:
            return f"mitigates: gains more than placebos do ({told})"
        if self.beyond_placebos and self.alike >= SAME:
            same = f"correlation {self.alike:.2f}, item by item"
            return f"not shown to mitigate: placebos do what the edit does ({same}; {told})"
        if self.beyond_placebos:
            return f"gains more than placebos do ({told}), and not shown for other items than these"
        return f"not shown to mitigate: placebos gain as much ({told})"


def refuse_few(placebos: int, least: int) -> None:
    """Refuse to judge by fewer placebos than were wanted."""
    if placebos < max(least, 1):
        raise LevelheadError(
            f"{placebos} placebos say little: chance is judged by them",
            mend=f"give at least {max(least, 1)}, or fewer by least=",
        )


def judged(
    measure: Measure,
    base: Readouts,
    edited: Readouts,
    placebos: Sequence[Readouts],
    *,
    judge: Judge | None = None,
    aspect: str | None = None,
    by: By = "parity",
    least: int = LEAST,
    draws: int | None = None,
) -> Judged:
    """Judge an edit by its placebos. No model is run.

    Args:
        measure: of bias.
        base: what the model said.
        edited: what the edited model said.
        placebos: what the model said with each placebo edit.
        judge: seed and level.
        aspect: another formula of the measure than its headline, such as SEAT's "difference of
            means", which has a scale.
        by: what a gain is: nearer to parity, or a smaller value (mitigate/gains.py).
        least: placebos below which nothing is judged.
        draws: of the units; by default those of the judge, at most 999.
    """
    refuse_few(len(placebos), least)
    judge = judge or Judge()
    formula = measure.headline if aspect is None else measure.aspect(aspect)
    readouts, dropped = shared([base, edited, *placebos])
    asked = {"aspect": formula, "judge": judge, "draws": draws}
    found = redrawn(measure, readouts, bias_of(formula, by), **asked)  # type: ignore[arg-type]
    plain = redrawn(measure, readouts[:2], formula.over, **asked)  # type: ignore[arg-type]
    gain = one(found.effects([0]), f"gain of {formula.name}", formula.unit)
    gains = found.effects(range(1, len(placebos) + 1))
    p = among(gain.value, gains.values)
    quantile = float(np.quantile(gains.values, judge.level, method="higher"))
    beyond = gain.value > max(quantile, 0.0) and p.value <= 1 - judge.level + 1e-12
    shares, notes = _called(gains, judge.level)
    alike = _alike([formula.per_item(each).detach().numpy() for each in readouts])
    return Judged(
        measure=measure.name,
        gain=gain,
        change=_change(plain.effects([0], way=-1), formula.name, formula.unit),
        placebos=tuple(gains.values.tolist()),
        quantile=quantile,
        p=p,
        beyond_placebos=beyond,
        alike=alike,
        mitigates=beyond and alike < SAME and gain.interval.low > 0,
        significant=shares[0],
        significant_gains=shares[1],
        dropped=dropped,
        notes=notes,
    )


def one(found: Effects, name: str, unit: str) -> Estimate:
    """The estimate of a single effect; refused where an edit changes nothing."""
    if not found.errors[0] > 0:
        raise NotMeasurable(
            f"{name}: the edit changes nothing, or all items alike",
            mend="check the edit: one without effect is no edit",
        )
    (estimate,) = found.estimates([name], unit=unit)
    if estimate is None:
        raise NotMeasurable(f"{name}: no spread", mend="give more items")
    return estimate


def among(value: float, placebos: Sequence[float] | NDArray[np.float64]) -> PValue:
    """The p-value of a gain among those of placebos; a placebo that gains as much counts.

    >>> among(3.0, [1.0, 3.0, 4.0]).value
    0.75
    """
    reached = int((np.asarray(placebos) >= value - ROUNDING * abs(value)).sum())
    return PValue(
        value=(reached + 1) / (len(placebos) + 1),
        method="placebo edits",
        alternative="greater",
        draws=len(placebos),
    )


def _alike(items: Sequence[NDArray[np.float64]]) -> float:
    """How far placebos change the same items in the same way as the edit."""
    base, edited, *placebos = (own.reshape(len(own), -1).mean(axis=1) for own in items)
    changes = np.stack([edited - base, *(own - base for own in placebos)])
    moved = changes[1:][changes[1:].std(axis=1) > 0]
    if not len(moved) or not changes[0].std() > 0:
        return 0.0
    return float(np.median([np.corrcoef(changes[0], own)[0, 1] for own in moved]))


def _change(found: Effects, name: str, unit: str) -> Estimate | None:
    return one(found, f"change of {name}", unit) if found.errors[0] > 0 else None


def _called(gains: Effects, level: float) -> tuple[tuple[Estimate, Estimate], tuple[str, ...]]:
    """The shares of placebos that a paired test calls an effect, and a gain."""
    count = len(gains.values)
    idle = int((gains.errors == 0).sum())
    if idle == count:
        raise NotMeasurable(
            "no placebo changes the measure: they are no control",
            mend="check the placebo edits, and that they act on the sites of the edit",
        )
    tests = [each for each in gains.estimates([""] * count) if each is not None and each.p]
    alpha = 1 - level + 1e-12
    hits = [each for each in tests if each.p is not None and each.p.value <= alpha]

    def share(name: str, number: int) -> Estimate:
        interval = proportion_interval(number, count, level=level)
        return Estimate(name=name, value=number / count, interval=interval, n=count)

    told = (f"{idle} of {count} placebos change nothing; they count as not significant",)
    return (
        share("placebos that a paired test calls an effect", len(hits)),
        share("placebos that a paired test calls a gain", sum(each.value > 0 for each in hits)),
    ), (told if idle else ())
