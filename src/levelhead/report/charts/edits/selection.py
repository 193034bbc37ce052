"""Selection of a setting on dev: the Pareto front, and the bias reduction on held-out items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.edits.pareto import NAMES, WIDTH, front_captions, pareto_plane
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import (
    INK,
    OKABE_ITO,
    apply_theme,
    format_estimate,
    inline_data,
    panel_title,
    subtitle_lines,
    with_unit,
)

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Estimate
    from levelhead.mitigate.selection.select_on_dev import DevSelection

BY = {"parity": "by distance from parity", "value": "by the value itself"}


def selection_chart(result: DevSelection, *, subject: str = "") -> ChartType:
    """Plot the front with the chosen setting, and its bias reduction on dev and on test.

    Args:
        result: the selection.
        subject: description of measures and model, which the result does not store.
    """
    if not is_drawable(result):
        raise LevelheadError(
            "nothing was chosen and no utility cost was measured: there is nothing to plot",
            hint="give a utility measure; the notes of the selection say why nothing was chosen",
        )
    panels = (
        []
        if result.pareto_front is None
        else [pareto_plane(result.pareto_front, result.chosen, gain="bias reduction on dev")]
    )
    panels += [] if result.on_dev is None else [_gains(result)]
    lines = [
        *subtitle_lines(subject),
        *([] if result.pareto_front is None else front_captions(result.pareto_front)),
        *result.notes,
    ]
    if result.n_considered < result.n_variants:
        lines.append(
            f"{result.n_considered} of {result.n_variants} settings are within the utility cost"
        )
    if result.variants_without_cost:
        lines.append(
            f"{len(result.variants_without_cost)} act after all sites that the utility measure "
            "reads: not on the front"
        )
    return apply_theme(
        alt.vconcat(*panels, spacing=26),
        (
            f"Chosen on dev {BY[result.objective]} among {result.n_variants} settings: "
            f"{result.chosen or 'none'}"
        ),
        lines,
        width=WIDTH + NAMES,
    )


def is_drawable(result: DevSelection) -> bool:
    """Whether there is anything to plot: a chosen setting or utility costs."""
    return result.pareto_front is not None or result.on_dev is not None


def gain_row(name: str, estimate: Estimate) -> dict[str, Any]:
    """The row of chart data of a bias reduction, with its text on a second line."""
    return {
        "which": name,
        "gain": estimate.value,
        "low": estimate.interval.low,
        "high": estimate.interval.high,
        "formatted": f"{name}\n{format_estimate(estimate)}, n {estimate.n}",
    }


def _gains(result: DevSelection) -> ChartType:
    """Plot the bias reduction on dev, on dev corrected for the selection, and on test."""
    which = {
        # The maximum over settings on the same items is optimistic (winner's curse).
        "dev, where it was chosen: optimistic": result.on_dev,
        f"dev, the best of {result.n_considered} on out-of-bag items": result.out_of_bag_gain,
        "test: the number to report": result.on_test,
    }
    estimates = {name: estimate for name, estimate in which.items() if estimate is not None}
    rows = [gain_row(name, estimate) for name, estimate in estimates.items()]
    base = alt.Chart(inline_data(rows)).encode(y=alt.Y("which:N", sort=list(estimates), axis=None))
    unit = next((estimate.unit for estimate in estimates.values() if estimate.unit), "")
    x = alt.X("gain:Q", title=with_unit("bias reduction", unit), axis=alt.Axis(tickCount=6))
    look: dict[str, Any] = {"color": OKABE_ITO[1], "opacity": 1}
    layers = [
        alt.Chart(inline_data([{"gain": 0}])).mark_rule(color=INK).encode(x=x),
        base.mark_rule(strokeWidth=1.6, **look).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(shape="diamond", filled=True, size=130, **look).encode(
            x=x, tooltip=[alt.Tooltip("formatted:N", title="bias reduction")]
        ),
        base.mark_text(align="left", baseline="middle", lineBreak="\n", dy=-6, fontSize=11).encode(
            x=alt.value(WIDTH + 18), text="formatted:N", color=alt.value(INK)
        ),
    ]
    picked = (
        ""
        if result.selection_frequency is None
        else f", the best in {result.selection_frequency:.0%} of resamples"
    )
    return alt.layer(*layers).properties(
        width=WIDTH,
        height=36 * len(rows),
        title=panel_title(f"bias reduction of {result.chosen}{picked}"),
    )
