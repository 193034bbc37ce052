"""What knowledge does to a prompt: contrasts as a forest, and bars as Zhang 2023 draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.charts.paired_differences import Line, rows
from levelhead.report.head_map_labels import data, model_name
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import INK, OKABE_ITO, PALE, ends, finished, number, panel

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.explain.prompting.contrasts import Top, Verdict
    from levelhead.explain.prompting.knowledge import Knowledge

COLOURS: dict[Verdict, str] = {
    "enhanced": OKABE_ITO[1],
    "mitigated": OKABE_ITO[0],
    "overturned": OKABE_ITO[2],
    "unchanged": INK,
    "undecided": PALE,
    "no base preference": PALE,
}
"""Of verdicts; they are written beside as well."""


def known(found: Knowledge) -> ChartType:
    """The forest above, the paper's bars at its three k below."""
    lines = [Line("base margin", found.base, _told(found.base.value), INK)]
    lines += [
        Line(
            one.kind.replace("_", " "),
            one.change,
            f"{one.verdict}; {one.flipped.value:.0%} of occupations flip",
            COLOURS[one.verdict],
        )
        for one in found.contrasts
    ]
    forest = rows(lines, "change of the margin, log-odds towards the dominating group")
    bars = alt.hconcat(*(_bars(found, place) for place in range(len(found.tops))), spacing=26)
    first, second = found.groups
    return finished(
        alt.vconcat(forest, bars, spacing=36),
        f"What knowledge before a prompt does: {model_name(found.provenance)}",
        [
            f"{found.n} prompts of {found.occupations} occupations, {len(found.dropped)} dropped",
            *(note for note in found.notes if note.startswith("prompts put as")),
            f"margin: log-odds of {first} over {second} words, between occupations of two sides",
            "verdicts: p corrected over the kinds; unchanged: shown to be less than a fifth",
            "lines: intervals over occupations, and backgrounds where there are any",
            "bars, as the paper's: probability of either group's words among the likeliest tokens",
        ],
        width=760,
    )


def _bars(found: Knowledge, place: int) -> ChartType:
    kinds = [("base", found.tops[place])]
    kinds += [(one.kind.replace("_", " "), one.tops[place]) for one in found.contrasts]
    order = [name for name, _ in kinds]
    own = [row for name, top in kinds for row in _sides(name, top, found.groups)]
    y = alt.Y(
        "kind:N",
        sort=order,
        title=None,
        axis=alt.Axis(ticks=False, domain=False) if place == 0 else None,
    )
    base = alt.Chart(data(own)).encode(
        y=y,
        yOffset=alt.YOffset("group:N", sort=list(found.groups)),
        tooltip=[
            alt.Tooltip("kind:N", title="knowledge"),
            alt.Tooltip("group:N", title="words"),
            alt.Tooltip("told:N", title="probability"),
        ],
    )
    bars = base.mark_bar().encode(
        x=alt.X("value:Q", title="probability", axis=alt.Axis(tickCount=4)),
        color=alt.Color(
            "group:N",
            title="words",
            sort=list(found.groups),
            scale=alt.Scale(domain=list(found.groups), range=[OKABE_ITO[0], OKABE_ITO[6]]),
        ),
    )
    reach = base.mark_rule(color=INK, strokeWidth=1.2).encode(x="low:Q", x2="high:Q")
    title = panel(f"{found.tops[place].k} likeliest")
    return alt.layer(bars, reach).properties(width=150, height=22 * len(kinds), title=title)


def _sides(name: str, top: Top, groups: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "kind": name,
            "group": group,
            "value": one.value,
            "low": one.interval.low,
            "high": one.interval.high,
            "told": f"{number(one.value)} {ends(one.interval.low, one.interval.high)}",
        }
        for group, one in zip(groups, (top.first, top.second), strict=True)
    ]


def _told(value: float) -> str:
    return f"{number(value)}: what the changes are of"
