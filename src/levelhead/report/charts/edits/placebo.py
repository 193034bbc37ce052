"""What an edit gains among placebo edits that take as much away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.charts.histogram import counted, edges
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, PALE, ends, finished, named, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.controls.placebo_report import Placeboed

WIDTH = 460
BESIDE = 250
"""Room for what is told of each row."""
LINE = 30
ALIKE = 0.9
"""|cosine| with the edit from which on a placebo is hardly another edit."""


def placeboed(found: Placeboed, *, of: str = "") -> ChartType:
    """The gains of the placebos, where the edit lies among them, and how sure its gain is.

    The first panel has a scale of its own: placebos may differ by far less than the interval of
    the gain is wide.

    Args:
        found: an edit and its placebos.
        of: the model, which it does not carry.
    """
    own = found.judged
    return finished(
        alt.vconcat(_counts(found), _intervals(found), spacing=26),
        f"{found.setting}: gain of {own.measure} beside {len(own.placebos)} placebo edits",
        [*named(of), *_told(found)],
        width=WIDTH + BESIDE,
    )


def _told(found: Placeboed) -> list[str]:
    own, alike = found.judged, found.matched
    told = [found.verdict]
    if found.by_value is not None:
        told.append(f"by the value itself, confidence aside: {found.by_value.verdict}")
    if found.collapse is not None and found.collapse.verdict not in found.verdict:
        told.append(found.collapse.verdict)
    told.append(
        f"an ordinary paired test calls {own.significant.value:.0%} of the placebos an effect, "
        f"{own.significant_gains.value:.0%} a gain"
    )
    if own.effective is not None:
        told.append(
            f"{len(own.placebos)} placebos amount to {own.effective:.3g} independent ones, by what "
            "they change item by item"
        )
    told.append(
        f"placebos are as various as {alike.effective:.3g} at right angles; largest |cosine| with "
        f"the edit {alike.real:.2f}"
    )
    if alike.real >= ALIKE:
        told.append("SOME PLACEBOS ARE NEARLY THE EDIT ITSELF: that they gain as much says little")
    if own.dropped:
        told.append(f"{len(own.dropped)} items were left out")
    return [*told, *found.notes]


def _counts(found: Placeboed) -> ChartType:
    """How many placebos gain how much."""
    own = found.judged
    over = edges([*own.placebos, own.gain.value])
    spare = (over[1] - over[0]) / 2  # else a gain at the edge is cut in half
    bars = [
        {"low": one.low, "high": one.high, "placebos": one.times, "range": ends(one.low, one.high)}
        for one in counted(own.placebos, over)
        if one.times
    ]
    x = alt.X(
        "low:Q",
        title=_gain(own.gain),
        scale=alt.Scale(domain=[float(over[0] - spare), float(over[-1] + spare)], nice=False),
        axis=alt.Axis(tickCount=6),
    )
    shown = (
        alt.Chart(data(bars))
        .mark_rect(color="#c4c4c4", stroke="white", strokeWidth=0.5)
        .encode(
            x=x,
            x2="high:Q",
            y=alt.Y("placebos:Q", title="placebos", axis=alt.Axis(tickMinStep=1, format="d")),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("range:N", title="gain"),
                alt.Tooltip("placebos:Q", title="placebos"),
            ],
        )
    )
    marks = {
        # The edit below and wider: both are seen where they coincide.
        "the edit": (own.gain.value, OKABE_ITO[1], [1, 0], 5),
        "placebos, 95%": (own.quantile, INK, [7, 3], 1.5),
    }
    names = list(marks)
    legend = alt.Legend(title=None, orient="top", symbolSize=300, columns=2)
    rows = [{"what": name, "low": value} for name, (value, *_) in marks.items()]

    def told(place: int) -> dict[str, Any]:
        values = [one[place] for one in marks.values()]
        return {"legend": legend, "scale": alt.Scale(type="ordinal", domain=names, range=values)}

    rules = (
        alt.Chart(data(rows))
        .mark_rule(opacity=1)
        .encode(
            x=x,
            color=alt.Color("what:N", sort=names, **told(1)),
            strokeDash=alt.StrokeDash("what:N", sort=names, **told(2)),
            strokeWidth=alt.StrokeWidth("what:N", sort=names, **told(3)),
        )
    )
    return alt.layer(shown, rules).properties(width=WIDTH, height=200)


def _gain(one: Estimate) -> str:
    return f"gain, {one.unit}" if one.unit else "gain"


def _intervals(found: Placeboed) -> ChartType:
    """Placebos as strokes, and gains with their intervals, on one scale with 0."""
    own, rows = found.judged, _rows(found)
    x = alt.X("gain:Q", title=_gain(own.gain), axis=alt.Axis(tickCount=6))
    y = alt.Y("which:N", sort=["placebos", *(row["which"] for row in rows)], axis=None)
    text: dict[str, Any] = {
        "align": "left",
        "baseline": "middle",
        "lineBreak": "\n",
        "fontSize": 11,
    }
    strokes = [{"which": "placebos", "gain": value} for value in own.placebos]
    among = f"placebos\nfrom {number(min(own.placebos))} to {number(max(own.placebos))}"
    names = [{"which": "placebos", "told": among}, *rows]
    base = alt.Chart(data(rows)).encode(y=y)
    drawn = [
        alt.Chart(data([{"gain": 0}])).mark_rule(color=INK).encode(x=x),
        alt.Chart(data([{"gain": own.quantile}]))
        .mark_rule(color=PALE, strokeDash=[7, 3])
        .encode(x=x),
        alt.Chart(data(strokes))
        .mark_tick(thickness=1, size=16, opacity=0.4, color=INK)
        .encode(x=x, y=y),
        base.mark_rule(color=OKABE_ITO[1], strokeWidth=1.8).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(filled=True, size=80, opacity=1, color=OKABE_ITO[1]).encode(
            x=x, tooltip=[alt.Tooltip("told:N", title="gain")]
        ),
        alt.Chart(data(names))
        .mark_text(**text, dy=-6, color=INK)
        .encode(x=alt.value(WIDTH + 14), y=y, text="told:N"),
    ]
    return alt.layer(*drawn).properties(
        width=WIDTH,
        height=LINE * (len(rows) + 1),
        title=panel("the same on the scale of the intervals", "dashes: placebos, 95%"),
    )


def _rows(found: Placeboed) -> list[dict[str, Any]]:
    gains: dict[str, Estimate | None] = {"the edit": found.judged.gain}
    if found.collapse is not None:
        gains["the base, as unsure as the edit"] = found.collapse.of_tempering
        gains["the edit beyond lost confidence"] = found.collapse.gain
    rows = []
    for name, own in gains.items():
        if own is None:
            rows.append({"which": name, "told": f"{name}\nno change"})
            continue
        low, high = own.interval.low, own.interval.high
        told = f"{name}\n{number(own.value)} {ends(low, high)}, n {own.n}"
        rows.append(
            {"which": name, "gain": own.value, "low": low, "high": high, "told": told}  # type: ignore[dict-item]
        )
    return rows
