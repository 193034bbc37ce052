"""Differences with their intervals, a row each: claims about settings, tasks with heads masked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, PALE, ends, finished, named, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.replication.dawkins2024.claims import Findings
    from levelhead.study.steps.glue import MaskedTask

WIDTH, BESIDE, LINE = 340, 200, 26
HOLDS = {"yes": OKABE_ITO[0], "no": OKABE_ITO[1], "undecided": PALE, "untestable": PALE}
"""Colours of verdicts; they are written beside as well."""


class Line(NamedTuple):
    """A row."""

    name: str
    difference: Estimate | None
    told: str
    colour: str = OKABE_ITO[0]
    points: tuple[float, ...] = ()
    """Of single models, drawn small."""


def claimed(found: Findings, *, of: str = "") -> ChartType:
    """What the paper says of settings: the mean difference that each thing makes.

    Args:
        found: the claims on one measure.
        of: the model, which they do not carry.
    """
    lines = [
        Line(
            one.claim if one.level == "all" else f"- {one.level}",
            one.difference,
            f"{one.holds}; better in {one.better} of {one.pairs}",
            HOLDS[one.holds],
        )
        for one in found.claims
    ]
    told = [
        f"{found.better} is better; settings that differ in this alone, with it less without, on "
        "average",
        "yes, no: better or worse, corrected for all rows; lines: intervals of each alone over the "
        "measure's units; the settings are all there are",
    ]
    if found.untestable:
        told.append(f"{found.untestable}: less of it is not shown to be less bias")
    drawn = rows(lines, f"difference of {found.measure}{_unit(found.unit)}")
    title = f"What each part of a setting does to {found.measure}"
    return finished(drawn, title, [*named(of), *told], width=WIDTH + BESIDE + 280)


def tasked(found: MaskedTask, *, of: str = "") -> ChartType:
    """What masking costs on a task: changes of its metric; random heads, or seeds, as small points.

    Args:
        found: a task with and without heads.
        of: the model, which it does not carry.
    """
    lines = [
        Line(
            f"{one.name} ({len(found.heads[one.name])} heads)",
            one.change,
            f"{number(one.value)}; change {_told(one.change)}",
            points=tuple(
                value - found.full
                for value in found.random.get(one.name) or [seed[one.name] for seed in found.apart]
            ),
        )
        for one in found.sets
    ]
    seeds = f"mean of {len(found.seeds)} seeds" if len(found.seeds) > 1 else "one seed"
    small = "random heads of the same layers" if found.random else "the seeds"
    told = [
        f"no head masked: {number(found.full)}; masked {found.mask} training; {seeds}",
        f"lines: intervals over texts, seeds as they are; small points: {small}",
    ]
    drawn = rows(lines, f"change of {found.metric}{_unit(found.unit)}")
    title = f"{found.task}: {found.metric} without biased heads"
    return finished(drawn, title, [*named(of), *told], width=WIDTH + BESIDE + 160)


def rows(
    lines: Sequence[Line], title: str, *, parity: float = 0.0, dashes: Sequence[float] = ()
) -> ChartType:
    """The rows, around a line that says no difference; bounds as dashes."""
    own = [_row(i, one) for i, one in enumerate(lines)]
    names = {row["at"]: row["name"] for row in own}
    label = f"{json.dumps(names)}[datum.value]"
    y = alt.Y(
        "at:N",
        sort=list(names),
        title=None,
        axis=alt.Axis(labelExpr=label, ticks=False, domain=False),
    )
    x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    base = alt.Chart(data(own)).encode(y=y)
    some = base.transform_filter("datum.value != null")
    colour = alt.Color("colour:N", scale=None)
    small = [
        {"at": row["at"], "value": value}
        for row, one in zip(own, lines, strict=True)
        for value in one.points
    ]
    layers = [
        alt.Chart(data([{"value": parity}])).mark_rule(color=INK).encode(x=x),
        *(
            alt.Chart(data([{"value": one}])).mark_rule(color=INK, strokeDash=[4, 3]).encode(x=x)
            for one in dashes
        ),
        some.mark_rule(strokeWidth=1.8).encode(x=alt.X("low:Q"), x2="high:Q", color=colour),
        some.mark_point(filled=True, size=80, opacity=1).encode(
            x=x, color=colour, tooltip=[alt.Tooltip("told:N", title="difference")]
        ),
        base.mark_text(align="left", fontSize=11, color=INK).encode(
            x=alt.value(WIDTH + 14), text="beside:N"
        ),
    ]
    if small:
        points = alt.Chart(data(small)).mark_point(size=22, color=INK, opacity=0.7)
        layers.append(points.encode(x=x, y=y))
    return alt.layer(*layers).properties(width=WIDTH, height=LINE * len(own))


def _row(place: int, one: Line) -> dict[str, Any]:
    own = one.difference
    return {
        "at": f"{place:03}",
        "name": one.name,
        "value": None if own is None else own.value,
        "low": None if own is None else own.interval.low,
        "high": None if own is None else own.interval.high,
        "told": _told(own),
        "beside": one.told,
        "colour": one.colour,
    }


def _told(own: Estimate | None) -> str:
    if own is None:
        return "none"
    return f"{number(own.value)} {ends(own.interval.low, own.interval.high)}"


def _unit(unit: str) -> str:
    return f", {unit}" if unit else ""
