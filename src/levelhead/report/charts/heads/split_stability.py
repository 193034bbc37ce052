"""Which heads many random splits choose, and which effects they confirm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    apply_theme,
    format_interval,
    format_number,
    inline_data,
    panel_title,
    subtitle_lines,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.validation.repeated_splits import SplitRange, SplitStability

MAX_HEADS = 20
WIDTH = 360


def split_stability_chart(result: SplitStability, *, subject: str = "") -> ChartType:
    """Plot how often each head was chosen, and the median and range of the confirmed effects.

    Args:
        result: results of the splits.
        subject: description of measure and model, which the result does not store.
    """
    rows = [{"head": head, "times": times} for head, times in result.selection_counts[:MAX_HEADS]]
    order = [head for head, _ in result.selection_counts[:MAX_HEADS]]
    heads_chart = (
        alt.Chart(inline_data(rows))
        .mark_bar(color=OKABE_ITO[0])
        .encode(
            x=alt.X(
                "times:Q",
                title=f"number of the {result.n_splits} splits that chose the head",
                # Up to all splits: an axis that ends at the largest count would make it look like
                # all.
                scale=alt.Scale(domain=[0, result.n_splits]),
                axis=alt.Axis(tickMinStep=1, format="d"),
            ),
            y=alt.Y("head:N", sort=order, title="head: layer-head, counted from 1"),
            tooltip=[
                alt.Tooltip("head:N", title="head, counted from 1"),
                alt.Tooltip("times:Q", title="splits"),
            ],
        )
        .properties(
            width=WIDTH, height=17 * len(rows), title=panel_title(f"heads among the top {result.k}")
        )
    )
    spreads = [
        spread
        for spread in (result.joint_effect, result.overlap, result.replication)
        if spread is not None
    ]
    captions = [*result.notes]
    n_hidden = len(result.selection_counts) - len(rows)
    captions += (
        [f"{n_hidden} heads that were chosen less often are not shown"] if n_hidden > 0 else []
    )
    return apply_theme(
        alt.vconcat(heads_chart, *map(_spread_panel, spreads), spacing=22),
        f"{result.n_splits} splits: the top {result.k} heads of one half, confirmed on the other",
        [
            *subtitle_lines(subject),
            "point: median over splits; line: minimum to maximum",
            *captions,
        ],
        width=WIDTH + 80,
    )


def _spread_panel(spread: SplitRange) -> ChartType:
    row = {
        "name": spread.name,
        "median": spread.median,
        "low": spread.low,
        "high": spread.high,
        "formatted": f"{format_number(spread.median)}, {format_interval(spread.low, spread.high)}",
    }
    base = alt.Chart(inline_data([row]))
    tip = [alt.Tooltip("name:N", title="which"), alt.Tooltip("formatted:N", title="median, range")]
    # A range, not an interval: the splits are of the same items, so they are not independent.
    line = base.mark_rule(color=INK, strokeWidth=2).encode(
        x=alt.X("low:Q", title=None, axis=alt.Axis(tickCount=6)), x2="high:Q", tooltip=tip
    )
    point = base.mark_point(filled=True, size=80, color=OKABE_ITO[1], opacity=1).encode(
        x="median:Q", tooltip=tip
    )
    summary = (
        f"median {format_number(spread.median)}, from {format_number(spread.low)} "
        f"to {format_number(spread.high)}"
    )
    title = panel_title(spread.name, f"{summary}; {spread.n_splits} values")
    title.frame = "group"  # aligned with the axis: tick labels have different widths
    return alt.layer(line, point).properties(width=WIDTH, height=26, title=title)
