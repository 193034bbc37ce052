"""A forest plot: every measure's value and interval on an axis of its own, parity as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, PALE, ends, finished, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate, Measurement

WIDTH, HEIGHT = 420, 34
ABOUT = (
    "point: value; bar: its interval; dashed line: parity, the value if groups were treated alike",
    "each measure has its own unit and axis",
)


def forest(
    rows: Sequence[tuple[str, Measurement | Estimate]], *, title: str, lines: Sequence[str] = ABOUT
) -> ChartType:
    """Values with intervals, one below the other.

    Args:
        rows: a name and a number each.
        title: what they are of.
        lines: how to read it.
    """
    drawn = alt.vconcat(*(_row(name, one) for name, one in rows), spacing=24, bounds="flush")
    return finished(drawn, title, lines, width=WIDTH + 180.0)


def _row(name: str, one: Measurement | Estimate) -> ChartType:
    low, high, parity = one.interval.low, one.interval.high, one.parity
    span = [low, high, *([] if parity is None else [parity])]
    margin = (max(span) - min(span)) * 0.08 or 1.0
    scale = alt.Scale(domain=[min(span) - margin, max(span) + margin], nice=False)
    plain = max(map(abs, span)) >= 0.01
    shown = ".3~f" if plain else ".1~e"
    axis = alt.Axis(title=None, tickCount=5, grid=False, format=shown, labelOverlap=True)
    told = {
        "name": name,
        "value": one.value,
        "low": low,
        "high": high,
        "n": one.n,
        "told": f"{number(one.value)} {ends(low, high)}",
        "parity_told": number(parity),
        "unit": one.unit or "no unit",
    }
    base = alt.Chart(data([told])).encode(
        tooltip=[
            alt.Tooltip("name:N", title="measure"),
            alt.Tooltip("told:N", title="value"),
            alt.Tooltip("parity_told:N", title="parity"),
            alt.Tooltip("n:Q", title="n"),
            alt.Tooltip("unit:N", title="unit"),
        ]
    )
    parts: list[alt.Chart] = []
    if parity is not None:
        line = alt.Chart(data([{"parity": parity}])).mark_rule(
            color=PALE, strokeDash=[4, 3], strokeWidth=1.5
        )
        parts.append(line.encode(x=alt.X("parity:Q", scale=scale)))
    x = alt.X("low:Q", scale=scale, axis=axis)
    parts.append(base.mark_rule(color=OKABE_ITO[0], strokeWidth=3).encode(x=x, x2="high:Q"))
    point = alt.X("value:Q", scale=scale, axis=axis)
    parts.append(base.mark_point(color=INK, filled=True, size=55, opacity=1).encode(x=point))
    # A text and not a title: titles of several lengths end at several places.
    label = alt.Chart(data([{"name": name}])).mark_text(
        align="right", dx=-10, fontSize=11, fontWeight="bold", color=INK
    )
    parts.append(label.encode(text="name:N", x=alt.value(0), y=alt.value(HEIGHT / 2)))
    return alt.layer(*parts).properties(width=WIDTH, height=HEIGHT)
