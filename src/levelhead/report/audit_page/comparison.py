"""Before and after: what improved between two models, what got worse, and what it cost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.verdicts import adjusted_p_value
from levelhead.measures.compare import CHANGED_SIDES, FARTHER, NEARER, NOT_SHOWN
from levelhead.measures.registry import is_utility, metric_texts, parse_measure
from levelhead.report.audit_page.effect_scale import (
    AxisTick,
    EffectTrack,
    ScaledEffect,
    axis_limit,
    axis_ticks,
    format_with_unit,
    place_effect,
)
from levelhead.report.audit_page.questions import find_measure_text, registry_name
from levelhead.report.audit_page.sections import interval_text, p_text, truncate_text
from levelhead.report.theme import format_number

if TYPE_CHECKING:
    from levelhead.core.results import Measurement
    from levelhead.measures.compare import Comparison
    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.study.audit.audit import Audit

IMPROVED, WORSE, COST, NO_COST = "improved", "worse", "cost", "no cost"
SAME, OPEN, UNRELIABLE = "same", "open", "not reliable"
CHANGE_TEXT: dict[str, str] = {
    IMPROVED: "nearer to parity",
    WORSE: "worse",
    COST: "capability lost",
    NO_COST: "capability gained",
    SAME: "no change shown",
    OPEN: "open",
    UNRELIABLE: "not reliable here",
}
"""Kinds of changes with their words, in the order in which a page lists them."""


class ChangeRow(NamedTuple):
    """A measure before and after."""

    title: str
    name: str
    kind: str
    word: str
    before: str
    after: str
    difference: str
    details: str
    tracks: tuple[EffectTrack, EffectTrack] | None
    """Both models on the common axis, in units of what the test of the first detects."""


class ComparisonPart(NamedTuple):
    """The comparison of two models."""

    summary: str
    before: str
    after: str
    rows: tuple[ChangeRow, ...]
    ticks: tuple[AxisTick, ...]


def make_comparison(verdict: AuditVerdict, audit: Audit) -> ComparisonPart | None:
    """Make the comparison of two models; None if the audit compares none."""
    if not verdict.comparisons:
        return None
    before, after = audit.compared_names
    scaled = [_scale_both(comparison) for comparison in verdict.comparisons]
    limit = axis_limit(effect for pair in scaled if pair for effect in pair)
    rows = [
        _change_row(comparison, pair, limit)
        for comparison, pair in zip(verdict.comparisons, scaled, strict=True)
    ]
    rows.sort(key=lambda row: list(CHANGE_TEXT).index(row.kind))
    counts = Counter(row.kind for row in rows)
    listed = "; ".join(
        f"{counts[kind]} {text}" for kind, text in CHANGE_TEXT.items() if counts[kind]
    )
    return ComparisonPart(
        f"From {before} to {after}: {listed}.",
        before,
        after,
        tuple(rows),
        axis_ticks(limit) if any(row.tracks for row in rows) else (),
    )


def classify_change(comparison: Comparison) -> str:
    """Classify a comparison; what its verdict does not clearly state is no improvement."""
    text = comparison.verdict
    # First of all: a measure that failed on planted bias shows no improvement.
    if comparison.mark:
        return UNRELIABLE
    if text.startswith(NOT_SHOWN):
        return SAME
    metric = metric_texts().get(comparison.measure)
    if metric is not None and is_utility(metric):
        worse = parse_measure(metric).primary_metric.worse
        return COST if text.startswith(str(worse)) else NO_COST
    if text.startswith((FARTHER, CHANGED_SIDES)) or "more bias" in text:
        return WORSE
    if text.startswith(NEARER) or "less bias" in text:
        return IMPROVED
    return OPEN


def _scale_both(comparison: Comparison) -> tuple[ScaledEffect, ScaledEffect] | None:
    """Both effects in units of what the first test detects, so that they can be compared."""
    detectable = comparison.first.detectable
    first, second = comparison.first.effect, comparison.second.effect
    if detectable is None or first is None or second is None:
        return None
    return (
        ScaledEffect(*(part / detectable for part in first)),
        ScaledEffect(*(part / detectable for part in second)),
    )


def _change_row(
    comparison: Comparison, pair: tuple[ScaledEffect, ScaledEffect] | None, limit: int
) -> ChangeRow:
    difference = comparison.difference
    p = p_text(adjusted_p_value(difference))
    interval = interval_text(difference.interval.low, difference.interval.high)
    kind = classify_change(comparison)
    text = find_measure_text(registry_name(comparison.measure))
    title = comparison.measure if text is None else text.title
    return ChangeRow(
        f"{title} {comparison.mark}".rstrip(),
        comparison.measure,
        kind,
        CHANGE_TEXT[kind],
        _value_text(comparison.first),
        _value_text(comparison.second),
        f"{difference.value:+.3g} {interval}" + (f", p {p}" if p else ""),
        truncate_text(comparison.verdict),
        None if pair is None else (place_effect(pair[0], limit), place_effect(pair[1], limit)),
    )


def _value_text(measurement: Measurement) -> str:
    ends = measurement.interval.low, measurement.interval.high
    parity = "" if measurement.parity is None else f"; parity {format_number(measurement.parity)}"
    value = format_with_unit(format_number(measurement.value), measurement.unit)
    return f"{value} {interval_text(*ends)}{parity}"
