"""What masking buys: a measure over masked heads (Table 3), gain against price (Table 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from levelhead.core.errors import LevelheadError
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import PALE, SHAPES, categories, ends, few, finished, named, number
from levelhead.study.row import interval_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Interval
    from levelhead.mitigate.heads.mask_top_heads import Lines, Masked, Targeted

WIDTH = 500
LINES = "lines: intervals, solid over items, dashed over random head sets; grey: no change"
"""What a line of the plane is: the two kinds of interval are not comparable."""


class Point(Protocol):
    """A value and its interval after so many heads were masked."""

    @property
    def k(self) -> int:
        """How many heads are masked."""

    @property
    def value(self) -> float:
        """The value."""

    @property
    def low(self) -> float:
        """Where its interval begins."""

    @property
    def high(self) -> float:
        """Where its interval ends."""


class Curve(Protocol):
    """One test over masked heads."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def points(self) -> Sequence[Point]:
        """By number of masked heads."""


class Change(Protocol):
    """A change and its interval."""

    @property
    def value(self) -> float:
        """The value."""

    @property
    def interval(self) -> Interval:
        """Its interval."""


class Row(Protocol):
    """One way of masking: what it buys, what it costs."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def gain(self) -> Change:
        """What it buys."""

    @property
    def price(self) -> Change:
        """What it costs."""


def lines(
    curves: Sequence[Curve], *, measure: str, model: str = "", notes: Sequence[str] = ()
) -> ChartType:
    """A measure over the number of masked heads, one line a test (Table 3).

    Args:
        curves: the tests.
        measure: what is drawn, as the axis says it.
        model: whose heads are masked.
        notes: said below the title.
    """
    names = _names([one.name for one in curves])
    rows = [
        {
            "test": curve.name,
            "k": one.k,
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "told": f"{number(one.value)} {ends(one.low, one.high)}",
        }
        for curve in curves
        for one in curve.points
    ]
    ks = sorted({one.k for curve in curves for one in curve.points})
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "k:Q",
            title="masked heads, the largest scores first",
            axis=alt.Axis(
                values=ks, format="d", grid=False, labelOverlap="greedy", labelSeparation=6
            ),
            scale=alt.Scale(nice=False, padding=10),
        )
    )
    colour = alt.Color("test:N", sort=names, scale=categories(names), legend=_legend())
    shape = alt.Shape("test:N", sort=names, scale=_shapes(names), legend=_legend())
    drawn = [
        alt.Chart(data([{"y": 0}])).mark_rule(color=PALE).encode(y="y:Q"),
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
                alt.Tooltip("told:N", title="value, interval"),
            ],
        ),
    ]
    return finished(
        alt.layer(*drawn).properties(width=WIDTH, height=280),
        f"{measure} when heads{f' of {model}' if model else ''} are masked",
        ["band: interval of each value; grey line: 0", *notes],
        width=WIDTH + 60,
    )


def lined(found: Lines, *, measure: str = "value", of: str = "") -> ChartType:
    """The curves of a result.

    Args:
        found: other measures as more and more heads are masked.
        measure: what is drawn, as the axis says it.
        of: measure and model of the map, which it does not carry.
    """
    return lines(found.curves, measure=measure, notes=(*named(of), *found.notes))


def gain_and_price(
    rows: Sequence[Row], *, gain: str, price: str, model: str, notes: Sequence[str] = ()
) -> ChartType:
    """What each way of masking buys against what it costs, both with intervals (Table 1).

    Args:
        rows: the ways.
        gain: what is bought, as the axis says it.
        price: what it costs, as the axis says it.
        model: whose heads are masked.
        notes: said below the title.
    """
    return finished(
        _ways(rows, gain, price),
        f"What masking heads of {model} buys and costs",
        [LINES, *notes],
        width=WIDTH + 150,
    )


def masked(found: Targeted, *, of: str = "") -> ChartType:
    """The change of the map's measure against that of every price (Table 1).

    The measure's change is that on the confirm half, where there is one.

    Args:
        found: ways of masking, each with its changes.
        of: measure and model of the map, which it does not carry.
    """
    (first, *prices) = found.base
    if not prices:
        raise LevelheadError(
            "no price was measured", mend="give a measure of fluency beside that of the map"
        )
    half = any(one.changes[0].confirmed is not None for one in found.rows)
    panels = [
        _ways(
            [_way(one, i, half=half) for one in found.rows],
            f"change of {first.measure}{', confirm half' if half else ''}",
            f"change of {own.measure}",
        )
        for i, own in enumerate(prices, 1)
    ]
    return finished(
        alt.vconcat(*panels, spacing=30),
        "What masking heads buys and costs",
        [*named(of), f"edited less base; {LINES}", *found.notes],
        width=WIDTH + 150,
    )


class _Way(NamedTuple):
    name: str
    gain: Change
    price: Change


def _way(one: Masked, number: int, *, half: bool) -> _Way:
    first, price = one.changes[0], one.changes[number].change
    gain = first.confirmed if half else first.change
    if gain is None or price is None:
        raise LevelheadError(f"{one.name} has no change to draw", mend="compare it with the base")
    return _Way(one.name, gain, price)


def _ways(ways: Sequence[Row], gain: str, price: str) -> ChartType:
    names = _names([one.name for one in ways])
    rows = [_row(one) for one in ways]
    colour = alt.Color(
        "way:N", title="masked", sort=names, scale=categories(names), legend=_solid()
    )
    base = alt.Chart(data(rows)).encode(color=colour)
    few_ticks = alt.Axis(tickCount=8)
    x = alt.X("gain:Q", title=gain, axis=few_ticks)
    y = alt.Y("price:Q", title=price, axis=few_ticks)
    tips = [
        alt.Tooltip("way:N", title="masked"),
        alt.Tooltip("told gain:N", title="gain"),
        alt.Tooltip("told price:N", title="price"),
        alt.Tooltip("over:N", title="intervals over"),
    ]
    line: dict[str, Any] = {
        "strokeDash": alt.condition("datum.sets", alt.value([4, 3]), alt.value([1, 0]))
    }
    zero = alt.Chart(data([{"zero": 0}]))
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


def _row(one: Row) -> dict[str, Any]:
    gain, price = one.gain, one.price
    kinds = tuple(dict.fromkeys(interval_over(own.interval) for own in (gain, price)))
    return {
        "over": " (gain), ".join(kinds) + " (price)" * (len(kinds) > 1),
        "sets": any(kind[:1].isdigit() for kind in kinds),
        "way": one.name,
        "gain": gain.value,
        "gain low": gain.interval.low,
        "gain high": gain.interval.high,
        "price": price.value,
        "price low": price.interval.low,
        "price high": price.interval.high,
        "told gain": f"{number(gain.value)} {ends(gain.interval.low, gain.interval.high)}",
        "told price": f"{number(price.value)} {ends(price.interval.low, price.interval.high)}",
    }


def _names(names: list[str]) -> list[str]:
    if not names:
        raise LevelheadError("there is nothing to draw", mend="give at least one line")
    if len(set(names)) < len(names):
        raise LevelheadError("two lines have the same name", mend="give each a name of its own")
    return names


def _shapes(names: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=list(SHAPES[: few(names)]))


def _legend() -> alt.Legend:
    return alt.Legend(title=None, orient="top", columns=3, symbolOpacity=1)


def _solid() -> alt.Legend:
    return alt.Legend(symbolOpacity=1)  # intervals are paler than points; names are not
