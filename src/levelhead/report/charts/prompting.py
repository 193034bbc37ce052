"""Effect of knowledge before a prompt: contrasts as a forest plot, and the bars of Zhang 2023."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.charts.paired_differences import DifferenceRow, difference_rows_chart
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    PALE,
    apply_theme,
    format_number,
    inline_data,
    interval_fields,
    model_name,
    panel_title,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.explain.prompting.contrasts import TopKResult, Verdict
    from levelhead.explain.prompting.knowledge import KnowledgeResult

COLOURS: dict[Verdict, str] = {
    "enhanced": OKABE_ITO[1],
    "mitigated": OKABE_ITO[0],
    "overturned": OKABE_ITO[2],
    "unchanged": INK,
    "undecided": PALE,
    "no base preference": PALE,
}
"""Colours of verdicts; the rows also state them in words."""


def prompting_chart(result: KnowledgeResult) -> ChartType:
    """Plot the contrasts as a forest plot above the paper's bars at its three k."""
    lines = [DifferenceRow("base margin", result.base, _base_text(result.base.value), INK)]
    lines += [
        DifferenceRow(
            contrast.kind.replace("_", " "),
            contrast.change,
            f"{contrast.verdict}; {contrast.share_flipped.value:.0%} of occupations flip",
            COLOURS[contrast.verdict],
        )
        for contrast in result.contrasts
    ]
    forest = difference_rows_chart(
        lines, "change of the margin, log-odds towards the dominating group"
    )
    bars = alt.hconcat(*(_bars(result, index) for index in range(len(result.top_k))), spacing=26)
    first, second = result.groups
    return apply_theme(
        alt.vconcat(forest, bars, spacing=36),
        f"Effect of knowledge before a prompt: {model_name(result.provenance)}",
        [
            (
                f"{result.n} prompts of {result.occupations} occupations, {len(result.dropped)} "
                "dropped"
            ),
            *(note for note in result.notes if note.startswith("prompts put as")),
            f"margin: log-odds of {first} over {second} words, between occupations of both groups",
            "verdicts: p corrected over the kinds; unchanged: shown to change by less than a fifth",
            "lines: intervals over occupations, and over backgrounds if there are any",
            "bars, as the paper's: probability of either group's words among the likeliest tokens",
        ],
        width=760,
    )


def _bars(result: KnowledgeResult, index: int) -> ChartType:
    kinds = [("base", result.top_k[index])]
    kinds += [
        (contrast.kind.replace("_", " "), contrast.top_k[index]) for contrast in result.contrasts
    ]
    order = [name for name, _ in kinds]
    bar_rows = [row for name, top in kinds for row in _sides(name, top, result.groups)]
    y = alt.Y(
        "kind:N",
        sort=order,
        title=None,
        axis=alt.Axis(ticks=False, domain=False) if index == 0 else None,
    )
    base = alt.Chart(inline_data(bar_rows)).encode(
        y=y,
        yOffset=alt.YOffset("group:N", sort=list(result.groups)),
        tooltip=[
            alt.Tooltip("kind:N", title="knowledge"),
            alt.Tooltip("group:N", title="words"),
            alt.Tooltip("formatted:N", title="probability"),
        ],
    )
    bars = base.mark_bar().encode(
        x=alt.X("value:Q", title="probability", axis=alt.Axis(tickCount=4)),
        color=alt.Color(
            "group:N",
            title="words",
            sort=list(result.groups),
            scale=alt.Scale(domain=list(result.groups), range=[OKABE_ITO[0], OKABE_ITO[6]]),
        ),
    )
    intervals = base.mark_rule(color=INK, strokeWidth=1.2).encode(x="low:Q", x2="high:Q")
    title = panel_title(f"{result.top_k[index].k} likeliest")
    return alt.layer(bars, intervals).properties(width=150, height=22 * len(kinds), title=title)


def _sides(name: str, top: TopKResult, groups: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "kind": name,
            "group": group,
            **interval_fields(estimate),
        }
        for group, estimate in zip(groups, (top.first, top.second), strict=True)
    ]


def _base_text(value: float) -> str:
    return f"{format_number(value)}: the base of the changes"
