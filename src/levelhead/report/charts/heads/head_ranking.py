"""Heads in order of their scores, with the effect of ablation, its interval and corrected p."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.head_map_labels import (
    component_row,
    head_map_captions,
    head_tooltips,
    require_heads,
)
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    NEGATIVE,
    PALE,
    POSITIVE,
    apply_theme,
    column_title,
    inline_data,
    model_name,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.head_map import HeadMap

GAP = "..."


def head_ranking_chart(head_map: HeadMap, *, top: int = 20, bottom: int = 5) -> ChartType:
    """Plot the heads with the largest and smallest scores: score, effect with interval, p.

    Args:
        head_map: the head map.
        top: number of heads with the largest scores.
        bottom: number of heads with the smallest scores.
    """
    require_heads(head_map)
    rows = [component_row(head) for head in head_map.ranked_heads]
    n_hidden = len(rows) - top - bottom
    if n_hidden > 0:
        rows = [*rows[:top], _gap_row(n_hidden), *rows[len(rows) - bottom :]]
    captions = [*head_map_captions(head_map)]
    if any(head.effect is not None for head in head_map.heads):
        captions.append("filled: differs from 0 after correction (p <= 0.05); line: interval")
    else:
        captions.append("no head was ablated: scores rank heads, they are no test")
    captions += [f"{n_hidden} heads between are not shown"] if n_hidden > 0 else []
    return apply_theme(
        component_dots(rows, title=None, step=17),
        f"{head_map.measure}: ranked heads of {model_name(head_map.provenance)}",
        captions,
        width=640,
    )


def _gap_row(n_hidden: int) -> dict[str, Any]:
    return {
        "label": GAP,
        "formatted score": f"{n_hidden} heads between",
        "formatted p": "",
        "significant": False,
    }


def component_dots(
    rows: list[dict[str, Any]], *, title: alt.TitleParams | None, step: int
) -> ChartType:
    """Plot one row per component: score, effect with interval, corrected p."""
    base = alt.Chart(inline_data(rows))
    order = [row["label"] for row in rows]
    # With all labels: the row of the gap has no value and would not be on the axis.
    y = alt.Y("label:N", title=None, sort=order, scale=alt.Scale(domain=order))
    tall = step * len(order)
    score: alt.Chart = (
        base.mark_bar(height=step * 0.6)
        .encode(
            x=alt.X("score:Q", title="score", axis=_sparse_axis()),
            y=y.axis(
                title=None if title else "head: layer-head, counted from 1",
                ticks=False,
                labelPadding=6,
            ),
            color=alt.condition("datum.score > 0", alt.value(POSITIVE), alt.value(NEGATIVE)),
            tooltip=head_tooltips(),
        )
        .properties(width=190, height=tall)
    )
    if title is not None:
        score = score.properties(title=title)
    if all(row.get("effect") is None for row in rows):
        return score
    bare = y.axis(None)
    zero = alt.Chart(inline_data([{"x": 0}])).mark_rule(color=PALE).encode(x="x:Q")
    intervals = base.mark_rule(color=INK, strokeWidth=1.5).encode(
        x=alt.X("low:Q", title="effect of ablation", axis=_sparse_axis()), x2="high:Q", y=bare
    )
    points = base.mark_point(size=50, strokeWidth=1.5, color=INK, opacity=1).encode(
        x="effect:Q",
        y=bare,
        fill=alt.condition("datum.significant", alt.value(INK), alt.value("white")),
        tooltip=head_tooltips(),
    )
    corrected = base.mark_text(align="left", fontSize=11, color=INK).encode(
        x=alt.value(0),
        y=bare,
        text="formatted p:N",
        tooltip=head_tooltips(),
    )
    return alt.hconcat(
        score,
        alt.layer(zero, intervals, points).properties(width=240, height=tall),
        corrected.properties(width=60, height=tall, title=column_title("corrected p")),
        spacing=16,
    )


def _sparse_axis() -> alt.Axis:
    return alt.Axis(tickCount=3, format=".2~g")
