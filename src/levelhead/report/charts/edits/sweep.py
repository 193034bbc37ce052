"""Changes by every setting of a grid: a row per setting, a panel per level (Dawkins et al. 2024).

A row has, from left to right, the setting's short name, a symbol for each of its projections in the
order of a forward pass, and the change with its interval. Squares are hard projections, circles
weighted ones; filled symbols remove two dimensions. No meaning rests on colour alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.mitigate.projection.config_grid import ProjectionConfig
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    apply_theme,
    format_estimate,
    format_number,
    inline_data,
    panel_title,
    subtitle_lines,
    with_unit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.mitigate.evaluation.sweep import SweepReport, VariantRow
    from levelhead.mitigate.projection.config_grid import ProjectionRule, SiteGroup

WIDTH = 250
"""Width of the changes in one panel."""
ROW_HEIGHT = 14
"""Height of a row."""
GAP = 0.5
"""Extra space between rows whose first projections differ, in rows."""
SIDE_BY_SIDE: tuple[tuple[str, ...], ...] = (("sent", "last"), ("penultimate", "penultimate+attn"))
"""Levels in panels side by side; their rows are aligned."""
OTHER = "settings"
"""Panel for settings whose names contain no level."""
MAX_NAMED = 4
"""Up to this number, settings are named one by one."""
DIMS = ("1 dimension", "2 dimensions")
STEPS = tuple(f"{how}, {dims}" for how in ("hard", "weighted") for dims in DIMS)
BLUE, RED = OKABE_ITO[:2]
COLOURS, FILLS = (BLUE, BLUE, RED, RED), ("#ffffff", BLUE, "#ffffff", RED)
LOOKS = ("square", "square", "circle", "circle")
GREY = "#444444"
COLUMN = 28
"""Width of a column of symbols."""
HEADS: dict[SiteGroup, str] = {"penultimate": "pen.", "last": "last", "sent": "sent"}


class _PlottedVariant(NamedTuple):
    """A setting and its position in the chart."""

    row: float
    marks: str
    setting: ProjectionConfig | None
    variant: VariantRow


def sweep_chart(result: SweepReport, *, subject: str = "") -> ChartType:
    """Plot the change of a measure by every setting, with intervals, grouped by level.

    Args:
        result: one measure of all settings.
        subject: description of the model, which the result does not store.
    """
    levels, axis_range = _levels(result), _axis_range(result)
    left = max(
        _left_width(rows) for rows in levels.values()
    )  # one width: panels are aligned in columns
    lines = [[name for name in line if name in levels] for line in (*SIDE_BY_SIDE, (OTHER,))]
    panel_rows = [
        alt.hconcat(
            *(_panel(name, levels[name], left, axis_range, result) for name in line), spacing=24
        )
        for line in lines
        if line
    ]
    return apply_theme(
        alt.vconcat(*panel_rows, spacing=18),
        f"Change of {result.measure} by each of {len(result.variants)} settings",
        [*subtitle_lines(subject), *_captions(result)],
        width=max(map(len, lines)) * (left + WIDTH + 24),
    )


def _levels(result: SweepReport) -> dict[str, list[_PlottedVariant]]:
    """The settings of each level, from top to bottom, in their original order."""
    levels: dict[str, list[_PlottedVariant]] = {}
    for variant in result.variants:
        setting = _setting(variant.name)
        rows = levels.setdefault(OTHER if setting is None else setting.edit_point, [])
        marks = variant.name if setting is None else variant.name.partition(" ")[2]
        row = 0.0
        if rows:
            row = rows[-1].row + 1 + GAP * (_first(rows[-1].setting) != _first(setting))
        rows.append(_PlottedVariant(row, marks, setting, variant))
    return levels


def _setting(name: str) -> ProjectionConfig | None:
    try:
        return ProjectionConfig.from_name(name)
    except LevelheadError:
        return None


def _first(setting: ProjectionConfig | None) -> ProjectionRule | None:
    """The first projection of a setting with several; rows are grouped by it."""
    if setting is None or len(_columns(setting)) < 2:
        return None
    return setting.penultimate or setting.last


def _look(plotted: _PlottedVariant, part: SiteGroup | None = None) -> str | None:
    """The kind of projection of a site group; by default of the setting's first."""
    if plotted.setting is None:
        return None
    step = plotted.setting.step(part or _columns(plotted.setting)[0])
    return STEPS[2 * step.weighted + step.n_components - 1]


def _axis_range(result: SweepReport) -> tuple[float, float]:
    """The common range of all panels, which includes 0."""
    changes = [variant.change for variant in result.variants if variant.change is not None]
    # With 0, so that the side on which an interval lies is always visible.
    low = min([0.0, *(change.interval.low for change in changes)])
    high = max([0.0, *(change.interval.high for change in changes)])
    spare = 0.03 * (high - low) or 1.0
    return low - spare, high + spare


def _panel(
    name: str,
    rows: Sequence[_PlottedVariant],
    left: float,
    axis_range: tuple[float, float],
    result: SweepReport,
) -> ChartType:
    """Plot the rows of one level: names, symbols, then changes."""
    last = rows[-1].row
    y = alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[-0.8, last + 0.8], reverse=True))
    high = ROW_HEIGHT * (last + 1.6)
    changes = _changes(rows, y, axis_range, result).properties(width=WIDTH, height=high)
    signs = _signs(rows, y, left).properties(width=left, height=high)
    return alt.hconcat(signs, changes, spacing=4).properties(title=panel_title(name, *_edits(rows)))


def _columns(setting: ProjectionConfig | None) -> tuple[SiteGroup, ...]:
    """The site groups whose projection a setting chooses; the attention's is always the same."""
    return () if setting is None else tuple(part for part in setting.site_groups if part != "attn")


def _edits(rows: Sequence[_PlottedVariant]) -> list[str]:
    setting = rows[0].setting
    if setting is None:
        return []
    return [f"{len(rows)} setting{'s' * (len(rows) > 1)}; edits {', '.join(setting.site_groups)}"]


def _left_width(rows: Sequence[_PlottedVariant]) -> float:
    """Width of the names and symbols, in pixels."""
    letters = max(len(plotted.marks) for plotted in rows)
    # 6.2 pixels: the advance width of a monospace character at font size 10.
    return 6.2 * letters + 10 + COLUMN * len(_columns(rows[0].setting))


def _signs(rows: Sequence[_PlottedVariant], y: alt.Y, left: float) -> ChartType:
    """Plot the short names and one symbol per projection, to the left of the changes."""
    parts = _columns(rows[0].setting)
    start = -COLUMN * len(parts)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-left, 0], nice=False))
    marks = [{"x": start - 6, "row": plotted.row, "marks": plotted.marks} for plotted in rows]
    signs = [
        {
            "x": start + COLUMN * (i + 0.5),
            "row": plotted.row,
            "part": part,
            "look": _look(plotted, part),
        }
        for plotted in rows
        for i, part in enumerate(parts)
    ]
    heads = [{"x": start + COLUMN * (i + 0.5), "head": HEADS[part]} for i, part in enumerate(parts)]
    layers: list[alt.Chart] = [
        alt.Chart(inline_data(marks))
        .mark_text(align="right", baseline="middle", font="monospace", fontSize=10, color=INK)
        .encode(x=x, y=y, text="marks:N")
    ]
    if parts:
        layers += [
            alt.Chart(inline_data(signs))
            .mark_point(size=44, strokeWidth=1.3, opacity=1)
            .encode(x=x, y=y, **_looks(), tooltip=["part:N", alt.Tooltip("look:N", title="how")]),
            alt.Chart(inline_data(heads))
            .mark_text(baseline="bottom", fontSize=9, color=GREY)
            .encode(x=x, y=alt.value(-1), text="head:N"),
        ]
    return alt.layer(*layers)


def _looks() -> dict[str, Any]:
    """Shape, stroke and fill of a projection, in one legend."""
    # One object: Vega-Lite merges the legends of channels only if they are equal.
    legend = alt.Legend(
        title=None, orient="top", direction="horizontal", symbolSize=60, symbolStrokeWidth=1.3
    )

    def scale(values: Sequence[str]) -> alt.Scale:
        return alt.Scale(domain=list(STEPS), range=list(values))

    return {
        "shape": alt.Shape("look:N", scale=scale(LOOKS), legend=legend),
        "stroke": alt.Stroke("look:N", scale=scale(COLOURS), legend=legend),
        "fill": alt.Fill("look:N", scale=scale(FILLS), legend=legend),
    }


def _changes(
    rows: Sequence[_PlottedVariant], y: alt.Y, axis_range: tuple[float, float], result: SweepReport
) -> ChartType:
    """Plot changes with intervals; a text, not a point at 0, marks settings without a change."""
    x = alt.X(
        "change:Q",
        title=with_unit(f"change of {result.measure}", result.unit),
        scale=alt.Scale(domain=list(axis_range), nice=False),
        axis=alt.Axis(tickCount=5),
    )
    changed_rows = [_row(plotted) for plotted in rows if plotted.variant.change is not None]
    idle = [{"change": 0, "row": plotted.row} for plotted in rows if plotted.variant.change is None]
    zero = alt.Chart(inline_data([{"change": 0}])).encode(x=x)
    layers: list[alt.Chart] = [
        zero.mark_rule(color=INK, strokeWidth=1.2),
        zero.mark_text(text="base", baseline="bottom", fontSize=9, color=GREY).encode(
            y=alt.value(-1)
        ),
    ]
    if changed_rows:
        base = alt.Chart(inline_data(changed_rows)).encode(y=y)
        tips = [
            alt.Tooltip("name:N", title="setting"),
            alt.Tooltip("value:N", title="value"),
            alt.Tooltip("formatted:N", title="change"),
            alt.Tooltip("p:N", title="corrected p"),
        ]
        looks: dict[str, Any] = (
            _looks() if rows[0].setting else {"stroke": alt.value(INK), "fill": alt.value(INK)}
        )
        layers += [
            base.mark_rule(strokeWidth=1.2, color=GREY).encode(x=alt.X("low:Q"), x2="high:Q"),
            base.mark_point(size=44, strokeWidth=1.3, opacity=1).encode(x=x, **looks, tooltip=tips),
        ]
    if idle:
        right = axis_range[1] > -axis_range[0]  # the text goes to the wider side
        side: dict[str, Any] = {"align": "left" if right else "right", "dx": 5 if right else -5}
        layers.append(
            alt.Chart(inline_data(idle))
            .mark_text(text="no answer changes", fontSize=9, baseline="middle", color=GREY, **side)
            .encode(x=x, y=y)
        )
    return alt.layer(*layers)


def _row(plotted: _PlottedVariant) -> dict[str, Any]:
    change = plotted.variant.change
    assert change is not None  # noqa: S101  # only those that change are drawn
    p = change.p
    return {
        "row": plotted.row,
        "name": plotted.variant.name,
        "look": _look(plotted),
        "change": change.value,
        "low": change.interval.low,
        "high": change.interval.high,
        "value": format_number(plotted.variant.value),
        "formatted": format_estimate(change),
        "p": "none" if p is None or p.adjusted is None else format_number(p.adjusted),
    }


def _captions(result: SweepReport) -> list[str]:
    """Captions: the base, the symbols and lines, the number of significant changes, omissions."""
    base = result.base
    changes = [variant.change for variant in result.variants if variant.change is not None]
    captions = [f"base {format_estimate(base)}, n {base.n}"]
    if base.parity is not None:
        captions[0] += (
            f"; its parity {format_number(base.parity)}: only a change towards parity reduces bias"
        )
    if any(_setting(variant.name) for variant in result.variants):
        captions.append(
            "marks: n,c of penultimate, n,c of last, n of sent, as far as the level goes; "
            "n 1: weighted, c 1: two dimensions; a change has the symbol of its first projection"
        )
    if changes:
        captions.append(f"lines: intervals of each alone, {changes[0].interval.level:.0%}")
        tested = [
            change.p.adjusted for change in changes if change.p and change.p.adjusted is not None
        ]
        if tested:
            captions[-1] += f"; corrected p at most 0.05: {sum(p <= 0.05 for p in tested)} of "
            captions[-1] += f"{len(tested)}"
    if result.unaffected_variants:
        captions.append(
            f"not shown, since they act after all sites that {result.measure} reads and cannot "
            f"change it: {_summarise_names(result.unaffected_variants)}"
        )
    if result.dropped:
        captions.append(f"{len(result.dropped)} items were left out")
    return captions


def _summarise_names(names: Sequence[str]) -> str:
    """Join the names or, if they are many, count them by level."""
    if len(names) <= MAX_NAMED:
        return "; ".join(names)
    levels = Counter(setting.edit_point if setting else OTHER for setting in map(_setting, names))
    return ", ".join(f"{times} of {level}" for level, times in levels.items())
