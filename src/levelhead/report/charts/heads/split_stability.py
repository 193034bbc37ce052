"""What many splits choose and confirm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, ends, finished, named, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.validation.repeated_splits import Repeated, Spread

SHOWN = 20
WIDTH = 360


def repeated(found: Repeated, *, of: str = "") -> ChartType:
    """How often each head was chosen; median and range of what the splits confirm.

    Args:
        found: what the splits found.
        of: measure and model, which it does not carry.
    """
    rows = [{"head": head, "times": times} for head, times in found.chosen[:SHOWN]]
    order = [head for head, _ in found.chosen[:SHOWN]]
    chosen = (
        alt.Chart(data(rows))
        .mark_bar(color=OKABE_ITO[0])
        .encode(
            x=alt.X(
                "times:Q",
                title=f"chosen in so many of {found.splits} splits",
                scale=alt.Scale(domain=[0, found.splits]),
                axis=alt.Axis(tickMinStep=1, format="d"),
            ),
            y=alt.Y("head:N", sort=order, title="head: layer-head, counted from 1"),
            tooltip=[
                alt.Tooltip("head:N", title="head, counted from 1"),
                alt.Tooltip("times:Q", title="splits"),
            ],
        )
        .properties(
            width=WIDTH, height=17 * len(rows), title=panel(f"heads among the top {found.k}")
        )
    )
    spreads = [one for one in (found.joint, found.overlap, found.replication) if one is not None]
    told = [*found.notes]
    left = len(found.chosen) - len(rows)
    told += [f"{left} heads that were chosen less often are left out"] if left > 0 else []
    return finished(
        alt.vconcat(chosen, *map(_spread, spreads), spacing=22),
        f"{found.splits} splits: the top {found.k} heads of one half, confirmed on the other",
        [*named(of), "point: median over splits; line: the least and the largest", *told],
        width=WIDTH + 80,
    )


def _spread(one: Spread) -> ChartType:
    row = {
        "name": one.name,
        "median": one.median,
        "low": one.low,
        "high": one.high,
        "told": f"{number(one.median)}, {ends(one.low, one.high)}",
    }
    base = alt.Chart(data([row]))
    tip = [alt.Tooltip("name:N", title="which"), alt.Tooltip("told:N", title="median, range")]
    line = base.mark_rule(color=INK, strokeWidth=2).encode(
        x=alt.X("low:Q", title=None, axis=alt.Axis(tickCount=6)), x2="high:Q", tooltip=tip
    )
    point = base.mark_point(filled=True, size=80, color=OKABE_ITO[1], opacity=1).encode(
        x="median:Q", tooltip=tip
    )
    told = f"median {number(one.median)}, from {number(one.low)} to {number(one.high)}"
    title = panel(one.name, f"{told}; {one.splits} values")
    title.frame = "group"  # by the axis: tick labels are of different widths
    return alt.layer(line, point).properties(width=WIDTH, height=26, title=title)
