"""Settings measured inside a model against the same settings in its downstream classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.mitigate.projection.config_grid import EDIT_POINTS
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    SHAPES,
    apply_theme,
    category_scale,
    format_interval,
    format_number,
    inline_data,
    panel_title,
    subtitle_lines,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.replication.dawkins2024.downstream import DownstreamReport, MeasureColumn

SIDE = 260
BASELINES = ("base", "sent-debias")


def downstream_chart(result: DownstreamReport, *, subject: str = "") -> ChartType:
    """Plot every setting by an intrinsic and an extrinsic measure; hollow points are not viable.

    The extrinsic measure is the first that is not the utility measure. There is one panel per
    intrinsic measure.

    Args:
        result: intrinsic and extrinsic values of all settings.
        subject: description of the models, which the result does not store.
    """
    outer = next(name for name in result.extrinsic if name != result.utility_measure)
    panels = [
        _panel(result, result.column(name), result.column(outer)) for name in result.intrinsic
    ]
    captions = [
        f"{result.models} classifiers averaged; hollow: {result.utility_measure} below "
        f"{format_number(result.utility_limit)} "
        f"({result.viability}, {result.max_utility_loss:g} may be lost): {len(result.viable)} of "
        f"{len(result.columns[0].values_by_config)} settings are viable",
    ]
    captions += [
        f"chosen by {regret.chosen_by} ({regret.config}), {outer} is "
        f"{format_number(regret.regret.value)} "
        f"{format_interval(regret.regret.interval.low, regret.regret.interval.high)} below its best"
        for regret in result.regrets
        if regret.measure == outer and regret.chosen_by in result.intrinsic
    ]
    return apply_theme(
        alt.hconcat(*panels, spacing=40).resolve_scale(color="shared", shape="shared"),
        f"{outer} in classifiers against bias inside the model",
        [*subtitle_lines(subject), *captions],
        width=(SIDE + 60) * len(panels),
    )


def _panel(result: DownstreamReport, inner: MeasureColumn, outer: MeasureColumn) -> ChartType:
    names = ["base", *inner.values_by_config]
    kinds = [*BASELINES, *EDIT_POINTS]
    rows = [_row(name, inner, outer, result) for name in names]
    correlation_name = f"spearman of {inner.name} and {outer.name}"
    correlation = next(
        (estimate for estimate in result.correlations if estimate.name == correlation_name), None
    )
    # Vega-Lite merges the legends of colour and shape only if their definitions are equal.
    order: dict[str, Any] = {
        "sort": kinds,
        "legend": alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1),
    }
    base = alt.Chart(inline_data(rows)).encode(
        x=alt.X(
            "inner:Q",
            title=_title(inner),
            # Not from 0: values far from it would fall together in a corner.
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=6),
        ),
        y=alt.Y(
            "outer:Q",
            title=_title(outer),
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=6),
        ),
        color=alt.Color("level:N", scale=category_scale(kinds), **order),
        shape=alt.Shape(
            "level:N", scale=alt.Scale(domain=kinds, range=list(SHAPES[: len(kinds)])), **order
        ),
        tooltip=[alt.Tooltip("formatted:N", title="setting")],
    )
    correlation_text = "has no value"
    if correlation is not None:
        correlation_text = (
            f"{format_number(correlation.value)} "
            f"{format_interval(correlation.interval.low, correlation.interval.high)}"
        )
    return alt.layer(
        base.transform_filter("datum.viable").mark_point(filled=True, size=70, opacity=0.85),
        base.transform_filter("!datum.viable").mark_point(size=55, opacity=0.85),
    ).properties(width=SIDE, height=SIDE, title=panel_title(f"Spearman {correlation_text}"))


def _row(
    name: str, inner: MeasureColumn, outer: MeasureColumn, result: DownstreamReport
) -> dict[str, Any]:
    def value_in(column: MeasureColumn) -> float:
        return column.base if name == "base" else column.values_by_config[name]

    level = name if name in BASELINES else name.partition(" ")[0]
    utility = value_in(result.column(result.utility_measure))
    return {
        "level": level,
        "inner": value_in(inner),
        "outer": value_in(outer),
        "viable": name == "base" or name in result.viable,
        "formatted": (
            f"{name}: {format_number(value_in(inner))}, {format_number(value_in(outer))}, "
            f"{result.utility_measure} {format_number(utility)}"
        ),
    }


def _title(column: MeasureColumn) -> str:
    return f"{column.name} ({column.better} is better)"
