"""How scores are spread (Yang et al. 2025, Figure 1; several models, Figures 6 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.histogram import counted, edges
from levelhead.report.head_map_labels import (
    data,
    heads_of,
    lines,
    model_name,
    row,
    score_title,
    tips,
)
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    DASHES,
    INK,
    NEGATIVE,
    POSITIVE,
    categories,
    ends,
    finished,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.locate.head_map import HeadMap

WIDTH = 520


def distribution(found: HeadMap) -> ChartType:
    """How many heads have which score (Figure 1); below, a stroke a head."""
    values = [one.score for one in heads_of(found)]
    over = edges(values)
    bars = [
        {"low": one.low, "high": one.high, "heads": one.times, "range": ends(one.low, one.high)}
        for one in counted(values, over)
        if one.times
    ]
    domain = alt.Scale(domain=[float(over[0]), float(over[-1])], nice=False)
    side = alt.condition("datum.low >= 0", alt.value(POSITIVE), alt.value(NEGATIVE))
    count = (
        alt.Chart(data(bars))
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("low:Q", scale=domain, axis=None),
            x2="high:Q",
            y2=alt.datum(0),
            y=alt.Y("heads:Q", title="heads", axis=alt.Axis(tickMinStep=1, format="d")),
            color=side,
            tooltip=[
                alt.Tooltip("range:N", title="score"),
                alt.Tooltip("heads:Q", title="heads"),
            ],
        )
        .properties(width=WIDTH, height=230)
    )
    strokes = (
        alt.Chart(data([row(one) for one in found.heads]))
        .mark_tick(thickness=1.5, size=16, opacity=0.7)
        .encode(
            x=alt.X(
                "score:Q",
                scale=domain,
                title=score_title(found),
                axis=alt.Axis(grid=False, tickCount=8, labelOverlap="greedy"),
            ),
            color=alt.condition("datum.score > 0", alt.value(POSITIVE), alt.value(NEGATIVE)),
            tooltip=tips(),
        )
        .properties(width=WIDTH, height=22)
    )
    first = ", ".join(f"{one.label} ({number(one.score)})" for one in found.ranked[:3])
    return finished(
        alt.vconcat(count, strokes, spacing=2),
        f"{found.measure}: scores of {len(values)} heads of {model_name(found.provenance)}",
        [*lines(found), f"largest, layer-head counted from 1: {first}"],
        width=WIDTH + 60,
    )


def distributions(maps: Sequence[tuple[str, HeadMap]]) -> ChartType:
    """The scores of several models in one picture (Figures 6 and 7), as shares of their heads.

    Args:
        maps: names and maps, by one measure.
    """
    if not maps:
        raise LevelheadError("there is no map to draw", mend="give at least one")
    names = [name for name, _ in maps]
    if len(set(names)) < len(names):
        raise LevelheadError("two maps have the same name", mend="give each a name of its own")
    first = maps[0][1]
    for name, own in maps[1:]:
        if own.measure != first.measure:
            raise LevelheadError(
                f"{name} was located by {own.measure}, {names[0]} by {first.measure}",
                mend="draw maps of one measure together",
            )
    over = edges([one.score for _, own in maps for one in heads_of(own)])
    rows = []
    for name, own in maps:
        bars = counted([one.score for one in own.heads], over)
        told = [
            {
                "map": name,
                "low": one.low,
                "share": one.times / len(own.heads),
                "heads": one.times,
                "range": ends(one.low, one.high),
            }
            for one in bars
        ]
        rows += [*told, {**told[-1], "low": bars[-1].high}]  # the last step has an end
    drawn = (
        alt.Chart(data(rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("low:Q", title=_score(maps), scale=alt.Scale(nice=False)),
            y=alt.Y("share:Q", title="share of a model's heads", axis=alt.Axis(format=".0%")),
            color=alt.Color("map:N", scale=categories(names), legend=_legend(), sort=names),
            strokeDash=alt.StrokeDash(
                "map:N",
                scale=alt.Scale(domain=names, range=[list(one) for one in DASHES[: len(names)]]),
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
    zero = alt.Chart(data([{"x": 0}])).mark_rule(color=INK, strokeWidth=0.75).encode(x="x:Q")
    return finished(
        alt.layer(zero, drawn).properties(width=WIDTH, height=260),
        f"{first.measure}: scores of the heads of {len(maps)} models",
        [*_each(maps), first.halves.claim],
        width=WIDTH + 60,
    )


def _legend() -> alt.Legend:
    return alt.Legend(title=None, orient="top", symbolSize=300, symbolStrokeWidth=2, columns=3)


def _score(maps: Sequence[tuple[str, HeadMap]]) -> str:
    """Above 0 is more bias only where every model's sign is known."""
    known = {bool(own.direction.sign) for _, own in maps}
    return "score; whose sign is known is said above" if len(known) > 1 else score_title(maps[0][1])


def _each(maps: Sequence[tuple[str, HeadMap]]) -> list[str]:
    """Each model's value and direction: their signs may differ."""
    told = {1: "more is called bias", -1: "less is called bias", 0: "SIGN UNDETERMINED"}
    return [
        f"{name}: {len(own.heads)} heads, {own.measure} {number(own.measurement.value)} "
        f"{ends(own.measurement.interval.low, own.measurement.interval.high)}, "
        f"{told[own.direction.sign]}"
        for name, own in maps
    ]
