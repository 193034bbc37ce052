"""A heat map of groups: each against the mean of the others, by attribute if two are crossed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.verdicts import adjusted_p_value
from levelhead.measures.group_tables.group_table import AGAINST_OTHERS
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, format_number, inline_data, interval_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate, Measurement

STEP = 54
ALPHA = 0.05
GROUP_MAP = "map: each group less the mean of the others; bold: shown after correction over groups"


def group_estimates(measurement: Measurement) -> dict[str, Estimate]:
    """Each group's difference from the mean of the others; empty if a group has none.

    Args:
        measurement: result of a measure of many groups, or of any other.
    """
    named = {
        estimate.name.removesuffix(AGAINST_OTHERS): estimate
        for estimate in measurement.extras
        if estimate.name.endswith(AGAINST_OTHERS)
    }
    # A group without an estimate would leave a hole that reads as no difference.
    return named if set(named) == set(measurement.groups) else {}


def group_map(estimates: Mapping[str, Estimate]) -> ChartType:
    """Plot the differences of the groups; of two crossed attributes, as rows and columns.

    Args:
        estimates: difference of each group.
    """
    rows = [_cell(*cell, estimates) for cell in _cells(list(estimates))]
    limit = max(abs(estimate.value) for estimate in estimates.values()) or 1.0
    order: dict[str, float] = {}
    for row in rows:
        name, value = str(row["row"]), float(str(row["value"]))
        order[name] = max(order.get(name, 0.0), abs(value))
    # The group that differs most comes first.
    sort = sorted(order, key=lambda name: -order[name])
    base = alt.Chart(inline_data(rows)).encode(
        x=alt.X("column:N", title=None, axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("row:N", title=None, sort=sort),
        tooltip=[
            alt.Tooltip("group:N"),
            alt.Tooltip("formatted:N", title="difference"),
            alt.Tooltip("p:N", title="corrected p"),
        ],
    )
    colours = base.mark_rect().encode(
        color=alt.Color(
            "value:Q",
            title=next(iter(estimates.values())).unit,
            scale=alt.Scale(scheme="purpleorange", domain=[-limit, limit]),
        )
    )
    texts = [
        base.transform_filter(alt.datum.is_shown == is_shown)
        .mark_text(color=INK, fontSize=11, fontWeight="bold" if is_shown else "normal")
        .encode(text="text:N")
        for is_shown in (True, False)
    ]
    return alt.layer(colours, *texts).properties(width=alt.Step(STEP), height=alt.Step(STEP // 2))


def _cells(groups: Sequence[str]) -> list[tuple[str, str, str]]:
    """(group, row, column); one column unless the names are all pairs of two attributes."""
    parts = [group.rpartition(" ")[::2] for group in groups]
    firsts, seconds = ({part[i] for part in parts} for i in (0, 1))
    if len(seconds) > 1 and len(firsts) * len(seconds) == len(groups) and "" not in firsts:
        return [(group, *part) for group, part in zip(groups, parts, strict=True)]
    return [(group, group, "") for group in groups]


def _cell(
    group: str, row: str, column: str, estimates: Mapping[str, Estimate]
) -> dict[str, object]:
    estimate = estimates[group]
    p = adjusted_p_value(estimate)
    return {
        "group": group,
        "row": row,
        "column": column,
        **interval_fields(estimate),
        "text": format_number(estimate.value),
        "p": format_number(p),
        "is_shown": p is not None and p <= ALPHA,
    }
