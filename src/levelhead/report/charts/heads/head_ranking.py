"""Heads in order of their scores, with the effect of ablation, its interval and corrected p."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.head_map_labels import data, heads_of, lines, model_name, row, tips
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, NEGATIVE, PALE, POSITIVE, column, finished

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.head_map import HeadMap

GAP = "..."


def ranked(found: HeadMap, *, top: int = 20, bottom: int = 5) -> ChartType:
    """The first and the last heads by score: score, effect with interval, corrected p.

    Args:
        found: the map.
        top: how many of the largest.
        bottom: how many of the least.
    """
    heads_of(found)
    rows = [row(one) for one in found.ranked]
    left = len(rows) - top - bottom
    if left > 0:
        rows = [*rows[:top], _gap(left), *rows[len(rows) - bottom :]]
    told = [*lines(found)]
    if any(one.effect is not None for one in found.heads):
        told.append("filled: differs from 0 after correction (p <= 0.05); line: interval")
    else:
        told.append("no head was ablated: scores rank, they prove nothing")
    told += [f"{left} heads between are left out"] if left > 0 else []
    return finished(
        dots(rows, title=None, step=17),
        f"{found.measure}: ranked heads of {model_name(found.provenance)}",
        told,
        width=640,
    )


def _gap(left: int) -> dict[str, Any]:
    return {"label": GAP, "told score": f"{left} heads between", "told p": "", "significant": False}


def dots(rows: list[dict[str, Any]], *, title: alt.TitleParams | None, step: int) -> ChartType:
    """One line a part: its score, its effect with interval, its corrected p."""
    base = alt.Chart(data(rows))
    order = [one["label"] for one in rows]
    y = alt.Y("label:N", title=None, sort=order, scale=alt.Scale(domain=order))
    tall = step * len(order)
    score: alt.Chart = (
        base.mark_bar(height=step * 0.6)
        .encode(
            x=alt.X("score:Q", title="score", axis=_few()),
            y=y.axis(
                title=None if title else "head: layer-head, counted from 1",
                ticks=False,
                labelPadding=6,
            ),
            color=alt.condition("datum.score > 0", alt.value(POSITIVE), alt.value(NEGATIVE)),
            tooltip=tips(),
        )
        .properties(width=190, height=tall)
    )
    if title is not None:
        score = score.properties(title=title)
    if all(one.get("effect") is None for one in rows):
        return score
    bare = y.axis(None)
    zero = alt.Chart(data([{"x": 0}])).mark_rule(color=PALE).encode(x="x:Q")
    lines_ = base.mark_rule(color=INK, strokeWidth=1.5).encode(
        x=alt.X("low:Q", title="effect of ablation", axis=_few()), x2="high:Q", y=bare
    )
    points = base.mark_point(size=50, strokeWidth=1.5, color=INK, opacity=1).encode(
        x="effect:Q",
        y=bare,
        fill=alt.condition("datum.significant", alt.value(INK), alt.value("white")),
        tooltip=tips(),
    )
    corrected = base.mark_text(align="left", fontSize=11, color=INK).encode(
        x=alt.value(0),
        y=bare,
        text="told p:N",
        tooltip=tips(),
    )
    return alt.hconcat(
        score,
        alt.layer(zero, lines_, points).properties(width=240, height=tall),
        corrected.properties(width=60, height=tall, title=column("corrected p")),
        spacing=16,
    )


def _few() -> alt.Axis:
    return alt.Axis(tickCount=3, format=".2~g")
