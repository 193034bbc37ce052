"""An honest choice among settings: the front, and what the one chosen gains on other items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.pareto import NAMES, WIDTH, plane, told
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, ends, finished, named, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.mitigate.selection.select_on_dev import Choice

BY = {"parity": "by distance from parity", "value": "by the value itself"}


def chosen(found: Choice, *, of: str = "") -> ChartType:
    """The front with the setting that was chosen; below, its gain where it was and was not chosen.

    Args:
        found: what was chosen.
        of: measures and model, which it does not carry.
    """
    if not drawable(found):
        raise LevelheadError(
            "nothing was chosen and no price was asked: there is nothing to draw",
            mend="give a price; the notes of the choice say why none was chosen",
        )
    panels = [] if found.front is None else [plane(found.front, found.chosen, gain="gain on dev")]
    panels += [] if found.on_dev is None else [_gains(found)]
    lines = [*named(of), *([] if found.front is None else told(found.front)), *found.notes]
    if found.considered < found.settings:
        lines.append(f"{found.considered} of {found.settings} settings are within the price")
    if found.unpriced:
        lines.append(f"{len(found.unpriced)} act behind all that the price reads: not on the front")
    return finished(
        alt.vconcat(*panels, spacing=26),
        f"Chosen on dev {BY[found.by]} among {found.settings} settings: {found.chosen or 'none'}",
        lines,
        width=WIDTH + NAMES,
    )


def drawable(found: Choice) -> bool:
    """Whether there is anything to draw: a setting that was chosen, or prices."""
    return found.front is not None or found.on_dev is not None


def _gains(found: Choice) -> ChartType:
    """The gain of the one chosen: as it looks, corrected for the choice, and on other items."""
    which = {
        "dev, where it was chosen: too good": found.on_dev,
        f"dev, the best of {found.considered} on items left out": found.corrected,
        "test: the number to report": found.on_test,
    }
    some = {name: own for name, own in which.items() if own is not None}
    rows = [
        {
            "which": name,
            "gain": own.value,
            "low": own.interval.low,
            "high": own.interval.high,
            "told": f"{name}\n{number(own.value)} {ends(own.interval.low, own.interval.high)}, "
            f"n {own.n}",
        }
        for name, own in some.items()
    ]
    base = alt.Chart(data(rows)).encode(y=alt.Y("which:N", sort=list(some), axis=None))
    unit = next((own.unit for own in some.values() if own.unit), "")
    x = alt.X("gain:Q", title=f"gain{', ' * bool(unit)}{unit}", axis=alt.Axis(tickCount=6))
    look: dict[str, Any] = {"color": OKABE_ITO[1], "opacity": 1}
    drawn = [
        alt.Chart(data([{"gain": 0}])).mark_rule(color=INK).encode(x=x),
        base.mark_rule(strokeWidth=1.6, **look).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(shape="diamond", filled=True, size=130, **look).encode(
            x=x, tooltip=[alt.Tooltip("told:N", title="gain")]
        ),
        base.mark_text(align="left", baseline="middle", lineBreak="\n", dy=-6, fontSize=11).encode(
            x=alt.value(WIDTH + 18), text="told:N", color=alt.value(INK)
        ),
    ]
    picked = "" if found.picked is None else f", the best in {found.picked:.0%} of resamples"
    return alt.layer(*drawn).properties(
        width=WIDTH, height=36 * len(rows), title=panel(f"gain of {found.chosen}{picked}")
    )
