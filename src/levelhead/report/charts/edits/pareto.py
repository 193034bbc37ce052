"""Bias reduction of settings against utility cost, with the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.mitigate.evaluation.pareto import BASE
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
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.evaluation.pareto import ParetoFront, ParetoPoint

WIDTH, HEIGHT = 420, 340
NAMES = 230
"""Width of the column of names, to the right of the points."""
LINE = 15
"""Height of a name, in pixels."""
MAX_LABELS = 20
"""Number of names that fit beside the chart."""
OFF, ON, CHOSEN, START = "other settings", "on the front", "chosen", "base"
KINDS = (START, ON, CHOSEN, OFF)
COLOURS = (INK, OKABE_ITO[0], OKABE_ITO[1], "#9a9a9a")
LOOKS = ("cross", "circle", "diamond", "circle")
SIZES = (90, 70, 130, 22)


class _PlottedPoint(NamedTuple):
    """A setting and its position; without a change, the position is 0."""

    point: ParetoPoint
    gain: float
    cost: float
    kind: str


def pareto_chart(
    result: ParetoFront, *, selected: str | None = None, subject: str = ""
) -> ChartType:
    """Plot bias reduction against utility cost of every setting, relative to the base at 0.

    A line joins the settings on the Pareto front, and labels name them.

    Args:
        result: settings with bias reductions and utility costs.
        selected: name of the setting that was chosen.
        subject: description of measures and model, which the result does not store.
    """
    return apply_theme(
        pareto_plane(result, selected),
        f"Bias reduction against utility cost of {len(result.points) - 1} settings",
        [*subtitle_lines(subject), *front_captions(result)],
        width=WIDTH + NAMES,
    )


def front_captions(result: ParetoFront) -> list[str]:
    """Captions that define the front and state its stability."""
    lines = [
        "front: no setting reduces bias as much at a lower cost, or more at the same cost; in "
        "brackets: share of "
        f"{result.n_resamples} resamples with the setting on the front",
        "right and down is better; lines: intervals of each alone",
    ]
    if all(point.cost is None for point in result.points):
        lines.append("no setting changes utility: its cost is not shown")
    return lines


def pareto_plane(
    result: ParetoFront, selected: str | None, *, gain: str = "bias reduction"
) -> ChartType:
    """Plot points, intervals, the front and its labels; a strip if utility does not change."""
    plotted = [_plot_point(point, selected) for point in result.points]
    reach_x, reach_y = _axis_range(plotted, "gain"), _axis_range(plotted, "cost")
    labelled = _select_labelled(plotted)
    flat = not _estimates(
        plotted, "cost"
    )  # a strip: without costs, an axis would have an arbitrary scale
    high = max(80, LINE * (len(labelled) + 1)) if flat else HEIGHT
    x = alt.X(
        "gain:Q",
        title=_axis_title(gain, plotted, "gain"),
        scale=alt.Scale(domain=list(reach_x), nice=False),
        axis=alt.Axis(tickCount=6),
    )
    y = alt.Y(
        "price:Q",
        title=_axis_title("utility cost", plotted, "cost"),
        scale=alt.Scale(domain=list(reach_y), nice=False),
        axis=alt.Axis(values=[0]) if flat else alt.Axis(tickCount=6),
    )
    zero = alt.Chart(inline_data([{"gain": 0, "price": 0}]))
    rows = [_row(entry) for entry in plotted]
    front = sorted(
        (entry for entry in plotted if entry.point.is_on_front), key=lambda entry: entry.cost
    )
    steps = [{"gain": entry.gain, "price": entry.cost} for entry in front]
    points = alt.Chart(inline_data(rows))
    layers = [
        zero.mark_rule(color="#bbbbbb").encode(x=x),
        zero.mark_rule(color="#bbbbbb").encode(y=y),
        *_lines(points, x, y),
        alt.Chart(inline_data(steps))
        .mark_line(color=OKABE_ITO[0], strokeWidth=1.2, strokeDash=[4, 3])
        # Without an order, Vega-Lite would join the points by their bias reduction.
        .encode(x=x, y=y, order="price:Q"),
        *_label_layers(labelled, _Frame(reach_x, reach_y, high, x, y)),
        *_unlabelled_note(plotted, labelled),
        points.mark_point(filled=True, opacity=1, stroke="white", strokeWidth=0.8).encode(
            x=x, y=y, **_looks(), tooltip=_tips()
        ),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=high)


def _plot_point(point: ParetoPoint, selected: str | None) -> _PlottedPoint:
    kind = ON if point.is_on_front else OFF
    if point.name in {BASE, selected}:
        kind = START if point.name == BASE else CHOSEN
    gain, cost = (
        0.0 if estimate is None else estimate.value for estimate in (point.gain, point.cost)
    )
    return _PlottedPoint(point, gain, cost, kind)


def _estimates(plotted: Sequence[_PlottedPoint], what: str) -> list[Estimate]:
    values = (getattr(entry.point, what) for entry in plotted)
    return [estimate for estimate in values if estimate is not None]


def _axis_title(text: str, plotted: Sequence[_PlottedPoint], what: str) -> str:
    unit = next((estimate.unit for estimate in _estimates(plotted, what) if estimate.unit), "")
    return with_unit(text, unit)


def _axis_range(plotted: Sequence[_PlottedPoint], what: str) -> tuple[float, float]:
    """The range of an axis: 0, all points, and the intervals of labelled settings."""
    estimates = _estimates(plotted, what)
    # Intervals off the front are cut: a few wide ones would press all points together.
    labelled = _estimates([entry for entry in plotted if entry.kind != OFF], what)
    values = [0.0, *(estimate.value for estimate in estimates)]
    low = min([*values, *(estimate.interval.low for estimate in labelled)])
    high = max([*values, *(estimate.interval.high for estimate in labelled)])
    spare = 0.05 * (high - low) or 1.0
    return low - spare, high + spare


def _row(entry: _PlottedPoint) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.point.name,
        "kind": entry.kind,
        "gain": entry.gain,
        "price": entry.cost,
        "share": f"{entry.point.share:.0%}",
    }
    for what, estimate in (("gain", entry.point.gain), ("price", entry.point.cost)):
        value = row[what]
        low, high = (
            (value, value) if estimate is None else (estimate.interval.low, estimate.interval.high)
        )
        text = "no change" if estimate is None else format_estimate(estimate)
        row |= {f"{what} low": low, f"{what} high": high, f"formatted {what}": text}
    return row


def _lines(points: alt.Chart, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Plot intervals in both directions; thin off the front, and cut at the ends of the axes."""
    layers = []
    # Reversed, so that the intervals of other settings lie below those on the front.
    for kind, colour in reversed(list(zip(KINDS, COLOURS, strict=True))):
        width, opacity = (0.6, 0.35) if kind == OFF else (1.6, 0.9)
        rules = points.transform_filter(f"datum.kind === '{kind}'").mark_rule(
            color=colour, strokeWidth=width, opacity=opacity, clip=True
        )
        layers += [
            rules.encode(x=alt.X("gain low:Q"), x2="gain high:Q", y=y),
            rules.encode(x=x, y=alt.Y("price low:Q"), y2="price high:Q"),
        ]
    return layers


def _scale(values: Sequence[Any]) -> alt.Scale:
    return alt.Scale(type="ordinal", domain=list(KINDS), range=list(values))


def _looks() -> dict[str, Any]:
    # One object: Vega-Lite merges the legends of channels only if they are equal.
    legend = alt.Legend(title=None, orient="top", direction="horizontal", symbolOpacity=1)
    return {
        "fill": alt.Fill("kind:N", scale=_scale(COLOURS), legend=legend),
        "shape": alt.Shape("kind:N", scale=_scale(LOOKS), legend=legend),
        "size": alt.Size("kind:N", scale=_scale(SIZES), legend=legend),
        # By name, descending: other settings are drawn first, the chosen one and the base on top.
        "order": alt.Order("kind:N", sort="descending"),
    }


def _tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="setting"),
        alt.Tooltip("formatted gain:N", title="bias reduction"),
        alt.Tooltip("formatted price:N", title="utility cost"),
        alt.Tooltip("share:N", title="on the front, resamples"),
    ]


def _select_labelled(plotted: Sequence[_PlottedPoint]) -> list[_PlottedPoint]:
    """The chosen setting, the base and the front up to `MAX_LABELS`, the highest cost first."""
    rank = {CHOSEN: 0, START: 1, ON: 2}
    labelled = sorted(
        (entry for entry in plotted if entry.kind != OFF),
        key=lambda entry: (rank[entry.kind], -entry.point.share),
    )[:MAX_LABELS]
    return sorted(labelled, key=lambda entry: (-entry.cost, entry.gain))


class _Frame(NamedTuple):
    """The scales and the height of the plot."""

    reach_x: tuple[float, float]
    reach_y: tuple[float, float]
    high: float
    x: alt.X
    y: alt.Y


def _label_layers(labelled: Sequence[_PlottedPoint], frame: _Frame) -> list[alt.Chart]:
    """Plot the labels in a column beside the plot, with a line from each to its point."""
    (left, right), (low, top), high, x, y = frame
    tall = top - low
    heights = spread_labels([high * (top - entry.cost) / tall for entry in labelled], LINE, high)
    at = right + (right - left) * 14 / WIDTH
    rows = [
        {
            "gain": entry.gain,
            "price": entry.cost,
            "at": at,
            "line": top - height / high * tall,
            "formatted": _label(entry),
        }
        for entry, height in zip(labelled, heights, strict=True)
    ]
    base = alt.Chart(inline_data(rows))
    return [
        base.mark_rule(color="#777777", strokeWidth=0.6, strokeDash=[1, 2]).encode(
            x=x, y=y, x2="at:Q", y2="line:Q"
        ),
        base.mark_text(align="left", baseline="middle", dx=4, fontSize=11, color=INK).encode(
            x=alt.X("at:Q"), y=alt.Y("line:Q"), text="formatted:N"
        ),
    ]


def _unlabelled_note(
    plotted: Sequence[_PlottedPoint], labelled: Sequence[_PlottedPoint]
) -> list[alt.Chart]:
    """A note on how many settings of the front have no label."""
    left = sum(entry.kind != OFF for entry in plotted) - len(labelled)
    if not left:
        return []
    text = f"and {left} more on the front"
    mark = alt.Chart(inline_data([{}])).mark_text(align="left", fontSize=11, color=INK, text=text)
    return [mark.encode(x=alt.value(WIDTH + 18), y=alt.value(HEIGHT + LINE))]


def _label(entry: _PlottedPoint) -> str:
    label = f"{entry.point.name} ({entry.point.share:.0%})"
    if entry.kind == CHOSEN:
        label += ", chosen"
    return label if entry.point.is_on_front else f"{label}, not on the front"


def spread_labels(targets: Sequence[float], line: float, height: float) -> list[float]:
    """Shift label positions so that they keep their order and a minimum distance of one line.

    >>> spread_labels([10, 12, 90], 15, 100)
    [10, 25, 90]
    >>> spread_labels([95, 97, 99], 15, 100)
    [70, 85, 100]
    """
    placed: list[float] = []
    for target in targets:
        placed.append(max(target, placed[-1] + line) if placed else target)
    # Second pass, from the end: labels that the first pass moved beyond the edge move back.
    end = height
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], end)
        end = placed[i] - line
    return placed
