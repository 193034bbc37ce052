"""Sections of an audit's page with its measures, and with the comparison of two models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.calibrate.tables import summarise_in_one_line
from levelhead.core.calibration import calibration_verdict, find_calibration, with_mark
from levelhead.report.audit_page.sections import (
    PageFigure,
    PageTable,
    ReportSection,
    estimate_texts,
    make_figure,
    truncate_text,
)
from levelhead.report.audit_page.verdict_text import STATUS_TEXT
from levelhead.report.charts.forest import forest_chart
from levelhead.report.theme import format_number
from levelhead.study.steps.measurements import CompareModelsStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.core.results import Measurement
    from levelhead.report.audit_page.verdict import AuditVerdict
    from levelhead.report.audit_page.verdict_text import AuditMeasureVerdict
    from levelhead.study.audit.audit import Audit

MEASURE_COLUMNS = (
    "measure",
    "what it shows",
    "value",
    "interval",
    "parity",
    "p",
    "minimum detectable effect",
    "items used",
    "validation on planted bias",
    "a larger value means",
)


def measures_section(verdict: AuditVerdict) -> ReportSection:
    """All measures, with their intervals, tests and caveats."""
    core = [row for row in verdict.measures if row.is_core]
    added = [row for row in verdict.measures if not row.is_core]
    biases = [row for row in (*core, *verdict.derived, *added) if row.role == "bias"]
    plotted = [
        (with_mark(row.name, row.measurement), row.measurement)
        for row in biases
        if row.measurement is not None
    ]
    figures: tuple[PageFigure, ...] = ()
    if plotted:
        plot = forest_chart(plotted, title="Measures of bias")
        alt = (
            f"Values and intervals of {len(plotted)} measures; the numbers are in the table below."
        )
        caption = "Every measure of bias, with its interval and parity."
        figures = (make_figure("forest", plot, caption, alt),)
    tables = [
        PageTable(
            f"Core suite: {verdict.coverage}; p is corrected for the number of its tests (Holm)",
            MEASURE_COLUMNS,
            tuple(_measure_row(row) for row in (*core, *verdict.derived)),
        )
    ]
    if added:
        caption = "Beyond the core suite; p is corrected separately; the summary does not count it"
        tables.append(PageTable(caption, MEASURE_COLUMNS, tuple(map(_measure_row, added))))
    notes = tuple(
        (row.name, truncate_text(note))
        for row in verdict.measures
        if row.measurement is not None
        for note in (*_calibration_notes(row.measurement), *row.measurement.notes)
    )
    caveats = PageTable("Notes and caveats", ("measure", "note"), notes)
    return ReportSection(
        "measures",
        "Measures",
        collapsed_tables=(caveats, *_supporting_statistics(verdict)),
        figures=figures,
        tables=tuple(tables),
    )


def _supporting_statistics(verdict: AuditVerdict) -> Iterator[PageTable]:
    """Tables of the statistics that help to interpret each measure."""
    table_rows = tuple(
        (
            row.name,
            with_mark(truncate_text(extra.name), row.measurement, extra.name),
            *estimate_texts(extra),
            str(extra.n),
        )
        for row in verdict.measures
        if row.measurement is not None
        for extra in row.measurement.extras
    )
    columns = ("measure", "number", "value", "interval", "parity", "p")
    if table_rows:
        yield PageTable(
            "Supporting statistics", (*columns, "minimum detectable effect", "n"), table_rows
        )


def _measure_row(verdict: AuditMeasureVerdict) -> tuple[str, ...]:
    if verdict.measurement is None:
        status_text = STATUS_TEXT[verdict.status]
        if verdict.reason:
            status_text += f": {verdict.reason}"
        return (verdict.name, status_text, *[""] * 7, truncate_text(verdict.explanation))
    measurement = verdict.measurement
    status_text = "capability" if verdict.role == "utility" else STATUS_TEXT[verdict.status]
    if verdict.toward:
        status_text += f": {verdict.toward}"
    elif verdict.status == "inconclusive":
        status_text += f": {verdict.reason}"
    return (
        with_mark(verdict.name, measurement),
        status_text,
        *estimate_texts(measurement),
        format_items_used(measurement),
        calibration_verdict(measurement),
        measurement.direction,
    )


def format_items_used(measurement: Measurement) -> str:
    """Number of used items, out of the full data set or, if its size is unknown, of those queried.

    >>> from types import SimpleNamespace as Shown
    >>> format_items_used(Shown(n=46, n_items=46, population=1508, sampled_fraction=46 / 1508))
    '46 of 1,508 (3%)'
    >>> format_items_used(Shown(n=45, n_items=46, population=None, sampled_fraction=None))
    '45 of 46 queried'
    """
    if measurement.population is None or measurement.sampled_fraction is None:
        return f"{measurement.n:,} of {measurement.n_items:,} queried"
    n_dropped = measurement.n_items - measurement.n
    share = (
        f"{measurement.sampled_fraction:.0%}"
        if measurement.sampled_fraction >= 0.01
        else "below 1%"
    )
    dropped = f", {n_dropped:,} dropped" if n_dropped else ""
    return f"{measurement.n:,} of {measurement.population:,} ({share}){dropped}"


def _calibration_notes(measurement: Measurement) -> tuple[str, ...]:
    """How the measure performed on models with planted bias."""
    calibration = find_calibration(measurement)
    if calibration is None:
        return ()
    return (f"validation on planted bias: {summarise_in_one_line(calibration)}",)


def comparison_section(verdict: AuditVerdict, audit: Audit) -> Iterator[ReportSection]:
    """The differences between two models, or by an edit, if the audit compares any."""
    if not verdict.comparisons:
        return
    which = (
        ("the other model", "this model")
        if audit.study_config.rows(CompareModelsStep)
        else ("this model", "the edited model")
    )
    differences = [
        (f"{comparison.measure} {comparison.mark}".rstrip(), comparison.difference)
        for comparison in verdict.comparisons
    ]
    plot = forest_chart(differences, title=f"Second minus first: {which[1]} - {which[0]}")
    alt = f"Differences by {len(differences)} measures; the numbers are in the table below."
    columns = ("measure", "first", "second", "difference", "interval", "parity", "p")
    table = PageTable(
        "Paired item by item; p corrected for the number of comparisons (Holm)",
        (*columns, "minimum detectable effect", "what it says"),
        tuple(
            (
                name,
                format_number(comparison.first.value),
                format_number(comparison.second.value),
                *estimate_texts(comparison.difference),
                comparison.verdict,
            )
            for comparison, (name, _) in zip(verdict.comparisons, differences, strict=True)
        ),
    )
    yield ReportSection(
        "against",
        "Item by item",
        (f"First: {which[0]}. Second: {which[1]}.",),
        figures=(make_figure("differences", plot, "Differences, with intervals.", alt),),
        tables=(table,),
    )
