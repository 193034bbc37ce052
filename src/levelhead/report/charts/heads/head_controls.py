"""The effect of masking chosen heads, among random heads of the same layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.charts.histogram import BAR_COLOUR, bin_edges, histogram
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    apply_theme,
    format_estimate,
    format_number,
    inline_data,
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
    x = alt.X(
        "low:Q",
        title="decrease of the measure when the heads are masked",
        axis=alt.Axis(tickCount=7),
    )
    bars = histogram(
        result.random_effects,
        bins,
        x,
        field="sets",
        title="random sets",
        value="decrease",
        colour=BAR_COLOUR,
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

    def mark_encoding(index: int) -> dict[str, Any]:
        values = [mark[index] for mark in marks.values()]
        return {"sort": names, "legend": legend, "scale": alt.Scale(domain=names, range=values)}

    rules = (
        alt.Chart(inline_data(rows))
        .mark_rule(strokeWidth=2)
        .encode(
            x="at:Q",
            color=alt.Color("what:N", **mark_encoding(1)),
            strokeDash=alt.StrokeDash("what:N", **mark_encoding(2)),
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
        alt.layer(bars, rules, interval).properties(width=WIDTH, height=230),
        (
            f"Masking {_heads(result.heads)}, with {len(result.random_effects)} random "
            "sets of the same layers as control"
        ),
        [
            *subtitle_lines(subject),
            f"chosen: {format_estimate(effect)} (horizontal line), n {effect.n}; "
            f"test against random heads: p {format_number(result.p.value)}",
            *result.notes,
        ],
        width=WIDTH + 50,
    )


def _heads(heads: tuple[str, ...]) -> str:
    if len(heads) > MAX_NAMED:
        return f"{len(heads)} heads"
    noun = "head" if len(heads) == 1 else "heads"
    return f"{noun} {', '.join(heads)} (layer-head, counted from 1)"
