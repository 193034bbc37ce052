"""A chart of any result: `chart(result)`, by its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.explain.attention.counterstereotype import CounterStereotype
from levelhead.explain.attention.example import Example
from levelhead.explain.prompting.knowledge import Knowledge
from levelhead.locate.compare_maps import MapComparison
from levelhead.locate.describe import Description
from levelhead.locate.head_map import HeadMap
from levelhead.locate.validation.random_heads import Control
from levelhead.locate.validation.repeated_splits import Repeated
from levelhead.mitigate.controls.placebo_report import Placeboed
from levelhead.mitigate.evaluation.pareto import Front
from levelhead.mitigate.evaluation.sweep import Swept
from levelhead.mitigate.heads.mask_top_heads import Lines, Targeted
from levelhead.mitigate.probing.concept_removal import Removed
from levelhead.mitigate.selection.select_on_dev import Choice
from levelhead.mitigate.selection.selection_report import Tuned
from levelhead.replication.dawkins2024.claims import Findings
from levelhead.replication.dawkins2024.downstream import Downstream
from levelhead.report.charts.attention_change import counterstereotyped
from levelhead.report.charts.attention_example import exampled
from levelhead.report.charts.edits.downstream import scattered
from levelhead.report.charts.edits.pair_budget import handful, stable
from levelhead.report.charts.edits.pareto import fronted
from levelhead.report.charts.edits.placebo import placeboed
from levelhead.report.charts.edits.probing import left_behind, tuned_to
from levelhead.report.charts.edits.selection import chosen
from levelhead.report.charts.edits.sweep import swept
from levelhead.report.charts.heads.head_controls import controlled
from levelhead.report.charts.heads.head_distribution import distribution, distributions
from levelhead.report.charts.heads.head_map import heat_map
from levelhead.report.charts.heads.head_ranking import ranked
from levelhead.report.charts.heads.map_comparison import compared
from levelhead.report.charts.heads.map_description import described
from levelhead.report.charts.heads.masking import gain_and_price, lined, lines, masked
from levelhead.report.charts.heads.split_stability import repeated
from levelhead.report.charts.paired_differences import claimed, tasked
from levelhead.report.charts.prompting import known
from levelhead.report.save import save
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
