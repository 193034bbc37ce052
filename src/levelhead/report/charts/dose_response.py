"""Dose-response charts: every measure's value by the strength of the bias planted in a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import DASHES, OKABE_ITO, SHAPES, apply_theme, inline_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.calibration import MeasureCalibration

SIDE, ACROSS = 150, 4
LINES = (
    "point: one model; line: the mean of a dose; each measure has its own unit and axis",
    "dose: of two sides, a target leans to the person's group with probability (1 + dose) / 2",
    "†: in this family the measure does not follow the dose, or reports a bias that is not there",
)


def dose_response_chart(calibrations: Sequence[MeasureCalibration]) -> ChartType:
    """Plot one panel per measure, with families by colour and shape.

    Args:
        calibrations: calibrations of measures; those with several doses are plotted.
    """
    dosed = [
        calibration
        for calibration in calibrations
        if calibration.has_dose and calibration.rank is not None
    ]
    if not dosed:
        raise LevelheadError(
            "no measure was given several doses", hint="run `levelhead calibrate` in full"
        )
    names = list(dict.fromkeys(calibration.measure for calibration in dosed))
    families = list(dict.fromkeys(calibration.architecture for calibration in dosed))
    panels = [
        _panel(
            name, [calibration for calibration in dosed if calibration.measure == name], families
        )
        for name in names
    ]
    rows = [panels[i : i + ACROSS] for i in range(0, len(panels), ACROSS)]
    chart = alt.vconcat(*(alt.hconcat(*row, spacing=18) for row in rows), spacing=18)
    return apply_theme(chart, "Dose and response", LINES, width=ACROSS * (SIDE + 50.0))


def _panel(
    name: str, calibrations: Sequence[MeasureCalibration], families: Sequence[str]
) -> ChartType:
    rows = [
        {"family": calibration.architecture, "dose": rho, "seed": seed, "value": value}
        for calibration in calibrations
        for rho, seed, value in calibration.points
    ]
    failed = [
        calibration.architecture for calibration in calibrations if calibration.verdict == "misses"
    ]
    n_families = len(families)

    def scale(values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=list(families), range=list(values[:n_families]))

    base = alt.Chart(
        inline_data(rows), title=f"{name} † {', '.join(failed)}" if failed else name
    ).encode(
        x=alt.X("dose:Q", title="dose", axis=alt.Axis(values=[0, 0.5, 1], grid=False)),
        color=alt.Color("family:N", scale=scale(OKABE_ITO), legend=alt.Legend(title="family")),
    )
    # Some measures vary around 50: an axis from 0 would flatten them.
    value = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    # Shapes and dashes as well, so that no family is recognised by its colour alone.
    points = base.mark_point(filled=True, size=26, opacity=0.75).encode(
        y=value,
        shape=alt.Shape("family:N", scale=scale(SHAPES), legend=alt.Legend(title="family")),
        tooltip=["family:N", "dose:Q", "seed:O", alt.Tooltip("value:Q", format=".3~g")],
    )
    line = base.mark_line(strokeWidth=1.5).encode(
        # Over seeds: of each dose, several models are trained.
        y=alt.Y("mean(value):Q", title=None),
        strokeDash=alt.StrokeDash("family:N", scale=scale(DASHES), legend=None),
    )
    chart: ChartType = (line + points).properties(width=SIDE, height=SIDE)
    return chart
