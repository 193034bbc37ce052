"""The effect of masking chosen heads, among random heads of the same layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.histogram import bin_edges, count_in_bins
from levelhead.report.head_map_labels import inline_data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    apply_theme,
    format_interval,
    format_number,
    subtitle_lines,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.validation.random_heads import RandomHeadControl

WIDTH = 480
MAX_NAMED = 8
"""Up to this number, heads are named one by one."""


def control_chart(result: RandomHeadControl, *, subject: str = "") -> ChartType:
    """Plot the effects of random sets of heads and that of the chosen set.

    Args:
        result: the control.
        subject: description of measure and model, which the result does not store.
    """
    effect = result.effect
    # With the chosen heads, so that their line lies within the bins.
    bins = bin_edges([*result.random_effects, effect.value])
    bars = [
        {
            "low": bar.low,
            "high": bar.high,
            "sets": bar.n_values,
            "range": format_interval(bar.low, bar.high),
        }
        for bar in count_in_bins(result.random_effects, bins)
        if bar.n_values
    ]
    histogram = (
        alt.Chart(inline_data(bars))
        .mark_rect(color="#c4c4c4", stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X(
                "low:Q",
                title="decrease of the measure when the heads are masked",
                axis=alt.Axis(tickCount=7),
            ),
            x2="high:Q",
            # Unlike bars, rectangles have no base line.
            y2=alt.datum(0),
            y=alt.Y("sets:Q", title="random sets", axis=alt.Axis(tickMinStep=1, format="d")),
            tooltip=[
                alt.Tooltip("range:N", title="decrease"),
                alt.Tooltip("sets:Q", title="random sets"),
            ],
        )
    )
    marks = {
        "chosen heads": (effect.value, OKABE_ITO[1], [1, 0]),
        "random sets, median": (result.random_median, INK, [2, 2]),
        "random sets, 95%": (result.random_95th_percentile, INK, [7, 3]),
    }
    rows = [
        {"what": name, "at": value, "formatted": format_number(value)}
        for name, (value, _, _) in marks.items()
    ]
    names = list(marks)
    # Vega-Lite merges the legends of two channels only if their definitions are equal.
    legend = alt.Legend(title=None, orient="top", symbolSize=300, columns=3)
    rules = (
        alt.Chart(inline_data(rows))
        .mark_rule(strokeWidth=2)
        .encode(
            x="at:Q",
            color=alt.Color(
                "what:N",
                sort=names,
                legend=legend,
                scale=alt.Scale(domain=names, range=[mark[1] for mark in marks.values()]),
            ),
            strokeDash=alt.StrokeDash(
                "what:N",
                sort=names,
                legend=legend,
                scale=alt.Scale(domain=names, range=[mark[2] for mark in marks.values()]),
            ),
            tooltip=[
                alt.Tooltip("what:N", title="which"),
                alt.Tooltip("formatted:N", title="decrease"),
            ],
        )
    )
    interval_rows = [{"low": effect.interval.low, "high": effect.interval.high}]
    interval = (
        alt.Chart(inline_data(interval_rows))
        .mark_rule(color=OKABE_ITO[1], strokeWidth=3, opacity=0.6)
        # Above the plot, where no bar hides it.
        .encode(x="low:Q", x2="high:Q", y=alt.value(-6))
    )
    return apply_theme(
        alt.layer(histogram, rules, interval).properties(width=WIDTH, height=230),
        (
            f"Masking {_heads(result.heads)}, with {len(result.random_effects)} random "
            "sets of the same layers as control"
        ),
        [
            *subtitle_lines(subject),
            f"chosen: {format_number(effect.value)} "
            f"{format_interval(effect.interval.low, effect.interval.high)} "
            f"(horizontal line), n {effect.n}; test against random heads: "
            f"p {format_number(result.p.value)}",
            *result.notes,
        ],
        width=WIDTH + 50,
    )


def _heads(heads: tuple[str, ...]) -> str:
    if len(heads) > MAX_NAMED:
        return f"{len(heads)} heads"
    noun = "head" if len(heads) == 1 else "heads"
    return f"{noun} {', '.join(heads)} (layer-head, counted from 1)"
