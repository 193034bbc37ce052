"""Many groups on an audit's page: a matrix of groups and measures, and interactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.verdicts import adjusted_p_value
from levelhead.measures.group_tables.group_table import INTERACTION
from levelhead.report.audit_page.head_table import HeadTable, HeadTableRow, make_cell
from levelhead.report.audit_page.sections import (
    ReportSection,
    estimate_texts,
    truncate_text,
)
from levelhead.report.charts.group_map import group_estimates
from levelhead.report.theme import format_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.results import Estimate, Measurement
    from levelhead.report.audit_page.verdict import AuditVerdict

MIN_GROUPS = 3
ALPHA = 0.05


class GroupColumn(NamedTuple):
    """What a measure says of each group."""

    title: str
    estimates: Mapping[str, Estimate]

    @property
    def largest(self) -> float:
        """The largest difference, for the scale of colours."""
        return max(abs(estimate.value) for estimate in self.estimates.values()) or 1.0


def groups_section(verdict: AuditVerdict) -> Iterator[ReportSection]:
    """A matrix for every set of groups, with the measures that compare them as columns."""
    columns: dict[tuple[str, ...], list[GroupColumn]] = {}
    lines: list[str] = []
    for row in verdict.measures:
        if row.measurement is None or len(row.measurement.groups) < MIN_GROUPS:
            continue
        estimates = group_estimates(row.measurement)
        # An inconclusive measure says nothing of any group: its colours would be read as findings.
        if not estimates or row.status == "inconclusive":
            lines.append(f"{row.name}: {row.explanation}")
            continue
        columns.setdefault(row.measurement.groups, []).append(GroupColumn(row.name, estimates))
        lines += _describe_interaction(row.name, row.measurement)
    if columns or lines:
        yield ReportSection(
            "groups",
            "Which groups differ",
            tuple(truncate_text(line) for line in lines),
            head_tables=tuple(_matrix(names, cells) for names, cells in columns.items()),
        )


def _matrix(groups: Sequence[str], columns: Sequence[GroupColumn]) -> HeadTable:
    # The group that differs most, over all measures, comes first.
    order = sorted(
        groups,
        key=lambda group: -max(abs(c.estimates[group].value) / c.largest for c in columns),
    )
    return HeadTable(
        "Each group against the mean of the others, a column for every measure: orange above, "
        "purple below; a dot: the difference is shown after correction over the groups",
        tuple(column.title for column in columns),
        tuple(
            HeadTableRow(
                group,
                tuple(
                    make_cell(
                        column.estimates[group].value / column.largest,
                        "●" if _is_shown(column.estimates[group]) else "",
                        _describe(group, column),
                    )
                    for column in columns
                ),
            )
            for group in order
        ),
    )


def _is_shown(estimate: Estimate) -> bool:
    p = adjusted_p_value(estimate)
    return p is not None and p <= ALPHA


def _describe(group: str, column: GroupColumn) -> str:
    estimate = column.estimates[group]
    value, _, _, p, _ = estimate_texts(estimate)
    interval = format_interval(estimate.interval.low, estimate.interval.high)
    return f"{group}, {column.title}: {value} {interval} {estimate.unit}, corrected p {p}"


def _describe_interaction(name: str, measurement: Measurement) -> Iterator[str]:
    """Whether a difference exists only where two attributes meet."""
    labelled: list[tuple[str, Measurement | Estimate]] = [(measurement.measure, measurement)]
    labelled += [(estimate.name, estimate) for estimate in measurement.extras]
    for label, estimate in labelled:
        if label.endswith(INTERACTION):
            value, interval, _, p, _ = estimate_texts(estimate)
            yield f"{name}, beyond both attributes: standard deviation {value} {interval}, p {p}"
