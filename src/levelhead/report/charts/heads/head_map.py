"""Maps of heads (Yang et al. 2025, Figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.report.charts.heads.head_ranking import dots
from levelhead.report.head_map_labels import (
    HEAD,
    LAYER,
    data,
    heads_of,
    lines,
    model_name,
    row,
    tips,
)
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, finished, panel, signed

if TYPE_CHECKING:
    from collections.abc import Collection

    from altair.typing import ChartType

    from levelhead.locate.head_map import HeadMap

MARKED = "dot: its effect differs from 0 after correction (p <= 0.05)"
CLIPPED = "negative scores are drawn white, as the paper prints them"
BOX = "#000000"


def heat_map(found: HeadMap, *, clip_negative: bool = False) -> ChartType:
    """The scores of all heads, layer by layer (Figure 2).

    Args:
        found: the map.
        clip_negative: draw negative scores white, as the paper does.
    """
    step = cell(found)
    drawn = grid(found, reach=reach(found), step=step, clip_negative=clip_negative, marked=True)
    width = step * found.heads_a_layer + 90.0
    others = [row(one) for one in found.scores if one.part != "heads"]
    if others:
        beside = dots(others, title=panel("other parts"), step=max(16, step - 6))
        drawn = alt.hconcat(
            drawn.properties(title=panel("heads")), beside, spacing=40
        ).resolve_legend(color="independent")  # beside the heads it belongs to
        width += 360
    told = [*lines(found, clip_negative=clip_negative)]
    told += [MARKED] if any(one.is_significant for one in found.heads) else []
    told += [CLIPPED] if clip_negative else []
    return finished(
        drawn, f"{found.measure}: heads of {model_name(found.provenance)}", told, width=width
    )


def reach(*maps: HeadMap) -> float:
    """The largest score of some maps, whatever its sign: where colours end."""
    return max((abs(one.score) for own in maps for one in own.heads), default=0.0) or 1.0


def cell(found: HeadMap) -> int:
    """How many pixels a head is wide."""
    most = max(found.layers, found.heads_a_layer)
    return next((step for up_to, step in ((16, 30), (32, 20), (48, 14)) if most <= up_to), 10)


def grid(
    found: HeadMap,
    *,
    reach: float,
    step: int,
    clip_negative: bool = False,
    marked: bool = False,
    boxed: Collection[str] = (),
) -> ChartType:
    """One map without a title.

    Args:
        found: the map.
        reach: where colours end, so that maps side by side share them.
        step: how many pixels a head is wide.
        clip_negative: draw negative scores white.
        marked: put a dot on heads whose effect differs from 0 after correction.
        boxed: heads with a frame, by label.
    """
    rows = [row(one) for one in heads_of(found)]
    x = alt.X("head:O", title=HEAD, axis=_axis(found.heads_a_layer, step), scale=_all(found, 1))
    y = alt.Y("layer:O", title=LAYER, axis=_axis(found.layers, step), scale=_all(found, 0))
    base = alt.Chart(data(rows)).encode(x=x, y=y)
    colour = alt.Color(
        "score:Q",
        title="score",
        scale=signed(reach, clip_negative=clip_negative),
        legend=alt.Legend(gradientLength=120, format=".2~g", tickCount=5),
    )
    layers: list[alt.Chart] = [
        base.mark_rect(stroke="#dddddd", strokeWidth=0.5).encode(color=colour, tooltip=tips())
    ]
    if marked and any(one["significant"] for one in rows):
        layers.append(
            base.mark_circle(
                color=INK, stroke="white", strokeWidth=1, opacity=1, size=step * 1.6, tooltip=None
            ).transform_filter("datum.significant")
        )
    if boxed:
        own = [one for one in rows if one["label"] in boxed]
        layers.append(
            alt.Chart(data(own)).mark_rect(fill=None, stroke=BOX, strokeWidth=2).encode(x=x, y=y)
        )
    return alt.layer(*layers).properties(
        width=step * found.heads_a_layer, height=step * found.layers
    )


def _all(found: HeadMap, side: int) -> alt.Scale:
    """Every layer or head has its place, drawn or not."""
    count = (found.layers, found.heads_a_layer)[side]
    return alt.Scale(domain=list(range(1, count + 1)))


def _axis(count: int, step: int) -> alt.Axis:
    """Every number where there is room, otherwise the first and every fifth."""
    room = step >= (18 if count > 9 else 10)
    shown = [i for i in range(1, count + 1) if room or i == 1 or i % 5 == 0]
    return alt.Axis(values=shown, labelAngle=0, ticks=False, domain=False, labelPadding=4)
