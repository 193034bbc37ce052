"""What settings gain against what they cost, and the front that nothing beats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.mitigate.evaluation.pareto import BASE
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, ends, finished, named, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.evaluation.pareto import Front, Point

WIDTH, HEIGHT = 420, 340
NAMES = 230
"""Room for names, to the right of the points."""
LINE = 15
"""Height of a name."""
MOST = 20
"""Names that have room."""
OFF, ON, CHOSEN, START = "other settings", "on the front", "chosen", "base"
KINDS = (START, ON, CHOSEN, OFF)
COLOURS = (INK, OKABE_ITO[0], OKABE_ITO[1], "#9a9a9a")
LOOKS = ("cross", "circle", "diamond", "circle")
SIZES = (90, 70, 130, 22)


class _Place(NamedTuple):
    """A point, and where it lies; what does not change lies at 0."""

    point: Point
    gain: float
    price: float
    kind: str


def fronted(found: Front, *, chosen: str | None = None, of: str = "") -> ChartType:
    """Gain against price of every setting; the front is joined and named, the base lies at 0.

    Args:
        found: settings with gains and prices.
        chosen: the name of the setting that was chosen.
        of: measures and model, which it does not carry.
    """
    return finished(
        plane(found, chosen),
        f"Gain against price of {len(found.points) - 1} settings",
        [*named(of), *told(found)],
        width=WIDTH + NAMES,
    )


def told(found: Front) -> list[str]:
    """What the front is, and how sure."""
    lines = [
        "front: nothing gains as much for less, or more for as little; in brackets: its share "
        f"of {found.draws} resamples",
        "right and down is better; lines: intervals of each alone",
    ]
    if all(point.price is None for point in found.points):
        lines.append("no setting changes the price at all: no price is shown, for or against")
    return lines


def plane(found: Front, chosen: str | None, *, gain: str = "gain") -> ChartType:
    """The points, their intervals, the front and its names; a strip if there is no price."""
    places = [_place(point, chosen) for point in found.points]
    reach_x, reach_y = _reach(places, "gain"), _reach(places, "price")
    named_ones = _named(places)
    flat = not _estimates(places, "price")  # a strip: a scale of prices would be made up
    high = max(80, LINE * (len(named_ones) + 1)) if flat else HEIGHT
    x = alt.X(
        "gain:Q",
        title=f"{gain}{_unit(places, 'gain')}",
        scale=alt.Scale(domain=list(reach_x), nice=False),
        axis=alt.Axis(tickCount=6),
    )
    y = alt.Y(
        "price:Q",
        title=f"price{_unit(places, 'price')}",
        scale=alt.Scale(domain=list(reach_y), nice=False),
        axis=alt.Axis(values=[0]) if flat else alt.Axis(tickCount=6),
    )
    zero = alt.Chart(data([{"gain": 0, "price": 0}]))
    rows = [_row(one) for one in places]
    front = sorted((one for one in places if one.point.on_front), key=lambda one: one.price)
    steps = [{"gain": one.gain, "price": one.price} for one in front]
    points = alt.Chart(data(rows))
    drawn = [
        zero.mark_rule(color="#bbbbbb").encode(x=x),
        zero.mark_rule(color="#bbbbbb").encode(y=y),
        *_lines(points, x, y),
        alt.Chart(data(steps))
        .mark_line(color=OKABE_ITO[0], strokeWidth=1.2, strokeDash=[4, 3])
        .encode(x=x, y=y, order="price:Q"),
        *_names(named_ones, _Frame(reach_x, reach_y, high, x, y)),
        *_unnamed(places, named_ones),
        points.mark_point(filled=True, opacity=1, stroke="white", strokeWidth=0.8).encode(
            x=x, y=y, **_looks(), tooltip=_tips()
        ),
    ]
    return alt.layer(*drawn).properties(width=WIDTH, height=high)


def _place(point: Point, chosen: str | None) -> _Place:
    kind = ON if point.on_front else OFF
    if point.name in {BASE, chosen}:
        kind = START if point.name == BASE else CHOSEN
    gain, price = (0.0 if own is None else own.value for own in (point.gain, point.price))
    return _Place(point, gain, price, kind)


def _estimates(places: Sequence[_Place], what: str) -> list[Estimate]:
    found = (getattr(one.point, what) for one in places)
    return [own for own in found if own is not None]


def _unit(places: Sequence[_Place], what: str) -> str:
    known = next((own.unit for own in _estimates(places, what) if own.unit), "")
    return f", {known}" if known else ""


def _reach(places: Sequence[_Place], what: str) -> tuple[float, float]:
    """The scale: all points, and the intervals of those that are named; 0 within."""
    every = _estimates(places, what)
    shown = _estimates([one for one in places if one.kind != OFF], what)
    low = min([0.0, *(own.value for own in every), *(own.interval.low for own in shown)])
    high = max([0.0, *(own.value for own in every), *(own.interval.high for own in shown)])
    spare = 0.05 * (high - low) or 1.0
    return low - spare, high + spare


def _row(one: _Place) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": one.point.name,
        "kind": one.kind,
        "gain": one.gain,
        "price": one.price,
        "share": f"{one.point.share:.0%}",
    }
    for what, own in (("gain", one.point.gain), ("price", one.point.price)):
        value = row[what]
        low, high = (value, value) if own is None else (own.interval.low, own.interval.high)
        told = "no change" if own is None else f"{number(value)} {ends(low, high)}"
        row |= {f"{what} low": low, f"{what} high": high, f"told {what}": told}
    return row


def _lines(points: alt.Chart, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Intervals both ways, those of settings off the front thin; cut where the scale ends."""
    drawn = []
    for kind, colour in reversed(list(zip(KINDS, COLOURS, strict=True))):
        width, opacity = (0.6, 0.35) if kind == OFF else (1.6, 0.9)
        own = points.transform_filter(f"datum.kind === '{kind}'").mark_rule(
            color=colour, strokeWidth=width, opacity=opacity, clip=True
        )
        drawn += [
            own.encode(x=alt.X("gain low:Q"), x2="gain high:Q", y=y),
            own.encode(x=x, y=alt.Y("price low:Q"), y2="price high:Q"),
        ]
    return drawn


def _scale(values: Sequence[Any]) -> alt.Scale:
    return alt.Scale(type="ordinal", domain=list(KINDS), range=list(values))


def _looks() -> dict[str, Any]:
    legend = alt.Legend(title=None, orient="top", direction="horizontal", symbolOpacity=1)
    return {
        "fill": alt.Fill("kind:N", scale=_scale(COLOURS), legend=legend),
        "shape": alt.Shape("kind:N", scale=_scale(LOOKS), legend=legend),
        "size": alt.Size("kind:N", scale=_scale(SIZES), legend=legend),
        "order": alt.Order("kind:N", sort="descending"),
    }


def _tips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="setting"),
        alt.Tooltip("told gain:N", title="gain"),
        alt.Tooltip("told price:N", title="price"),
        alt.Tooltip("share:N", title="on the front, resamples"),
    ]


def _named(places: Sequence[_Place]) -> list[_Place]:
    """The chosen, the base and as many of the front as there is room for, the dearest first."""
    rank = {CHOSEN: 0, START: 1, ON: 2}
    some = sorted(
        (one for one in places if one.kind != OFF),
        key=lambda one: (rank[one.kind], -one.point.share),
    )[:MOST]
    return sorted(some, key=lambda one: (-one.price, one.gain))


class _Frame(NamedTuple):
    """The plane: its scales and height."""

    reach_x: tuple[float, float]
    reach_y: tuple[float, float]
    high: float
    x: alt.X
    y: alt.Y


def _names(some: Sequence[_Place], frame: _Frame) -> list[alt.Chart]:
    """Names beside the plane, one below the other, each with a line to its point."""
    (left, right), (low, top), high, x, y = frame
    tall = top - low
    heights = apart([high * (top - one.price) / tall for one in some], LINE, high)
    at = right + (right - left) * 14 / WIDTH
    rows = [
        {
            "gain": one.gain,
            "price": one.price,
            "at": at,
            "line": top - height / high * tall,
            "told": _name(one),
        }
        for one, height in zip(some, heights, strict=True)
    ]
    base = alt.Chart(data(rows))
    return [
        base.mark_rule(color="#777777", strokeWidth=0.6, strokeDash=[1, 2]).encode(
            x=x, y=y, x2="at:Q", y2="line:Q"
        ),
        base.mark_text(align="left", baseline="middle", dx=4, fontSize=11, color=INK).encode(
            x=alt.X("at:Q"), y=alt.Y("line:Q"), text="told:N"
        ),
    ]


def _unnamed(places: Sequence[_Place], some: Sequence[_Place]) -> list[alt.Chart]:
    """How many of the front have no name for want of room."""
    left = sum(one.kind != OFF for one in places) - len(some)
    if not left:
        return []
    text = f"and {left} more on the front"
    mark = alt.Chart(data([{}])).mark_text(align="left", fontSize=11, color=INK, text=text)
    return [mark.encode(x=alt.value(WIDTH + 18), y=alt.value(HEIGHT + LINE))]


def _name(one: _Place) -> str:
    told = f"{one.point.name} ({one.point.share:.0%})"
    if one.kind == CHOSEN:
        told += ", chosen"
    return told if one.point.on_front else f"{told}, not on the front"


def apart(wanted: Sequence[float], line: float, height: float) -> list[float]:
    """Heights as near to those wanted as may be, in their order, a line apart.

    >>> apart([10, 12, 90], 15, 100)
    [10, 25, 90]
    >>> apart([95, 97, 99], 15, 100)
    [70, 85, 100]
    """
    found: list[float] = []
    for want in wanted:
        found.append(max(want, found[-1] + line) if found else want)
    end = height
    for i in reversed(range(len(found))):
        found[i] = min(found[i], end)
        end = found[i] - line
    return found
