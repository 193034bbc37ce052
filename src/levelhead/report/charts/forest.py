"""A forest plot: every measure's value and interval on a separate axis, parity as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.group_map import GROUP_MAP, group_estimates, group_map
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    PALE,
    apply_theme,
    format_number,
    inline_data,
    interval_fields,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate, Measurement
    from levelhead.measures.compare import Comparison

WIDTH, HEIGHT = 420, 34
ABOUT = (
    "point: value; bar: its interval; dashed line: parity, the value if groups were treated alike",
    "each measure has its own unit and axis",
)


def forest_chart(
    rows: Sequence[tuple[str, Measurement | Estimate]],
    *,
    title: str,
    lines: Sequence[str] = ABOUT,
    share_axis: bool = False,
) -> ChartType:
    """Plot values with intervals, one below the other.

    Args:
        rows: pairs of a name and a measurement or estimate.
        title: title of the chart.
        lines: lines of the subtitle.
        share_axis: whether all rows have one axis, for values of one unit.
    """
    return apply_theme(_rows(rows, share_axis=share_axis), title, lines, width=WIDTH + 180.0)


def _rows(
    rows: Sequence[tuple[str, Measurement | Estimate]], *, share_axis: bool
) -> alt.VConcatChart:
    spans = [_span(estimate) for _, estimate in rows]
    if share_axis:
        spans = [[value for span in spans for value in span]] * len(spans)
    return alt.vconcat(
        *(_row(name, estimate, span) for (name, estimate), span in zip(rows, spans, strict=True)),
        spacing=24,
        # Names of different lengths would otherwise shift the axes against each other.
        bounds="flush",
    )


def measurement_chart(measurement: Measurement) -> ChartType:
    """Plot a measurement, and the other numbers that are reported with it in the same unit.

    The groups of a measure of many groups are a heat map.
    """
    # The rows share an axis: a number of another unit has no place on it.
    extras = [extra for extra in measurement.extras if extra.unit == measurement.unit]
    rows: list[tuple[str, Measurement | Estimate]] = [(measurement.measure, measurement)]
    rows += [(extra.name, extra) for extra in extras]
    groups = group_estimates(measurement)
    if not groups:
        return forest_chart(rows, title=measurement.measure, lines=ABOUT[:1], share_axis=True)
    others = [row for row in rows if row[1] not in groups.values()]
    chart = alt.vconcat(_rows(others, share_axis=True), group_map(groups), spacing=30)
    lines = (*ABOUT[:1], GROUP_MAP)
    return apply_theme(chart, measurement.measure, lines, width=WIDTH + 180.0)


def comparison_chart(comparison: Comparison) -> ChartType:
    """Plot the values of both models, and their difference on the same items."""
    rows: list[tuple[str, Measurement | Estimate]] = [
        ("first model", comparison.first),
        ("second model", comparison.second),
        ("difference", comparison.difference),
    ]
    return forest_chart(rows, title=comparison.measure, lines=ABOUT[:1], share_axis=True)


def _span(estimate: Measurement | Estimate) -> list[float]:
    parity = estimate.parity
    ends = [estimate.interval.low, estimate.interval.high]
    return ends if parity is None else [*ends, parity]


def _row(name: str, estimate: Measurement | Estimate, span: Sequence[float]) -> ChartType:
    parity = estimate.parity
    # An interval of one point at parity has no width; the axis needs one.
    margin = (max(span) - min(span)) * 0.08 or 1.0
    scale = alt.Scale(domain=[min(span) - margin, max(span) + margin], nice=False)
    # Below 0.01 three decimals would print every tick as 0.00.
    is_fixed_point = max(map(abs, span)) >= 0.01
    number_format = ".3~f" if is_fixed_point else ".1~e"
    axis = alt.Axis(title=None, tickCount=5, grid=False, format=number_format, labelOverlap=True)
    row = {
        "name": name,
        **interval_fields(estimate),
        "n": estimate.n,
        "parity_formatted": format_number(parity),
        "unit": estimate.unit or "no unit",
    }
    base = alt.Chart(inline_data([row])).encode(
        tooltip=[
            alt.Tooltip("name:N", title="measure"),
            alt.Tooltip("formatted:N", title="value"),
            alt.Tooltip("parity_formatted:N", title="parity"),
            alt.Tooltip("n:Q", title="n"),
            alt.Tooltip("unit:N", title="unit"),
        ]
    )
    parts: list[alt.Chart] = []
    if parity is not None:
        line = alt.Chart(inline_data([{"parity": parity}])).mark_rule(
            color=PALE, strokeDash=[4, 3], strokeWidth=1.5
        )
        parts.append(line.encode(x=alt.X("parity:Q", scale=scale)))
    x = alt.X("low:Q", scale=scale, axis=axis)
    parts.append(base.mark_rule(color=OKABE_ITO[0], strokeWidth=3).encode(x=x, x2="high:Q"))
    point = alt.X("value:Q", scale=scale, axis=axis)
    parts.append(base.mark_point(color=INK, filled=True, size=55, opacity=1).encode(x=point))
    # A text mark, not an axis title: it is right-aligned, whatever its length.
    label = alt.Chart(inline_data([{"name": name}])).mark_text(
        align="right", dx=-10, fontSize=11, fontWeight="bold", color=INK
    )
    parts.append(label.encode(text="name:N", x=alt.value(0), y=alt.value(HEIGHT / 2)))
    return alt.layer(*parts).properties(width=WIDTH, height=HEIGHT)
