"""Maps of heads (Yang et al. 2025, Figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.heads.head_ranking import component_dots
from levelhead.report.head_map_labels import (
    HEAD_TITLE,
    LAYER_TITLE,
    component_row,
    head_map_captions,
    head_tooltips,
    require_heads,
)
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    apply_theme,
    inline_data,
    model_name,
    panel_title,
    signed_colour_scale,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from altair.typing import ChartType

    from levelhead.locate.head_map import HeadMap

MARKED = "dot: its effect differs from 0 after correction (p <= 0.05)"
CLIPPED = "negative scores are white, as the paper prints them"
BOX = "#000000"


def heat_map(head_map: HeadMap, *, clip_negative: bool = False) -> ChartType:
    """Plot the scores of all heads by layer (Figure 2).

    Args:
        head_map: the head map.
        clip_negative: whether to show negative scores in white, as the paper does.
    """
    step = cell_size(head_map)
    chart = head_grid(
        head_map, limit=max_abs_score(head_map), step=step, clip_negative=clip_negative, marked=True
    )
    width = step * head_map.heads_per_layer + 90.0
    component_rows = [
        component_row(component) for component in head_map.scores if component.component != "heads"
    ]
    if component_rows:
        component_chart = component_dots(
            component_rows, title=panel_title("other parts"), step=max(16, step - 6)
        )
        chart = alt.hconcat(
            chart.properties(title=panel_title("heads")), component_chart, spacing=40
        ).resolve_legend(color="independent")  # the legend belongs to the heads
        width += 360
    captions = [*head_map_captions(head_map, clip_negative=clip_negative)]
    captions += [MARKED] if any(head.is_significant for head in head_map.heads) else []
    captions += [CLIPPED] if clip_negative else []
    return apply_theme(
        chart,
        f"{head_map.measure}: heads of {model_name(head_map.provenance)}",
        captions,
        width=width,
    )


def max_abs_score(*maps: HeadMap) -> float:
    """The largest absolute score of some maps, which is the end of the colour scale."""
    return (
        # A map of zeros still needs a scale with a width.
        max((abs(head.score) for head_map in maps for head in head_map.heads), default=0.0) or 1.0
    )


def cell_size(head_map: HeadMap) -> int:
    """The width of a head's cell, in pixels."""
    longest_side = max(head_map.layers, head_map.heads_per_layer)
    return next(
        (step for up_to, step in ((16, 30), (32, 20), (48, 14)) if longest_side <= up_to), 10
    )


def head_grid(
    head_map: HeadMap,
    *,
    limit: float,
    step: int,
    clip_negative: bool = False,
    marked: bool = False,
    boxed: Collection[str] = (),
) -> ChartType:
    """Plot one head map without a title.

    Args:
        head_map: the head map.
        limit: end of the colour scale, shared by maps side by side.
        step: width of a head's cell, in pixels.
        clip_negative: whether to show negative scores in white.
        marked: whether to put a dot on heads whose effect differs from 0 after correction.
        boxed: labels of the heads to frame.
    """
    rows = [component_row(head) for head in require_heads(head_map)]
    x = alt.X(
        "head:O",
        title=HEAD_TITLE,
        axis=_axis(head_map.heads_per_layer, step),
        scale=_full_scale(head_map, 1),
    )
    y = alt.Y(
        "layer:O",
        title=LAYER_TITLE,
        axis=_axis(head_map.layers, step),
        scale=_full_scale(head_map, 0),
    )
    base = alt.Chart(inline_data(rows)).encode(x=x, y=y)
    colour = alt.Color(
        "score:Q",
        title="score",
        scale=signed_colour_scale(limit, clip_negative=clip_negative),
        legend=alt.Legend(gradientLength=120, format=".2~g", tickCount=5),
    )
    layers: list[alt.Chart] = [
        base.mark_rect(stroke="#dddddd", strokeWidth=0.5).encode(
            color=colour, tooltip=head_tooltips()
        )
    ]
    if marked and any(head_row["significant"] for head_row in rows):
        layers.append(
            # A white rim, so that the dot is visible on dark cells as well.
            base.mark_circle(
                color=INK, stroke="white", strokeWidth=1, opacity=1, size=step * 1.6, tooltip=None
            ).transform_filter("datum.significant")
        )
    if boxed:
        boxed_rows = [head_row for head_row in rows if head_row["label"] in boxed]
        layers.append(
            alt.Chart(inline_data(boxed_rows))
            .mark_rect(fill=None, stroke=BOX, strokeWidth=2)
            .encode(x=x, y=y)
        )
    return alt.layer(*layers).properties(
        width=step * head_map.heads_per_layer, height=step * head_map.layers
    )


def _full_scale(head_map: HeadMap, side: int) -> alt.Scale:
    """A scale with every layer or head, also those without a score."""
    count = (head_map.layers, head_map.heads_per_layer)[side]
    return alt.Scale(domain=list(range(1, count + 1)))


def _axis(count: int, step: int) -> alt.Axis:
    """An axis with every number if the cells are wide enough, else the first and every fifth."""
    # Two digits need 18 pixels at this font size, one digit needs 10.
    fits = step >= (18 if count > 9 else 10)
    labels = [i for i in range(1, count + 1) if fits or i == 1 or i % 5 == 0]
    return alt.Axis(values=labels, labelAngle=0, ticks=False, domain=False, labelPadding=4)
