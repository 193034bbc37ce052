"""What every setting of a grid changes: a row a setting, a panel a level (Dawkins et al. 2024).

A row has, from left to right, the marks by which the setting is named, a sign for each of its
projections in the order of a forward, and the change with its interval. Squares are hard, circles
weighted; filled ones take two dimensions: nothing is told by colour alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.mitigate.projection.config_grid import Setting
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, ends, finished, named, number, panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.mitigate.evaluation.sweep import Swept, SweptSetting
    from levelhead.mitigate.projection.config_grid import Part, Step

WIDTH = 250
"""Of the changes in one panel."""
HIGH = 14
"""Of a row."""
GAP = 0.5
"""Between rows whose first projections differ, in rows."""
BESIDE: tuple[tuple[str, ...], ...] = (("sent", "last"), ("penultimate", "penultimate+attn"))
"""Levels that stand side by side; their rows line up."""
OTHER = "settings"
"""Those whose names tell no level."""
FEW = 4
"""Settings that are named one by one."""
DIMS = ("1 dimension", "2 dimensions")
STEPS = tuple(f"{how}, {dims}" for how in ("hard", "weighted") for dims in DIMS)
BLUE, RED = OKABE_ITO[:2]
COLOURS, FILLS = (BLUE, BLUE, RED, RED), ("#ffffff", BLUE, "#ffffff", RED)
LOOKS = ("square", "square", "circle", "circle")
PLAIN = "#444444"
COLUMN = 28
"""Width of a column of signs."""
HEADS: dict[Part, str] = {"penultimate": "pen.", "last": "last", "sent": "sent"}


class _Drawn(NamedTuple):
    """A setting and where it is drawn."""

    row: float
    marks: str
    setting: Setting | None
    own: SweptSetting


def swept(found: Swept, *, of: str = "") -> ChartType:
    """The change of a measure by every setting, with intervals, grouped by level.

    Args:
        found: one measure of all settings.
        of: the model, which it does not carry.
    """
    levels, reach = _levels(found), _reach(found)
    left = max(_left_of(rows) for rows in levels.values())  # one width: panels stand in columns
    lines = [[name for name in line if name in levels] for line in (*BESIDE, (OTHER,))]
    drawn = [
        alt.hconcat(*(_panel(name, levels[name], left, reach, found) for name in line), spacing=24)
        for line in lines
        if line
    ]
    return finished(
        alt.vconcat(*drawn, spacing=18),
        f"Change of {found.measure} by each of {len(found.settings)} settings",
        [*named(of), *_told(found)],
        width=max(map(len, lines)) * (left + WIDTH + 24),
    )


def _levels(found: Swept) -> dict[str, list[_Drawn]]:
    """The settings of each level, from top to bottom, in the order they came in."""
    levels: dict[str, list[_Drawn]] = {}
    for one in found.settings:
        setting = _setting(one.name)
        rows = levels.setdefault(OTHER if setting is None else setting.level, [])
        marks = one.name if setting is None else one.name.partition(" ")[2]
        row = 0.0
        if rows:
            row = rows[-1].row + 1 + GAP * (_first(rows[-1].setting) != _first(setting))
        rows.append(_Drawn(row, marks, setting, one))
    return levels


def _setting(name: str) -> Setting | None:
    try:
        return Setting.named(name)
    except LevelheadError:
        return None


def _first(setting: Setting | None) -> Step | None:
    """The first projection that a setting chooses, where more follow: rows are grouped by it."""
    if setting is None or len(_columns(setting)) < 2:
        return None
    return setting.penultimate or setting.last


def _look(one: _Drawn, part: Part | None = None) -> str | None:
    """How a part is edited; by default the first one that a setting chooses."""
    if one.setting is None:
        return None
    step = one.setting.step(part or _columns(one.setting)[0])
    return STEPS[2 * step.weighted + step.dims - 1]


def _reach(found: Swept) -> tuple[float, float]:
    """One scale for all panels, 0 within."""
    changes = [one.change for one in found.settings if one.change is not None]
    low = min([0.0, *(one.interval.low for one in changes)])
    high = max([0.0, *(one.interval.high for one in changes)])
    spare = 0.03 * (high - low) or 1.0
    return low - spare, high + spare


def _panel(
    name: str, rows: Sequence[_Drawn], left: float, reach: tuple[float, float], found: Swept
) -> ChartType:
    """The rows of one level: marks and signs, then changes."""
    last = rows[-1].row
    y = alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[-0.8, last + 0.8], reverse=True))
    high = HIGH * (last + 1.6)
    changes = _changes(rows, y, reach, found).properties(width=WIDTH, height=high)
    signs = _signs(rows, y, left).properties(width=left, height=high)
    return alt.hconcat(signs, changes, spacing=4).properties(title=panel(name, *_edits(rows)))


def _columns(setting: Setting | None) -> tuple[Part, ...]:
    """The projections whose kind a setting chooses: that of the attention is always the same."""
    return () if setting is None else tuple(one for one in setting.parts if one != "attn")


def _edits(rows: Sequence[_Drawn]) -> list[str]:
    setting = rows[0].setting
    if setting is None:
        return []
    return [f"{len(rows)} setting{'s' * (len(rows) > 1)}; edits {', '.join(setting.parts)}"]


def _left_of(rows: Sequence[_Drawn]) -> float:
    """How much room marks and signs take."""
    letters = max(len(one.marks) for one in rows)
    return 6.2 * letters + 10 + COLUMN * len(_columns(rows[0].setting))


def _signs(rows: Sequence[_Drawn], y: alt.Y, left: float) -> ChartType:
    """The marks of the names, and a sign for every projection, from the changes leftwards."""
    parts = _columns(rows[0].setting)
    start = -COLUMN * len(parts)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-left, 0], nice=False))
    marks = [{"x": start - 6, "row": one.row, "marks": one.marks} for one in rows]
    signs = [
        {"x": start + COLUMN * (i + 0.5), "row": one.row, "part": part, "look": _look(one, part)}
        for one in rows
        for i, part in enumerate(parts)
    ]
    heads = [{"x": start + COLUMN * (i + 0.5), "head": HEADS[one]} for i, one in enumerate(parts)]
    drawn: list[alt.Chart] = [
        alt.Chart(data(marks))
        .mark_text(align="right", baseline="middle", font="monospace", fontSize=10, color=INK)
        .encode(x=x, y=y, text="marks:N")
    ]
    if parts:
        drawn += [
            alt.Chart(data(signs))
            .mark_point(size=44, strokeWidth=1.3, opacity=1)
            .encode(x=x, y=y, **_looks(), tooltip=["part:N", alt.Tooltip("look:N", title="how")]),
            alt.Chart(data(heads))
            .mark_text(baseline="bottom", fontSize=9, color=PLAIN)
            .encode(x=x, y=alt.value(-1), text="head:N"),
        ]
    return alt.layer(*drawn)


def _looks() -> dict[str, Any]:
    """Shape, stroke and fill of a projection; one legend for the three."""
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
    rows: Sequence[_Drawn], y: alt.Y, reach: tuple[float, float], found: Swept
) -> ChartType:
    """Changes with intervals; what changes nothing is said, not drawn as a measured 0."""
    unit = f", {found.unit}" if found.unit else ""
    x = alt.X(
        "change:Q",
        title=f"change of {found.measure}{unit}",
        scale=alt.Scale(domain=list(reach), nice=False),
        axis=alt.Axis(tickCount=5),
    )
    told = [_row(one) for one in rows if one.own.change is not None]
    idle = [{"change": 0, "row": one.row} for one in rows if one.own.change is None]
    zero = alt.Chart(data([{"change": 0}])).encode(x=x)
    drawn: list[alt.Chart] = [
        zero.mark_rule(color=INK, strokeWidth=1.2),
        zero.mark_text(text="base", baseline="bottom", fontSize=9, color=PLAIN).encode(
            y=alt.value(-1)
        ),
    ]
    if told:
        base = alt.Chart(data(told)).encode(y=y)
        tips = [
            alt.Tooltip("name:N", title="setting"),
            alt.Tooltip("value:N", title="value"),
            alt.Tooltip("told:N", title="change"),
            alt.Tooltip("p:N", title="corrected p"),
        ]
        looks: dict[str, Any] = (
            _looks() if rows[0].setting else {"stroke": alt.value(INK), "fill": alt.value(INK)}
        )
        drawn += [
            base.mark_rule(strokeWidth=1.2, color=PLAIN).encode(x=alt.X("low:Q"), x2="high:Q"),
            base.mark_point(size=44, strokeWidth=1.3, opacity=1).encode(x=x, **looks, tooltip=tips),
        ]
    if idle:
        right = reach[1] > -reach[0]  # where there is room
        side: dict[str, Any] = {"align": "left" if right else "right", "dx": 5 if right else -5}
        drawn.append(
            alt.Chart(data(idle))
            .mark_text(text="no answer changes", fontSize=9, baseline="middle", color=PLAIN, **side)
            .encode(x=x, y=y)
        )
    return alt.layer(*drawn)


def _row(one: _Drawn) -> dict[str, Any]:
    change = one.own.change
    assert change is not None  # noqa: S101  # only those that change are drawn
    p = change.p
    return {
        "row": one.row,
        "name": one.own.name,
        "look": _look(one),
        "change": change.value,
        "low": change.interval.low,
        "high": change.interval.high,
        "value": number(one.own.value),
        "told": f"{number(change.value)} {ends(change.interval.low, change.interval.high)}",
        "p": "none" if p is None or p.adjusted is None else number(p.adjusted),
    }


def _told(found: Swept) -> list[str]:
    """What base, signs and lines are; how many changes are beyond chance; what was not read."""
    base, ways = found.base, [one.change for one in found.settings if one.change is not None]
    told = [f"base {number(base.value)} {ends(base.interval.low, base.interval.high)}, n {base.n}"]
    if base.parity is not None:
        told[0] += f"; its parity {number(base.parity)}: only a change that comes nearer to parity"
        told[0] += " is a gain"
    if any(_setting(one.name) for one in found.settings):
        told.append(
            "marks: n,c of penultimate, n,c of last, n of sent, as far as the level goes; "
            "n 1: weighted, c 1: two dimensions; a change has the symbol of its first projection"
        )
    if ways:
        told.append(f"lines: intervals of each alone, {ways[0].interval.level:.0%}")
        tested = [one.p.adjusted for one in ways if one.p and one.p.adjusted is not None]
        if tested:
            told[-1] += f"; corrected p at most 0.05: {sum(p <= 0.05 for p in tested)} of "
            told[-1] += f"{len(tested)}"
    if found.behind:
        told.append(
            f"not drawn, since they act behind all that {found.measure} reads and cannot change "
            f"it: {_behind(found.behind)}"
        )
    if found.dropped:
        told.append(f"{len(found.dropped)} items were left out")
    return told


def _behind(names: Sequence[str]) -> str:
    """Names, or how many of a level."""
    if len(names) <= FEW:
        return "; ".join(names)
    levels = Counter(one.level if one else OTHER for one in map(_setting, names))
    return ", ".join(f"{times} of {level}" for level, times in levels.items())
