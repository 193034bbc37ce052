"""Bias reduction of an edit among placebo edits that remove as much variance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.report.charts.edits.selection import gain_row
from levelhead.report.charts.histogram import BAR_COLOUR, bin_edges, histogram
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    PALE,
    apply_theme,
    format_number,
    inline_data,
    panel_title,
    subtitle_lines,
    with_unit,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.controls.placebo_report import PlaceboReport

WIDTH = 460
TEXT_WIDTH = 250
"""Width of the column with each row's text."""
ROW_HEIGHT = 30
NEARLY_SAME_COSINE = 0.9
"""|cosine| with the edit above which a placebo is too similar to the edit to be a control."""


def placebo_chart(result: PlaceboReport, *, subject: str = "") -> ChartType:
    """Plot the bias reductions of placebos and of the edit, and the intervals of the latter.

    The two panels have separate scales: the placebos may spread far less than the width of the
    edit's interval.

    Args:
        result: an edit and its placebos.
        subject: description of the model, which the result does not store.
    """
    test = result.placebo_test
    return apply_theme(
        alt.vconcat(_counts(result), _intervals(result), spacing=26),
        f"{result.variant}: reduction of {test.measure} and {len(test.placebo_gains)} placebos",
        [*subtitle_lines(subject), *_captions(result)],
        width=WIDTH + TEXT_WIDTH,
    )


def _captions(result: PlaceboReport) -> list[str]:
    test, match = result.placebo_test, result.variance_match
    captions = [result.verdict]
    if result.placebo_test_by_value is not None:
        captions.append(
            f"by the value itself, without confidence: {result.placebo_test_by_value.verdict}"
        )
    if (
        result.confidence_control is not None
        and result.confidence_control.verdict not in result.verdict
    ):
        captions.append(result.confidence_control.verdict)
    captions.append(
        f"an ordinary paired test calls {test.significant_share.value:.0%} of the placebos "
        "an effect, "
        f"{test.significant_gain_share.value:.0%} a bias reduction"
    )
    if test.effective_placebos is not None:
        captions.append(
            f"{len(test.placebo_gains)} placebos amount to {test.effective_placebos:.3g} "
            "independent ones, by what "
            "they change item by item"
        )
    captions.append(
        f"placebos vary as much as {match.effective_placebos:.3g} orthogonal ones; "
        "largest |cosine| with "
        f"the edit {match.max_cosine:.2f}"
    )
    if match.max_cosine >= NEARLY_SAME_COSINE:
        captions.append(
            "SOME PLACEBOS ARE NEARLY IDENTICAL TO THE EDIT: the comparison has little meaning"
        )
    if test.dropped:
        captions.append(f"{len(test.dropped)} items were left out")
    return [*captions, *result.notes]


def _counts(result: PlaceboReport) -> ChartType:
    """Plot the histogram of the placebos' bias reductions."""
    test = result.placebo_test
    # With the edit, so that its line lies within the bins.
    over = bin_edges([*test.placebo_gains, test.gain.value])
    spare = (over[1] - over[0]) / 2  # else a mark at the edge is cut in half
    x = alt.X(
        "low:Q",
        title=with_unit("bias reduction", test.gain.unit),
        scale=alt.Scale(domain=[float(over[0] - spare), float(over[-1] + spare)], nice=False),
        axis=alt.Axis(tickCount=6),
    )
    bars = histogram(
        test.placebo_gains,
        over,
        x,
        field="placebos",
        value="bias reduction",
        colour=BAR_COLOUR,
    )
    marks = {
        # The edit's line is wider and below: both lines are visible where they coincide.
        "the edit": (test.gain.value, OKABE_ITO[1], [1, 0], 5),
        "placebos, 95%": (test.quantile, INK, [7, 3], 1.5),
    }
    names = list(marks)
    legend = alt.Legend(title=None, orient="top", symbolSize=300, columns=2)
    rows = [{"what": name, "low": value} for name, (value, *_) in marks.items()]

    def mark_encoding(index: int) -> dict[str, Any]:
        values = [mark[index] for mark in marks.values()]
        return {"legend": legend, "scale": alt.Scale(type="ordinal", domain=names, range=values)}

    rules = (
        alt.Chart(inline_data(rows))
        .mark_rule(opacity=1)
        .encode(
            x=x,
            color=alt.Color("what:N", sort=names, **mark_encoding(1)),
            strokeDash=alt.StrokeDash("what:N", sort=names, **mark_encoding(2)),
            strokeWidth=alt.StrokeWidth("what:N", sort=names, **mark_encoding(3)),
        )
    )
    return alt.layer(bars, rules).properties(width=WIDTH, height=200)


def _intervals(result: PlaceboReport) -> ChartType:
    """Plot placebos as strokes and bias reductions with intervals on one scale that includes 0."""
    test, rows = result.placebo_test, _rows(result)
    x = alt.X(
        "gain:Q", title=with_unit("bias reduction", test.gain.unit), axis=alt.Axis(tickCount=6)
    )
    y = alt.Y("which:N", sort=["placebos", *(row["which"] for row in rows)], axis=None)
    text: dict[str, Any] = {
        "align": "left",
        "baseline": "middle",
        "lineBreak": "\n",
        "fontSize": 11,
    }
    strokes = [{"which": "placebos", "gain": value} for value in test.placebo_gains]
    range_text = (
        f"placebos\nfrom {format_number(min(test.placebo_gains))} to "
        f"{format_number(max(test.placebo_gains))}"
    )
    names = [{"which": "placebos", "formatted": range_text}, *rows]
    base = alt.Chart(inline_data(rows)).encode(y=y)
    layers = [
        alt.Chart(inline_data([{"gain": 0}])).mark_rule(color=INK).encode(x=x),
        alt.Chart(inline_data([{"gain": test.quantile}]))
        .mark_rule(color=PALE, strokeDash=[7, 3])
        .encode(x=x),
        alt.Chart(inline_data(strokes))
        .mark_tick(thickness=1, size=16, opacity=0.4, color=INK)
        .encode(x=x, y=y),
        base.mark_rule(color=OKABE_ITO[1], strokeWidth=1.8).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(filled=True, size=80, opacity=1, color=OKABE_ITO[1]).encode(
            x=x, tooltip=[alt.Tooltip("formatted:N", title="bias reduction")]
        ),
        alt.Chart(inline_data(names))
        .mark_text(**text, dy=-6, color=INK)
        .encode(x=alt.value(WIDTH + 14), y=y, text="formatted:N"),
    ]
    return alt.layer(*layers).properties(
        width=WIDTH,
        height=ROW_HEIGHT * (len(rows) + 1),
        title=panel_title("the same on the scale of the intervals", "dashes: placebos, 95%"),
    )


def _rows(result: PlaceboReport) -> list[dict[str, Any]]:
    gains: dict[str, Estimate | None] = {"the edit": result.placebo_test.gain}
    if result.confidence_control is not None:
        gains["the base, temperature-scaled"] = result.confidence_control.gain_from_temperature
        gains["the edit beyond lost confidence"] = result.confidence_control.gain
    rows: list[dict[str, Any]] = []
    for name, estimate in gains.items():
        if estimate is None:
            rows.append({"which": name, "formatted": f"{name}\nno change"})
        else:
            rows.append(gain_row(name, estimate))
    return rows
