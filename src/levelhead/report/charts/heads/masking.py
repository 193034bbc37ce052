"""Effects of masking: a measure by masked heads (Table 3), and against utility cost (Table 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    PALE,
    SHAPES,
    HasInterval,
    apply_theme,
    category_scale,
    count_names,
    format_estimate,
    format_interval,
    format_number,
    inline_data,
    subtitle_lines,
)
from levelhead.study.table_row import interval_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.mitigate.heads.mask_top_heads import MaskedHeads, MaskingReport
    from levelhead.replication.yang2025.masking_curves import MaskingCurve, MaskingCurves

WIDTH = 500
LINES = "lines: intervals, solid over items, dashed over random head sets; grey: no change"
"""Caption of the lines: the two kinds of interval are not comparable."""


class MaskingTradeOff(NamedTuple):
    """One way of masking: the changes of the bias measure and of the utility measure."""

    name: str
    gain: HasInterval
    cost: HasInterval


def curves_chart(
    curves: Sequence[MaskingCurve], *, measure: str, model: str = "", notes: Sequence[str] = ()
) -> ChartType:
    """Plot a measure by the number of masked heads, one line per test (Table 3).

    Args:
        curves: the tests.
        measure: title of the axis.
        model: name of the model.
        notes: lines of the subtitle.
    """
    names = _names([curve.name for curve in curves])
    rows = [
        {
            "test": curve.name,
            "k": point.k,
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "formatted": f"{format_number(point.value)} {format_interval(point.low, point.high)}",
        }
        for curve in curves
        for point in curve.points
    ]
    ks = sorted({point.k for curve in curves for point in curve.points})
    base = alt.Chart(inline_data(rows)).encode(
        x=alt.X(
            "k:Q",
            title="masked heads, the largest scores first",
            axis=alt.Axis(
                values=ks, format="d", grid=False, labelOverlap="greedy", labelSeparation=6
            ),
            scale=alt.Scale(nice=False, padding=10),
        )
    )
    colour = alt.Color("test:N", sort=names, scale=category_scale(names), legend=_legend())
    shape = alt.Shape("test:N", sort=names, scale=_shapes(names), legend=_legend())
    layers = [
        alt.Chart(inline_data([{"y": 0}])).mark_rule(color=PALE).encode(y="y:Q"),
        base.mark_area(opacity=0.13).encode(
            y=alt.Y("low:Q", title=measure), y2="high:Q", color=colour
        ),
        base.mark_line(strokeWidth=2).encode(y="value:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            y="value:Q",
            color=colour,
            shape=shape,
            tooltip=[
                alt.Tooltip("test:N", title="test"),
                alt.Tooltip("k:Q", title="masked heads"),
                alt.Tooltip("formatted:N", title="value, interval"),
            ],
        ),
    ]
    return apply_theme(
        alt.layer(*layers).properties(width=WIDTH, height=280),
        f"{measure} when heads{f' of {model}' if model else ''} are masked",
        ["band: interval of each value; grey line: 0", *notes],
        width=WIDTH + 60,
    )


def masking_curve_chart(
    result: MaskingCurves, *, measure: str = "value", subject: str = ""
) -> ChartType:
    """Plot the curves of a result.

    Args:
        result: measures by the number of masked heads.
        measure: title of the axis.
        subject: description of the map's measure and model, which the result does not store.
    """
    return curves_chart(
        result.curves, measure=measure, notes=(*subtitle_lines(subject), *result.notes)
    )


def masking_chart(result: MaskingReport, *, subject: str = "") -> ChartType:
    """Plot the change of the map's measure against that of every utility measure (Table 1).

    The change of the map's measure is that on the confirmation half, if there is one: the heads
    were chosen on the discovery half.

    Args:
        result: ways of masking, each with its changes.
        subject: description of the map's measure and model, which the result does not store.
    """
    (first, *utilities) = result.base
    if not utilities:
        raise LevelheadError(
            "no utility cost was measured", hint="add a measure of fluency to that of the map"
        )
    half = any(row.changes[0].confirmed_change is not None for row in result.rows)
    panels = [
        _trade_off_panel(
            [_way(row, i, half=half) for row in result.rows],
            f"change of {first.measure}{', confirm half' if half else ''}",
            f"change of {utility.measure}",
        )
        for i, utility in enumerate(utilities, 1)
    ]
    return apply_theme(
        alt.vconcat(*panels, spacing=30),
        "Effect and utility cost of masking heads",
        [*subtitle_lines(subject), f"edited less base; {LINES}", *result.notes],
        width=WIDTH + 150,
    )


def _way(row: MaskedHeads, index: int, *, half: bool) -> MaskingTradeOff:
    first, cost = row.changes[0], row.changes[index].change
    gain = first.confirmed_change if half else first.change
    if gain is None or cost is None:
        raise LevelheadError(f"{row.name} has no change to plot", hint="compare it with the base")
    return MaskingTradeOff(row.name, gain, cost)


def _trade_off_panel(ways: Sequence[MaskingTradeOff], gain: str, cost: str) -> ChartType:
    names = _names([way.name for way in ways])
    rows = [_row(way) for way in ways]
    colour = alt.Color(
        "way:N", title="masked", sort=names, scale=category_scale(names), legend=_solid()
    )
    base = alt.Chart(inline_data(rows)).encode(color=colour)
    few_ticks = alt.Axis(tickCount=8)
    x = alt.X("gain:Q", title=gain, axis=few_ticks)
    y = alt.Y("price:Q", title=cost, axis=few_ticks)
    tips = [
        alt.Tooltip("way:N", title="masked"),
        alt.Tooltip("formatted gain:N", title="bias reduction"),
        alt.Tooltip("formatted price:N", title="utility cost"),
        alt.Tooltip("over:N", title="intervals over"),
    ]
    line: dict[str, Any] = {
        "strokeDash": alt.condition("datum.sets", alt.value([4, 3]), alt.value([1, 0]))
    }
    zero = alt.Chart(inline_data([{"zero": 0}]))
    return alt.layer(
        zero.mark_rule(color=PALE).encode(x="zero:Q"),
        zero.mark_rule(color=PALE).encode(y="zero:Q"),
        base.mark_rule(strokeWidth=1.5, opacity=0.7).encode(
            x="gain low:Q", x2="gain high:Q", y=y, **line
        ),
        base.mark_rule(strokeWidth=1.5, opacity=0.7).encode(
            x=x, y="price low:Q", y2="price high:Q", **line
        ),
        base.mark_point(filled=True, size=90, opacity=1, stroke="white", strokeWidth=1).encode(
            x=x,
            y=y,
            shape=alt.Shape(
                "way:N", title="masked", sort=names, scale=_shapes(names), legend=_solid()
            ),
            tooltip=tips,
        ),
    ).properties(width=WIDTH, height=340)


def _row(way: MaskingTradeOff) -> dict[str, Any]:
    gain, cost = way.gain, way.cost
    kinds = tuple(dict.fromkeys(interval_over(change.interval) for change in (gain, cost)))
    return {
        "over": " (bias reduction), ".join(kinds) + " (utility cost)" * (len(kinds) > 1),
        # Only units of random sets begin with a number (`interval_over`), as "3 random head sets".
        "sets": any(kind[:1].isdigit() for kind in kinds),
        "way": way.name,
        "gain": gain.value,
        "gain low": gain.interval.low,
        "gain high": gain.interval.high,
        "price": cost.value,
        "price low": cost.interval.low,
        "price high": cost.interval.high,
        "formatted gain": format_estimate(gain),
        "formatted price": format_estimate(cost),
    }


def _names(names: list[str]) -> list[str]:
    if not names:
        raise LevelheadError("there is nothing to plot", hint="give at least one line")
    if len(set(names)) < len(names):
        raise LevelheadError("two lines have the same name", hint="give each a different name")
    return names


def _shapes(names: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=list(SHAPES[: count_names(names)]))


def _legend() -> alt.Legend:
    # One definition: Vega-Lite merges the legends of two channels only if they are equal.
    return alt.Legend(title=None, orient="top", columns=3, symbolOpacity=1)


def _solid() -> alt.Legend:
    return alt.Legend(symbolOpacity=1)  # intervals are paler than points; names are not
