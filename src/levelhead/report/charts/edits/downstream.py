"""Settings inside a model against the same settings in what is built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.mitigate.projection.config_grid import LEVELS
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import SHAPES, categories, ends, finished, named, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.replication.dawkins2024.downstream import Column, Downstream

SIDE = 260
OTHERS = ("base", "sent-debias")


def scattered(found: Downstream, *, of: str = "") -> ChartType:
    """Every setting by a measure inside and one outside; hollow ones are not viable.

    The measure outside is the first that is no price, in a panel for every measure inside.

    Args:
        found: inside and outside.
        of: the models, which it does not carry.
    """
    outer = next(name for name in found.outside if name != found.price)
    panels = [_panel(found, found.column(name), found.column(outer)) for name in found.inside]
    told = [
        f"{found.models} classifiers averaged; hollow: {found.price} below {number(found.limit)} "
        f"({found.viability}, {found.keep:g} may be lost): {len(found.viable)} of "
        f"{len(found.columns[0].settings)} settings are viable",
    ]
    told += [
        f"chosen by {one.chosen_by} ({one.setting}), {outer} is {number(one.lost.value)} "
        f"{ends(one.lost.interval.low, one.lost.interval.high)} below its best"
        for one in found.regrets
        if one.measure == outer and one.chosen_by in found.inside
    ]
    return finished(
        alt.hconcat(*panels, spacing=40).resolve_scale(color="shared", shape="shared"),
        f"{outer} in classifiers against bias inside the model",
        [*named(of), *told],
        width=(SIDE + 60) * len(panels),
    )


def _panel(found: Downstream, inner: Column, outer: Column) -> ChartType:
    names = ["base", *inner.settings]
    kinds = [*OTHERS, *LEVELS]
    rows = [_row(name, inner, outer, found) for name in names]
    wanted = f"spearman of {inner.name} and {outer.name}"
    cell = next((one for one in found.correlations if one.name == wanted), None)
    order: dict[str, Any] = {
        "sort": kinds,
        "legend": alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1),
    }
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "inner:Q",
            title=_title(inner),
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=6),
        ),
        y=alt.Y(
            "outer:Q",
            title=_title(outer),
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=6),
        ),
        color=alt.Color("level:N", scale=categories(kinds), **order),
        shape=alt.Shape(
            "level:N", scale=alt.Scale(domain=kinds, range=list(SHAPES[: len(kinds)])), **order
        ),
        tooltip=[alt.Tooltip("told:N", title="setting")],
    )
    said = "has no value"
    if cell is not None:
        said = f"{number(cell.value)} {ends(cell.interval.low, cell.interval.high)}"
    return alt.layer(
        base.transform_filter("datum.viable").mark_point(filled=True, size=70, opacity=0.85),
        base.transform_filter("!datum.viable").mark_point(size=55, opacity=0.85),
    ).properties(width=SIDE, height=SIDE, title=panel(f"Spearman {said}"))


def _row(name: str, inner: Column, outer: Column, found: Downstream) -> dict[str, Any]:
    def of(column: Column) -> float:
        return column.base if name == "base" else column.settings[name]

    level = name if name in OTHERS else name.partition(" ")[0]
    paid = of(found.column(found.price))
    return {
        "level": level,
        "inner": of(inner),
        "outer": of(outer),
        "viable": name == "base" or name in found.viable,
        "told": f"{name}: {number(of(inner))}, {number(of(outer))}, {found.price} {number(paid)}",
    }


def _title(column: Column) -> str:
    return f"{column.name} ({column.better} is better)"
