"""The distribution of biased heads against maps of permuted labels; the profile over layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.head_map_labels import LAYER_TITLE
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    NEGATIVE,
    PALE,
    POSITIVE,
    apply_theme,
    format_interval,
    format_number,
    inline_data,
    panel_title,
    subtitle_lines,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.describe import MapDescription, MapStatistic

WIDTH = 380


def description_chart(result: MapDescription, *, subject: str = "") -> ChartType:
    """Plot each statistic of a map, and each layer's sum, against its null distribution.

    Args:
        result: description of the map.
        subject: description of measure and model, which the result does not store.
    """
    rows = [_row(statistic) for statistic in result.statistics]
    figures = alt.vconcat(
        *(_statistic_panel(row) for row in rows),
        spacing=10,
        title=panel_title("statistics of the map, each on a separate scale"),
    )
    chart = alt.vconcat(figures, _layers(result), spacing=30)
    null_caption = (
        f"grey: 2.5% to 97.5% of {result.n_relabellings} maps with permuted labels, "
        "stroke: their median; p: share of permuted labels at least as extreme"
        if result.n_relabellings
        else "no null distribution: labels were not permuted, so the values expected by chance are "
        "not known"
    )
    return apply_theme(
        chart,
        "Distribution of the heads' effects",
        [*subtitle_lines(subject), null_caption],
        width=WIDTH + 260,
    )


def _row(statistic: MapStatistic) -> dict[str, Any]:
    return {
        "name": statistic.name,
        "value": statistic.value,
        "low": statistic.null_low,
        "median": statistic.null_median,
        "high": statistic.null_high,
        "formatted": format_number(statistic.value),
        "formatted null": "none"
        if statistic.null_low is None or statistic.null_high is None
        else format_interval(statistic.null_low, statistic.null_high),
        "formatted p": "none" if statistic.p is None else format_number(statistic.p.value),
    }


def _tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="which"),
        alt.Tooltip("formatted:N", title="value"),
        alt.Tooltip("formatted null:N", title="permuted labels"),
        alt.Tooltip("formatted p:N", title="p"),
    ]


def _statistic_panel(row: dict[str, Any]) -> ChartType:
    has_no_null = row["low"] is None
    base = alt.Chart(inline_data([row])).encode(y=alt.Y("name:N", title=None, axis=None))
    x = alt.X(
        "value:Q",
        title=None,
        axis=alt.Axis(tickCount=5, format=".3~g", labelFontSize=10),
        # Without a null distribution, 0 is the only reference that the axis can show.
        scale=alt.Scale(zero=has_no_null, nice=True, padding=0 if has_no_null else 8),
    )
    layers = [] if has_no_null else _null(base)
    layers.append(
        base.mark_point(filled=True, size=70, color=POSITIVE, opacity=1).encode(
            x=x, tooltip=_tips()
        )
    )
    name = alt.Chart(inline_data([row])).mark_text(
        align="right", fontSize=11, color=INK, text=row["name"]
    )
    p = "" if row["formatted p"] == "none" else f"{row['formatted']}, p {row['formatted p']}"
    value_text = alt.Chart(inline_data([row])).mark_text(align="left", fontSize=11, color=INK)
    return alt.hconcat(
        name.encode(x=alt.value(160)).properties(width=160, height=20),
        alt.layer(*layers).properties(width=WIDTH, height=20),
        value_text.mark_text(align="left", fontSize=11, text=p or row["formatted"])
        .encode(x=alt.value(0))
        .properties(width=90, height=20),
        spacing=14,
        bounds="flush",  # tick labels at the ends of an axis must not shift the columns
    )


def _null(base: alt.Chart) -> list[alt.Chart]:
    return [
        base.mark_bar(color="#cfcfcf", height=12).encode(x="low:Q", x2="high:Q"),
        base.mark_tick(color=INK, thickness=2, size=14).encode(x="median:Q"),
    ]


def _layers(result: MapDescription) -> ChartType:
    rows = [{**_row(statistic), "layer": i} for i, statistic in enumerate(result.layer_sums, 1)]
    x = alt.X("layer:O", title=LAYER_TITLE, axis=alt.Axis(labelAngle=0, labelOverlap=True))
    base = alt.Chart(inline_data(rows)).encode(x=x)
    y = alt.Y("value:Q", title="sum of the layer")
    layers: list[alt.Chart] = []
    if any(row["low"] is not None for row in rows):
        layers += [
            base.mark_bar(color="#d9d9d9").encode(
                y=alt.Y("low:Q", title="sum of the layer"), y2="high:Q"
            ),
            base.mark_tick(color=INK, thickness=1.5).encode(y="median:Q"),
        ]
    layers.append(
        base.mark_point(filled=True, size=60, opacity=1).encode(
            y=y,
            color=alt.condition("datum.value > 0", alt.value(POSITIVE), alt.value(NEGATIVE)),
            tooltip=_tips(),
        )
    )
    zero = alt.Chart(inline_data([{"y": 0}])).mark_rule(color=PALE).encode(y="y:Q")
    return alt.layer(zero, *layers).properties(
        width=WIDTH + 180, height=200, title=panel_title("layers: sum of their heads' effects")
    )
