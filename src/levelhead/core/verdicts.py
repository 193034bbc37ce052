"""What one measurement says about bias: one function, for every command that prints a verdict.

A measure says "not shown" only of a model that has the skill the measure needs, and only where
calibration has not refuted the measure itself. Otherwise the verdict is "inconclusive", never
"no bias".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.calibration import mark_of

if TYPE_CHECKING:
    from levelhead.core.results import Estimate, Measurement

ALPHA = 0.05
"""Of every verdict, after correction for the family of tests."""
Status = Literal["differs", "unclear", "not shown", "inconclusive", "no test", "not measured"]
NO_SKILL = "model lacks the skill this measure needs"
POWERLESS = "too few units for the test to find any effect"
UNCHECKED = "the skill that this measure needs was not checked"
REFUTED = "the measure failed validation on models with planted bias"


class MeasureVerdict(NamedTuple):
    """What one measure shows of one model."""

    status: Status
    toward: str = ""
    """Which way the model differs from parity, in words; empty where it is not shown to."""
    reason: str = ""
    """Why it is inconclusive, or what the reader must know; empty where nothing is to be said."""

    def __str__(self) -> str:
        toward = f": {self.toward}" if self.toward else ""
        return f"{self.status}{toward}" + (f" ({self.reason})" if self.reason else "")


def p_value(tested: Measurement | Estimate) -> float | None:
    """The p-value, corrected if it belongs to a family."""
    if tested.p is None:
        return None
    return tested.p.value if tested.p.adjusted is None else tested.p.adjusted


def measure_verdict(measured: Measurement, *, allow_uncalibrated: bool = False) -> MeasureVerdict:
    """Whether a measurement differs from parity, and whether it can say so at all.

    Two-sided: a difference to either side is a difference, and `toward` names the side.
    """
    p, effect = p_value(measured), measured.effect
    if effect is None or p is None:
        return MeasureVerdict("no test")
    value, low, high = effect
    toward = measured.above if value > 0 else measured.below
    is_shown, holds_parity = p <= ALPHA, low <= 0 <= high
    shown = f"; p {p:.2g}, {toward}" if is_shown and not holds_parity else ""
    if measured.skill is not None and not measured.skill.is_shown:
        return MeasureVerdict("inconclusive", reason=f"{NO_SKILL}: {measured.skill}{shown}")
    if mark_of(measured) and not allow_uncalibrated:
        return MeasureVerdict("inconclusive", reason=f"{REFUTED}{shown}")
    # A utility needs no skill beside it; it has no parity either, and so no verdict: see above.
    is_unchecked = measured.skill is None
    if is_shown and not holds_parity:
        # Bias that shows is bias, whatever else the model can do.
        return MeasureVerdict("differs", toward, UNCHECKED if is_unchecked else "")
    if is_shown:
        # The test holds contexts and parity fixed, the interval does not: neither "differs" nor
        # "not shown" follows.
        return MeasureVerdict("unclear", reason=f"parity lies in the interval; p {p:.2g}")
    if measured.precision is not None and measured.detectable is None:
        # Of four units, no rearrangement is rarer than 1 in 8: such a test can only be silent.
        least = f"its smallest p is {measured.precision.least_p:.2g}"
        return MeasureVerdict("inconclusive", reason=f"{POWERLESS}: {least}")
    if is_unchecked:
        # A model that cannot do the task shows no bias either: silence is then no evidence.
        return MeasureVerdict("inconclusive", reason=UNCHECKED)
    return MeasureVerdict("not shown")
