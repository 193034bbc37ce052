"""Distributions of scores over heads (Yang et al. 2025, Figure 1; several models: 6 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.histogram import bin_edges, count_in_bins, histogram
from levelhead.report.head_map_labels import (
    component_row,
    head_map_captions,
    head_tooltips,
    require_heads,
    score_title,
)
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    DASHES,
    INK,
    NEGATIVE,
    POSITIVE,
    apply_theme,
    category_scale,
    format_estimate,
    format_interval,
    format_number,
    inline_data,
    model_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.locate.head_map import HeadMap

WIDTH = 520


def distribution_chart(head_map: HeadMap) -> ChartType:
    """Plot the histogram of scores (Figure 1), with one stroke per head below."""
    values = [head.score for head in require_heads(head_map)]
    bins = bin_edges(values)
    domain = alt.Scale(domain=[float(bins[0]), float(bins[-1])], nice=False)
    # 0 is an edge of the bins, so every bar has one sign.
    side = alt.condition("datum.low >= 0", alt.value(POSITIVE), alt.value(NEGATIVE))
    count = (
        histogram(
            values, bins, alt.X("low:Q", scale=domain, axis=None), field="heads", value="score"
        )
        .encode(color=side)
        .properties(width=WIDTH, height=230)
    )
    strokes = (
        alt.Chart(inline_data([component_row(head) for head in head_map.heads]))
        .mark_tick(thickness=1.5, size=16, opacity=0.7)
        .encode(
            x=alt.X(
                "score:Q",
                scale=domain,
                title=score_title(head_map),
                axis=alt.Axis(grid=False, tickCount=8, labelOverlap="greedy"),
            ),
            color=alt.condition("datum.score > 0", alt.value(POSITIVE), alt.value(NEGATIVE)),
            tooltip=head_tooltips(),
        )
        .properties(width=WIDTH, height=22)
    )
    first = ", ".join(
        f"{head.label} ({format_number(head.score)})" for head in head_map.ranked_heads[:3]
    )
    return apply_theme(
        alt.vconcat(count, strokes, spacing=2),
        f"{head_map.measure}: scores of {len(values)} heads of {model_name(head_map.provenance)}",
        [*head_map_captions(head_map), f"largest, layer-head counted from 1: {first}"],
        width=WIDTH + 60,
    )


def distributions_chart(maps: Sequence[tuple[str, HeadMap]]) -> ChartType:
    """Plot the scores of several models in one chart (Figures 6 and 7), as shares of their heads.

    Args:
        maps: pairs of a name and a head map, all by the same measure.
    """
    if not maps:
        raise LevelheadError("there is no map to plot", hint="give at least one")
    names = [name for name, _ in maps]
    if len(set(names)) < len(names):
        raise LevelheadError("two maps have the same name", hint="give each a different name")
    first = maps[0][1]
    for name, head_map in maps[1:]:
        if head_map.measure != first.measure:
            raise LevelheadError(
                f"{name} was located by {head_map.measure}, {names[0]} by {first.measure}",
                hint="plot only maps of one measure together",
            )
    bins = bin_edges([head.score for _, head_map in maps for head in require_heads(head_map)])
    rows = []
    for name, head_map in maps:
        bars = count_in_bins([head.score for head in head_map.heads], bins)
        map_rows = [
            {
                "map": name,
                "low": bar.low,
                # A share, because models differ in their numbers of heads.
                "share": bar.n_values / len(head_map.heads),
                "heads": bar.n_values,
                "range": format_interval(bar.low, bar.high),
            }
            for bar in bars
        ]
        rows += [
            *map_rows,
            {**map_rows[-1], "low": bars[-1].high},
        ]  # the last step needs a right end
    curves = (
        alt.Chart(inline_data(rows))
        # Steps, because bars of several models would hide each other.
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("low:Q", title=_joint_score_title(maps), scale=alt.Scale(nice=False)),
            y=alt.Y("share:Q", title="share of a model's heads", axis=alt.Axis(format=".0%")),
            color=alt.Color("map:N", scale=category_scale(names), legend=_legend(), sort=names),
            strokeDash=alt.StrokeDash(
                "map:N",
                scale=alt.Scale(
                    domain=names, range=[list(pattern) for pattern in DASHES[: len(names)]]
                ),
                legend=_legend(),
                sort=names,
            ),
            tooltip=[
                alt.Tooltip("map:N", title="model"),
                alt.Tooltip("range:N", title="score"),
                alt.Tooltip("heads:Q", title="heads"),
            ],
        )
    )
    zero = alt.Chart(inline_data([{"x": 0}])).mark_rule(color=INK, strokeWidth=0.75).encode(x="x:Q")
    return apply_theme(
        alt.layer(zero, curves).properties(width=WIDTH, height=260),
        f"{first.measure}: scores of the heads of {len(maps)} models",
        [*_map_captions(maps), first.split.claim],
        width=WIDTH + 60,
    )


def _legend() -> alt.Legend:
    # One definition: Vega-Lite merges the legends of two channels only if they are equal.
    return alt.Legend(title=None, orient="top", symbolSize=300, symbolStrokeWidth=2, columns=3)


def _joint_score_title(maps: Sequence[tuple[str, HeadMap]]) -> str:
    """The axis title; it says that scores above 0 add bias only if every model's sign is known."""
    signs_known = {bool(head_map.bias_sign.sign) for _, head_map in maps}
    return (
        "score; the subtitle says which signs are known"
        if len(signs_known) > 1
        else score_title(maps[0][1])
    )


def _map_captions(maps: Sequence[tuple[str, HeadMap]]) -> list[str]:
    """Each model's value and sign of bias: the signs may differ."""
    sign_text = {1: "more is called bias", -1: "less is called bias", 0: "SIGN UNDETERMINED"}
    return [
        f"{name}: {len(head_map.heads)} heads, {head_map.measure} "
        f"{format_estimate(head_map.measurement)}, {sign_text[head_map.bias_sign.sign]}"
        for name, head_map in maps
    ]
