"""Differences with intervals, one per row: claims about settings, tasks with masked heads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    PALE,
    apply_theme,
    format_estimate,
    format_number,
    inline_data,
    interval_fields,
    subtitle_lines,
    with_unit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.replication.dawkins2024.claims import ClaimTests
    from levelhead.replication.yang2025.glue_masking import GlueMaskingResult

WIDTH, TEXT_WIDTH, ROW_HEIGHT = 340, 200, 26
VERDICT_COLOURS = {"yes": OKABE_ITO[0], "no": OKABE_ITO[1], "undecided": PALE, "untestable": PALE}
"""Colours of verdicts; the rows also state them in words."""


class DifferenceRow(NamedTuple):
    """A row of the chart."""

    name: str
    difference: Estimate | None
    text: str
    colour: str = OKABE_ITO[0]
    points: tuple[float, ...] = ()
    """Values of single models, shown as small points."""


def claims_chart(result: ClaimTests, *, subject: str = "") -> ChartType:
    """Plot tests of the paper's claims: the mean difference that each part of a setting makes.

    Args:
        result: the claims on one measure.
        subject: description of the model, which the result does not store.
    """
    lines = [
        DifferenceRow(
            claim.claim if claim.edit_point == "all" else f"- {claim.edit_point}",
            claim.difference,
            f"{claim.verdict}; better in {claim.improved_pairs} of {claim.n_pairs}",
            VERDICT_COLOURS[claim.verdict],
        )
        for claim in result.claims
    ]
    captions = [
        f"{result.better} is better; mean difference, with it minus without it, of settings that "
        "differ only in this",
        "yes, no: better or worse, corrected for all rows; lines: uncorrected intervals over the "
        "measure's units; the settings are a fixed grid",
    ]
    if result.untestable_reason:
        captions.append(f"{result.untestable_reason}: less of it is not shown to be less bias")
    chart = difference_rows_chart(lines, with_unit(f"difference of {result.measure}", result.unit))
    title = f"Effect of each part of a setting on {result.measure}"
    return apply_theme(
        chart, title, [*subtitle_lines(subject), *captions], width=WIDTH + TEXT_WIDTH + 280
    )


def glue_chart(result: GlueMaskingResult, *, subject: str = "") -> ChartType:
    """Plot the changes of a task's metric by masking; small points are random heads or seeds.

    Args:
        result: a task with and without masked heads.
        subject: description of the model, which the result does not store.
    """
    lines = [
        DifferenceRow(
            f"{head_set.name} ({len(result.heads[head_set.name])} heads)",
            head_set.change,
            f"{format_number(head_set.value)}; change {format_estimate(head_set.change)}",
            points=tuple(
                # Relative to the model without masks, as the changes are.
                value - result.full
                for value in result.random.get(head_set.name)
                or [seed[head_set.name] for seed in result.per_seed]
            ),
        )
        for head_set in result.sets
    ]
    seeds = f"mean of {len(result.seeds)} seeds" if len(result.seeds) > 1 else "one seed"
    small = "random heads of the same layers" if result.random else "the seeds"
    captions = [
        f"no head masked: {format_number(result.full)}; masked {result.mask} training; {seeds}",
        f"lines: intervals over texts with fixed seeds; small points: {small}",
    ]
    chart = difference_rows_chart(lines, with_unit(f"change of {result.metric}", result.unit))
    title = f"{result.task}: {result.metric} without biased heads"
    return apply_theme(
        chart, title, [*subtitle_lines(subject), *captions], width=WIDTH + TEXT_WIDTH + 160
    )


def difference_rows_chart(
    lines: Sequence[DifferenceRow], title: str, *, parity: float = 0.0, dashes: Sequence[float] = ()
) -> ChartType:
    """Plot rows with intervals around a line at parity; dashed lines show bounds."""
    plot_rows = [_row(i, line) for i, line in enumerate(lines)]
    # Rows are numbered, because two may have the same name; the axis prints the names.
    names = {row["at"]: row["name"] for row in plot_rows}
    label = f"{json.dumps(names)}[datum.value]"
    y = alt.Y(
        "at:N",
        sort=list(names),
        title=None,
        axis=alt.Axis(labelExpr=label, ticks=False, domain=False),
    )
    x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    base = alt.Chart(inline_data(plot_rows)).encode(y=y)
    with_value = base.transform_filter("datum.value != null")
    # The rows contain their colours, which no scale may map to others.
    colour = alt.Color("colour:N", scale=None)
    small = [
        {"at": row["at"], "value": value}
        for row, line in zip(plot_rows, lines, strict=True)
        for value in line.points
    ]
    layers = [
        alt.Chart(inline_data([{"value": parity}])).mark_rule(color=INK).encode(x=x),
        *(
            alt.Chart(inline_data([{"value": dash}]))
            .mark_rule(color=INK, strokeDash=[4, 3])
            .encode(x=x)
            for dash in dashes
        ),
        with_value.mark_rule(strokeWidth=1.8).encode(x=alt.X("low:Q"), x2="high:Q", color=colour),
        with_value.mark_point(filled=True, size=80, opacity=1).encode(
            x=x, color=colour, tooltip=[alt.Tooltip("formatted:N", title="difference")]
        ),
        base.mark_text(align="left", fontSize=11, color=INK).encode(
            x=alt.value(WIDTH + 14), text="beside:N"
        ),
    ]
    if small:
        points = alt.Chart(inline_data(small)).mark_point(size=22, color=INK, opacity=0.7)
        layers.append(points.encode(x=x, y=y))
    return alt.layer(*layers).properties(width=WIDTH, height=ROW_HEIGHT * len(plot_rows))


def _row(index: int, line: DifferenceRow) -> dict[str, Any]:
    difference = line.difference
    empty = {"value": None, "low": None, "high": None, "formatted": "none"}
    return {
        "at": f"{index:03}",
        "name": line.name,
        **(empty if difference is None else interval_fields(difference)),
        "beside": line.text,
        "colour": line.colour,
    }
