"""Chosen heads among random ones of the same layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.histogram import counted, edges
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, ends, finished, named, number

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.validation.random_heads import Control

WIDTH = 480
NAMED = 8
"""Heads that are named one by one."""


def controlled(found: Control, *, of: str = "") -> ChartType:
    """What random sets of heads do, and where the chosen set lies.

    Args:
        found: the control.
        of: measure and model, which it does not carry.
    """
    effect = found.effect
    over = edges([*found.random, effect.value])
    bars = [
        {"low": one.low, "high": one.high, "sets": one.times, "range": ends(one.low, one.high)}
        for one in counted(found.random, over)
        if one.times
    ]
    shown = (
        alt.Chart(data(bars))
        .mark_rect(color="#c4c4c4", stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X(
                "low:Q",
                title="by how much the measure falls when they are masked",
                axis=alt.Axis(tickCount=7),
            ),
            x2="high:Q",
            y2=alt.datum(0),
            y=alt.Y("sets:Q", title="random sets", axis=alt.Axis(tickMinStep=1, format="d")),
            tooltip=[
                alt.Tooltip("range:N", title="falls by"),
                alt.Tooltip("sets:Q", title="random sets"),
            ],
        )
    )
    marks = {
        "chosen heads": (effect.value, OKABE_ITO[1], [1, 0]),
        "random sets, median": (found.median, INK, [2, 2]),
        "random sets, 95%": (found.top, INK, [7, 3]),
    }
    rows = [
        {"what": name, "at": value, "told": number(value)} for name, (value, _, _) in marks.items()
    ]
    names = list(marks)
    legend = alt.Legend(title=None, orient="top", symbolSize=300, columns=3)
    rules = (
        alt.Chart(data(rows))
        .mark_rule(strokeWidth=2)
        .encode(
            x="at:Q",
            color=alt.Color(
                "what:N",
                sort=names,
                legend=legend,
                scale=alt.Scale(domain=names, range=[one[1] for one in marks.values()]),
            ),
            strokeDash=alt.StrokeDash(
                "what:N",
                sort=names,
                legend=legend,
                scale=alt.Scale(domain=names, range=[one[2] for one in marks.values()]),
            ),
            tooltip=[alt.Tooltip("what:N", title="which"), alt.Tooltip("told:N", title="falls by")],
        )
    )
    reach = [{"low": effect.interval.low, "high": effect.interval.high}]
    interval = (
        alt.Chart(data(reach))
        .mark_rule(color=OKABE_ITO[1], strokeWidth=3, opacity=0.6)
        .encode(x="low:Q", x2="high:Q", y=alt.value(-6))
    )
    return finished(
        alt.layer(shown, rules, interval).properties(width=WIDTH, height=230),
        f"Masking {_heads(found.heads)}, beside {len(found.random)} random sets of the same layers",
        [
            *named(of),
            f"chosen: {number(effect.value)} {ends(effect.interval.low, effect.interval.high)} "
            f"(horizontal line), n {effect.n}; that random heads do as much: "
            f"p {number(found.p.value)}",
            *found.notes,
        ],
        width=WIDTH + 50,
    )


def _heads(heads: tuple[str, ...]) -> str:
    if len(heads) > NAMED:
        return f"{len(heads)} heads"
    some = "head" if len(heads) == 1 else "heads"
    return f"{some} {', '.join(heads)} (layer-head, counted from 1)"
