"""Edits in the plane of removed bias and kept knowledge, and which of them no other dominates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Estimate, Record
from levelhead.mitigate.evaluation.pareto import is_non_dominated
from levelhead.mitigate.evaluation.price import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.mitigate.evaluation.knowledge import KnowledgePanel
    from levelhead.mitigate.evaluation.price import MitigationReport


class EditPoint(Record):
    """An edit: the bias that it removes, and the knowledge that changes most."""

    name: str
    gain: Estimate
    """Decrease of the distance from parity."""
    change: Estimate
    """Change of the share of right answers, by the measure of the panel with the lowest bound."""
    knowledge_measure: str
    verdict: Verdict
    is_on_front: bool
    """Whether no other edit, nor the base, removes as much bias and keeps more knowledge, or more
    bias and as much knowledge."""


class KnowledgeFront(Record):
    """Edits of one model, by one measure of bias and one panel of knowledge."""

    bias_measure: str
    margin: Annotated[float, Field(gt=0)]
    """Largest change of knowledge that counts as none, in percentage points."""
    points: Annotated[tuple[EditPoint, ...], Field(min_length=1)]


def compare_edits(reports: Mapping[str, MitigationReport]) -> KnowledgeFront:
    """Place edits by bias and knowledge.

    Args:
        reports: Reports of edits by name, with one measure of bias first and with knowledge.
    """
    panels = {name: report.knowledge for name, report in reports.items()}
    kept = {name: panel for name, panel in panels.items() if panel is not None and panel.changes}
    bias_measures = {report.bias[0].measure for report in reports.values() if report.bias}
    margins = {panel.margin for panel in kept.values()}
    if len(kept) < len(reports) or len(bias_measures) != 1 or len(margins) != 1:
        raise LevelheadError(
            "the edits have no common measure of bias, or no panel of knowledge of one margin",
            hint="evaluate every edit with the same measures, and with knowledge=",
        )
    gains = {name: _estimate_gain(report) for name, report in reports.items()}
    changes = {name: _largest_loss(panel) for name, panel in kept.items()}
    # The base is a point, too: an edit that removes nothing and loses knowledge is worse than none.
    is_on_front = is_non_dominated(
        [0.0, *(gain.value for gain in gains.values())],
        [0.0, *(-changes[name][1].value for name in gains)],
    )[1:]
    points = tuple(
        EditPoint(
            name=name,
            gain=gains[name],
            change=changes[name][1],
            knowledge_measure=changes[name][0],
            verdict=report.verdict,
            is_on_front=bool(on_front),
        )
        for (name, report), on_front in zip(reports.items(), is_on_front, strict=True)
    )
    return KnowledgeFront(bias_measure=bias_measures.pop(), margin=margins.pop(), points=points)


def group_edits(reports: Mapping[str, MitigationReport]) -> tuple[KnowledgeFront, ...]:
    """Place the edits of a study, those of one model, measure and margin together.

    Edits without a panel of knowledge, or without a measure of bias that has a parity, are left
    out: their numbers are in tables.

    Args:
        reports: Reports of edits by name.
    """
    by_base: dict[tuple[str, str, float], dict[str, MitigationReport]] = {}
    for name, report in reports.items():
        panel = report.knowledge
        if not report.bias or report.bias[0].distance is None or panel is None or not panel.changes:
            continue
        base = report.bias[0].first
        key = (base.provenance.model_hash, base.measure, panel.margin)
        by_base.setdefault(key, {})[name] = report
    return tuple(map(compare_edits, by_base.values()))


def _estimate_gain(report: MitigationReport) -> Estimate:
    """The decrease of the distance from parity, by the first measure of bias."""
    row = report.bias[0]
    for test in report.placebo_tests:
        if test.measure == row.measure:
            return test.gain
    if row.distance is None:
        raise NotMeasurableError(
            f"{row.measure} has no parity that an edit could come nearer to",
            hint="give a measure with a parity first, or placebos=",
        )
    distance, interval = row.distance, row.distance.interval
    reverse = interval.model_copy(update={"low": -interval.high, "high": -interval.low})
    return Estimate(
        name=f"gain of {row.measure}",
        value=-distance.value,
        interval=reverse,
        parity=0.0,
        n=distance.n,
        unit=distance.unit,
    )


def _largest_loss(panel: KnowledgePanel) -> tuple[str, Estimate]:
    """The change with the lowest lower bound: a panel is as good as its worst measure."""
    worst = min(panel.changes, key=lambda row: row.change.interval.low)
    return worst.measure, worst.change
