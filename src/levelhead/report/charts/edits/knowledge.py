"""Bias that edits remove against knowledge that they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from levelhead.mitigate.evaluation.price import Verdict
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    apply_theme,
    format_estimate,
    inline_data,
    subtitle_lines,
    with_unit,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.mitigate.evaluation.knowledge_front import KnowledgeFront

WIDTH, HEIGHT = 460, 320
FRONT_MARK = "*"
"""Sign of an edit on the front, in its label."""


def knowledge_chart(result: KnowledgeFront, *, subject: str = "") -> ChartType:
    """Plot every edit, with intervals in both directions, and the margin as a band.

    Args:
        result: edits with removed bias and kept knowledge.
        subject: description of the model, which the result does not store.
    """
    rows = [
        {
            "name": point.name + (FRONT_MARK if point.is_on_front else ""),
            "verdict": point.verdict,
            "gain": point.gain.value,
            "gain low": point.gain.interval.low,
            "gain high": point.gain.interval.high,
            "change": point.change.value,
            "change low": point.change.interval.low,
            "change high": point.change.interval.high,
            "formatted gain": format_estimate(point.gain),
            "formatted change": f"{format_estimate(point.change)}, {point.knowledge_measure}",
        }
        for point in result.points
    ]
    x = alt.X("gain:Q", title=with_unit("bias reduction", result.points[0].gain.unit))
    y = alt.Y("change:Q", title="change of knowledge (percentage points)")
    colour = alt.Color(
        "verdict:N",
        scale=_verdict_scale(result),
        legend=alt.Legend(title=None, orient="top", columns=2, labelLimit=300),
    )
    points = alt.Chart(inline_data(rows))
    layers: list[Any] = [
        *_reference_layers(result.margin, x, y),
        points.mark_rule().encode(x="gain low:Q", x2="gain high:Q", y=y, color=colour),
        points.mark_rule().encode(x=x, y="change low:Q", y2="change high:Q", color=colour),
        points.mark_point(filled=True, size=80, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            tooltip=[
                alt.Tooltip("name:N", title="edit"),
                alt.Tooltip("formatted gain:N", title="bias reduction"),
                alt.Tooltip("formatted change:N", title="change of knowledge"),
                alt.Tooltip("verdict:N", title="verdict"),
            ],
        ),
        points.mark_text(align="left", dx=8, dy=-8, fontSize=11, color=INK).encode(
            x=x, y=y, text="name:N"
        ),
    ]
    return apply_theme(
        alt.layer(*layers).properties(width=WIDTH, height=HEIGHT),
        f"Bias removed by {len(rows)} edits against knowledge kept",
        [
            *subtitle_lines(subject),
            f"bias: {result.bias_measure}; knowledge: the measure of the panel with the lowest "
            f"bound; band: margin of {result.margin:g} percentage points",
            "vertical lines: intervals of the two one-sided tests, inside the band if knowledge is "
            f"equivalent; {FRONT_MARK}: no other edit is better in one and as good in the other",
        ],
        width=WIDTH,
    )


def _verdict_scale(result: KnowledgeFront) -> alt.Scale:
    """The colour of each verdict, which is the same in every chart."""
    colours = dict(zip(get_args(Verdict), OKABE_ITO, strict=False))
    shown = [verdict for verdict in colours if verdict in {row.verdict for row in result.points}]
    return alt.Scale(domain=shown, range=[colours[verdict] for verdict in shown])


def _reference_layers(margin: float, x: Any, y: Any) -> list[Any]:
    """The margin as a band, and the unedited model at 0."""
    band = alt.Chart(inline_data([{"low": -margin, "high": margin}]))
    zero = alt.Chart(inline_data([{"gain": 0, "change": 0}]))
    return [
        band.mark_rect(color="#009e73", opacity=0.12).encode(
            y=alt.Y("low:Q", title="change of knowledge (percentage points)"), y2="high:Q"
        ),
        zero.mark_rule(color="#bbbbbb").encode(x=x),
        zero.mark_rule(color="#bbbbbb").encode(y=y),
    ]
