"""The scale on which a report draws all tests: effects in units of the smallest detectable one.

Measures have different units, so their values share no axis. The distance from parity over the
minimum detectable effect has the same meaning for every test: beyond 1, the test detects an effect
of this size four times out of five.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from levelhead.core.results import Measurement

MIN_LIMIT, MAX_LIMIT = 2, 8
"""Smallest and largest end of the axis; a larger effect is drawn at the end, with an arrow."""
MAX_LIMIT_WITH_UNIT = 4
"""Longest axis on which a narrow screen has room for the labels of -1, 0 and 1."""
LOG_ODDS, STANDARD_DEVIATIONS, PERCENT = "log-odds", "standard deviations", "%"
MAX_LOG_ODDS = 7
"""Beyond it, a ratio of odds is above a thousand and no readable number."""
COHEN = ((0.8, "large"), (0.5, "medium"), (0.2, "small"), (0.0, "very small"))
"""Conventional sizes of a standardised difference (Cohen 1988)."""


class ScaledEffect(NamedTuple):
    """A distance from parity and its interval, in units of the minimum detectable effect."""

    value: float
    low: float
    high: float


class EffectTrack(NamedTuple):
    """An effect on the common axis, as percentages of its width."""

    value: float
    low: float
    high: float
    band_low: float
    band_high: float
    """Ends of the band of effects below the minimum detectable one."""
    is_cut_low: bool
    is_cut_high: bool
    label: str
    """The effect in words, for readers who cannot see it."""


class AxisTick(NamedTuple):
    """A tick of the common axis."""

    position: float
    label: str
    is_tight: bool
    """Whether the label has no room on a narrow screen."""


def scale_effect(measurement: Measurement | None) -> ScaledEffect | None:
    """Scale the effect of a measurement; None without a parity or a minimum detectable effect."""
    if measurement is None or measurement.effect is None or measurement.detectable is None:
        return None
    value, low, high = (part / measurement.detectable for part in measurement.effect)
    return ScaledEffect(value, low, high)


def strength_of(measurement: Measurement | None) -> float:
    """Size of an effect in units of the minimum detectable effect; 0 if there is none."""
    effect = scale_effect(measurement)
    return 0.0 if effect is None else abs(effect.value)


def axis_limit(effects: Iterable[ScaledEffect]) -> int:
    """The end of an axis that shows all effects, within fixed limits."""
    ends = [abs(end) for effect in effects for end in (effect.low, effect.high)]
    return min(MAX_LIMIT, max(MIN_LIMIT, math.ceil(max(ends, default=0.0))))


def place_effect(effect: ScaledEffect, limit: int) -> EffectTrack:
    """Place an effect on the axis from -limit to limit."""

    def position(value: float) -> float:
        return round(50 + 50 * max(-limit, min(limit, value)) / limit, 2)

    return EffectTrack(
        position(effect.value),
        position(effect.low),
        position(effect.high),
        position(-1),
        position(1),
        effect.low < -limit,
        effect.high > limit,
        f"{effect.value:.1f} times the smallest effect that this test reliably detects, "
        f"interval {effect.low:.1f} to {effect.high:.1f}; parity is 0",
    )


def axis_ticks(limit: int) -> tuple[AxisTick, ...]:
    """The ticks of the axis: its ends, parity, and the minimum detectable effect."""
    values = sorted({-limit, -1, 0, 1, limit})
    return tuple(
        AxisTick(
            round(50 + 50 * value / limit, 2),
            f"{value:+d}x" if value else "parity",
            abs(value) == 1 and limit > MAX_LIMIT_WITH_UNIT,
        )
        for value in values
    )


def describe_size(measurement: Measurement) -> str:
    """The distance from parity and its interval, in words that need no knowledge of the measure.

    >>> from types import SimpleNamespace as Shown
    >>> ends = Shown(level=0.95)
    >>> describe_size(
    ...     Shown(unit="log-odds", effect=(-0.7, -0.9, -0.5), value=0.7, parity=0.0, interval=ends)
    ... )
    'odds 2 to 1 (95% interval 1.6 to 2.5)'
    >>> describe_size(
    ...     Shown(unit="% of pairs", effect=(8.0, 2.0, 9.0), value=58.0, parity=50.0, interval=ends)
    ... )
    '58% of pairs (95% interval 52 to 59); parity is 50%'
    """
    if measurement.effect is None or measurement.parity is None:
        return ""
    value, *ends = measurement.effect
    unit, level = measurement.unit, f"{measurement.interval.level:.0%} interval"
    # The side of a detected effect is named in words, so the size is its distance from parity. An
    # interval on both sides keeps its signs: it has no side, and the chart shows them, too.
    has_side = min(ends) > 0 or max(ends) < 0
    is_mirrored = value < 0 and (has_side or unit == LOG_ODDS)
    low, high = sorted(-end if is_mirrored else end for end in ends)
    distance = -value if is_mirrored else value
    if unit == LOG_ODDS and distance < MAX_LOG_ODDS:
        # exp overflows above 709.
        odds, least, most = (math.exp(number) for number in (distance, low, min(high, 700)))
        return f"odds {odds:.2g} to 1 ({level} {least:.2g} to {most:.2g})"
    if unit == STANDARD_DEVIATIONS:
        word = next(word for least, word in COHEN if abs(distance) >= least)
        return f"effect size {distance:.2g} ({level} {low:.2g} to {high:.2g}), by convention {word}"
    if unit.startswith(PERCENT):
        low, high = (measurement.parity + end for end in ends)
        parity = f"parity is {measurement.parity:.3g}%"
        return f"{measurement.value:.3g}{unit} ({level} {low:.3g} to {high:.3g}); {parity}"
    return f"{distance:.3g} {unit}".rstrip() + f" from parity ({level} {low:.3g} to {high:.3g})"


def format_with_unit(number: str, unit: str) -> str:
    """A formatted value with its unit.

    >>> format_with_unit("58", "% of pairs"), format_with_unit("1.2", "log-odds")
    ('58% of pairs', '1.2 log-odds')
    """
    return number + unit if unit.startswith(PERCENT) else f"{number} {unit}".rstrip()


def difference_unit(unit: str) -> str:
    """Unit of a difference between two values: percentages differ by percentage points."""
    return "percentage points" if unit.startswith(PERCENT) else unit


def describe_scaled_size(measurement: Measurement) -> str:
    """The distance from parity in units of the minimum detectable effect, in words."""
    effect = scale_effect(measurement)
    if effect is None:
        return ""
    return f"{abs(effect.value):.1f} times the smallest effect that this test reliably detects"
