"""A chart of any result: `chart(result)`, by its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.explain.counterstereotype import CounterStereotype
from levelhead.explain.example import Example
from levelhead.explain.knowledge import Knowledge
from levelhead.locate.compare import MapComparison
from levelhead.locate.controls import Control
from levelhead.locate.describe import Description
from levelhead.locate.headmap import HeadMap
from levelhead.locate.repeated import Repeated
from levelhead.mitigate.choose import Choice
from levelhead.mitigate.claims import Findings
from levelhead.mitigate.downstream import Downstream
from levelhead.mitigate.front import Front
from levelhead.mitigate.placeboed import Placeboed
from levelhead.mitigate.removed import Removed
from levelhead.mitigate.swept import Swept
from levelhead.mitigate.targeted import Lines, Targeted
from levelhead.mitigate.tuned import Tuned
from levelhead.report.choice import chosen
from levelhead.report.compared import compared
from levelhead.report.controls import controlled
from levelhead.report.counterstereotype import counterstereotyped
from levelhead.report.described import described
from levelhead.report.differences import claimed, tasked
from levelhead.report.downstream import scattered
from levelhead.report.example import exampled
from levelhead.report.front import fronted
from levelhead.report.handful import handful, stable
from levelhead.report.heads import heat_map
from levelhead.report.knowledge import known
from levelhead.report.placebos import placeboed
from levelhead.report.ranked import ranked
from levelhead.report.removed import left_behind, tuned_to
from levelhead.report.repeated import repeated
from levelhead.report.save import save
from levelhead.report.spread import distribution, distributions
from levelhead.report.swept import swept
from levelhead.report.targeted import gain_and_price, lined, lines, masked
from levelhead.study.steps.glue import MaskedTask
from levelhead.study.steps.projection_sweep import Handful, Stable

if TYPE_CHECKING:
    from collections.abc import Callable

    from altair.typing import ChartType

__all__ = [
    "CHARTS",
    "chart",
    "chosen",
    "claimed",
    "compared",
    "controlled",
    "counterstereotyped",
    "described",
    "distribution",
    "distributions",
    "exampled",
    "fronted",
    "gain_and_price",
    "handful",
    "heat_map",
    "known",
    "left_behind",
    "lined",
    "lines",
    "masked",
    "placeboed",
    "ranked",
    "repeated",
    "save",
    "scattered",
    "stable",
    "swept",
    "tasked",
    "tuned_to",
]

CHARTS: dict[type, Callable[..., ChartType]] = {
    HeadMap: heat_map,
    MapComparison: compared,
    Control: controlled,
    Description: described,
    Repeated: repeated,
    CounterStereotype: counterstereotyped,
    Example: exampled,
    Knowledge: known,
    Targeted: masked,
    Lines: lined,
    Swept: swept,
    Front: fronted,
    Choice: chosen,
    Placeboed: placeboed,
    Stable: stable,
    Handful: handful,
    Findings: claimed,
    Downstream: scattered,
    MaskedTask: tasked,
    Removed: left_behind,
    Tuned: tuned_to,
}
"""One row a kind of result."""

MAPS = (HeadMap, MapComparison)
"""Those whose negative scores can be clipped."""


def chart(result: object, *, clip_negative: bool = False) -> ChartType:
    """The chart of a result; `levelhead.report.save.save` writes it.

    Args:
        result: what `locate`, `compare_maps` and their kin return.
        clip_negative: draw negative scores of heads white, as Yang et al. 2025 print Figure 2.
    """
    draw = CHARTS.get(type(result))
    if draw is None:
        known = ", ".join(sorted(kind.__name__ for kind in CHARTS))
        raise LevelheadError(
            f"there is no chart of a {type(result).__name__}", mend=f"charts are drawn of: {known}"
        )
    told: dict[str, Any] = {}
    if clip_negative:
        if not isinstance(result, MAPS):
            raise LevelheadError(
                f"a {type(result).__name__} has no scores of heads to clip",
                mend="leave clip_negative out",
            )
        told = {"clip_negative": True}
    return draw(result, **told)
