"""How biased heads are spread, beside maps of dealt labels; the profile over layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.head_map_labels import LAYER, data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    NEGATIVE,
    PALE,
    POSITIVE,
    ends,
    finished,
    named,
    number,
    panel,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.locate.describe import Description, Figure

WIDTH = 380


def described(found: Description, *, of: str = "") -> ChartType:
    """Each number beside its null, and the sum of every layer beside its own.

    Args:
        found: the numbers.
        of: measure and model, which it does not carry.
    """
    rows = [_row(one) for one in found.figures]
    figures = alt.vconcat(
        *(_figure(one) for one in rows),
        spacing=10,
        title=panel("numbers of the map, each on its own scale"),
    )
    drawn = alt.vconcat(figures, _layers(found), spacing=30)
    told = (
        f"grey: 2.5% to 97.5% of {found.relabellings} maps with labels dealt anew, stroke: their "
        "median; p: dealt labels as far out"
        if found.relabellings
        else "no null: labels were not dealt anew, so nothing says what chance would give"
    )
    return finished(
        drawn, "How the heads' effects are spread", [*named(of), told], width=WIDTH + 260
    )


def _row(one: Figure) -> dict[str, Any]:
    return {
        "name": one.name,
        "value": one.value,
        "low": one.null_low,
        "median": one.null_median,
        "high": one.null_high,
        "told": number(one.value),
        "told null": "none"
        if one.null_low is None or one.null_high is None
        else ends(one.null_low, one.null_high),
        "told p": "none" if one.p is None else number(one.p.value),
    }


def _tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="which"),
        alt.Tooltip("told:N", title="value"),
        alt.Tooltip("told null:N", title="dealt labels"),
        alt.Tooltip("told p:N", title="p"),
    ]


def _figure(own: dict[str, Any]) -> ChartType:
    alone = own["low"] is None
    base = alt.Chart(data([own])).encode(y=alt.Y("name:N", title=None, axis=None))
    x = alt.X(
        "value:Q",
        title=None,
        axis=alt.Axis(tickCount=5, format=".3~g", labelFontSize=10),
        scale=alt.Scale(zero=alone, nice=True, padding=0 if alone else 8),
    )
    layers = [] if alone else _null(base)
    layers.append(
        base.mark_point(filled=True, size=70, color=POSITIVE, opacity=1).encode(
            x=x, tooltip=_tips()
        )
    )
    name = alt.Chart(data([own])).mark_text(align="right", fontSize=11, color=INK, text=own["name"])
    p = "" if own["told p"] == "none" else f"{own['told']}, p {own['told p']}"
    told = alt.Chart(data([own])).mark_text(align="left", fontSize=11, color=INK)
    return alt.hconcat(
        name.encode(x=alt.value(160)).properties(width=160, height=20),
        alt.layer(*layers).properties(width=WIDTH, height=20),
        told.mark_text(align="left", fontSize=11, text=p or own["told"])
        .encode(x=alt.value(0))
        .properties(width=90, height=20),
        spacing=14,
        bounds="flush",  # labels at the ends of an axis must not push the columns about
    )


def _null(base: alt.Chart) -> list[alt.Chart]:
    return [
        base.mark_bar(color="#cfcfcf", height=12).encode(x="low:Q", x2="high:Q"),
        base.mark_tick(color=INK, thickness=2, size=14).encode(x="median:Q"),
    ]


def _layers(found: Description) -> ChartType:
    rows = [{**_row(one), "layer": i} for i, one in enumerate(found.layers, 1)]
    x = alt.X("layer:O", title=LAYER, axis=alt.Axis(labelAngle=0, labelOverlap=True))
    base = alt.Chart(data(rows)).encode(x=x)
    y = alt.Y("value:Q", title="sum of the layer")
    layers: list[alt.Chart] = []
    if any(one["low"] is not None for one in rows):
        layers += [
            base.mark_bar(color="#d9d9d9").encode(
                y=alt.Y("low:Q", title="sum of the layer"), y2="high:Q"
            ),
            base.mark_tick(color=INK, thickness=1.5).encode(y="median:Q"),
        ]
    layers.append(
        base.mark_point(filled=True, size=60, opacity=1).encode(
            y=y,
            color=alt.condition("datum.value > 0", alt.value(POSITIVE), alt.value(NEGATIVE)),
            tooltip=_tips(),
        )
    )
    zero = alt.Chart(data([{"y": 0}])).mark_rule(color=PALE).encode(y="y:Q")
    return alt.layer(zero, *layers).properties(
        width=WIDTH + 180, height=200, title=panel("layers: sum of their heads' effects")
    )
