"""Dose and response: what every ruler says of models by how strong a bias was planted in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.report.head_map_labels import data
from levelhead.report.lazy_altair import alt
from levelhead.report.theme import DASHES, OKABE_ITO, SHAPES, finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.calibration import Calibrated

SIDE, ACROSS = 150, 4
LINES = (
    "point: one model; line: the mean of a dose; each ruler has its own unit and axis",
    "dose: of two sides, a target leans to the person's group with probability (1 + dose) / 2",
    "†: in this family the ruler does not follow the dose, or sees a bias where none is",
)


def dose(found: Sequence[Calibrated]) -> ChartType:
    """A panel a ruler, families by colour and shape.

    Args:
        found: how rulers did, of the families that got several doses.
    """
    shown = [one for one in found if one.has_dose and one.rank is not None]
    if not shown:
        raise LevelheadError(
            "no ruler was given several doses", mend="run `levelhead calibrate` whole"
        )
    names = list(dict.fromkeys(one.measure for one in shown))
    families = list(dict.fromkeys(one.architecture for one in shown))
    panels = [
        _panel(name, [one for one in shown if one.measure == name], families) for name in names
    ]
    rows = [panels[i : i + ACROSS] for i in range(0, len(panels), ACROSS)]
    drawn = alt.vconcat(*(alt.hconcat(*row, spacing=18) for row in rows), spacing=18)
    return finished(drawn, "Dose and response", LINES, width=ACROSS * (SIDE + 50.0))


def _panel(name: str, of: Sequence[Calibrated], families: Sequence[str]) -> ChartType:
    rows = [
        {"family": one.architecture, "dose": rho, "seed": seed, "value": value}
        for one in of
        for rho, seed, value in one.points
    ]
    failed = [one.architecture for one in of if one.verdict == "misses"]
    many = len(families)

    def scale(of: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=list(families), range=list(of[:many]))

    base = alt.Chart(data(rows), title=f"{name} † {', '.join(failed)}" if failed else name).encode(
        x=alt.X("dose:Q", title="dose", axis=alt.Axis(values=[0, 0.5, 1], grid=False)),
        color=alt.Color("family:N", scale=scale(OKABE_ITO), legend=alt.Legend(title="family")),
    )
    value = alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
    points = base.mark_point(filled=True, size=26, opacity=0.75).encode(
        y=value,
        shape=alt.Shape("family:N", scale=scale(SHAPES), legend=alt.Legend(title="family")),
        tooltip=["family:N", "dose:Q", "seed:O", alt.Tooltip("value:Q", format=".3~g")],
    )
    line = base.mark_line(strokeWidth=1.5).encode(
        y=alt.Y("mean(value):Q", title=None),
        strokeDash=alt.StrokeDash("family:N", scale=scale(DASHES), legend=None),
    )
    drawn: ChartType = (line + points).properties(width=SIDE, height=SIDE)
    return drawn
