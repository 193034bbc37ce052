"""`chart(result)` makes the chart of a result by its type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult
from levelhead.explain.attention.example import AttentionExample
from levelhead.explain.prompting.knowledge import KnowledgeResult
from levelhead.locate.compare_maps import MapComparison
from levelhead.locate.describe import MapDescription
from levelhead.locate.head_map import HeadMap
from levelhead.locate.validation.random_heads import RandomHeadControl
from levelhead.locate.validation.repeated_splits import SplitStability
from levelhead.measures.compare import Comparison
from levelhead.mitigate.controls.placebo_report import PlaceboReport
from levelhead.mitigate.evaluation.knowledge_front import KnowledgeFront
from levelhead.mitigate.evaluation.pareto import ParetoFront
from levelhead.mitigate.evaluation.sweep import SweepReport
from levelhead.mitigate.heads.mask_top_heads import MaskingReport
from levelhead.mitigate.probing.concept_removal import RemovalReport
from levelhead.mitigate.selection.select_on_dev import DevSelection
from levelhead.mitigate.selection.selection_report import SelectionReport
from levelhead.replication.dawkins2024.claims import ClaimTests
from levelhead.replication.dawkins2024.downstream import DownstreamReport
from levelhead.replication.dawkins2024.pair_budget import PairBudgetCurve, SubspaceStabilityReport
from levelhead.replication.yang2025.glue_masking import GlueMaskingResult
from levelhead.replication.yang2025.masking_curves import MaskingCurves
from levelhead.report.charts.attention_change import attention_change_chart
from levelhead.report.charts.attention_example import attention_example_chart
from levelhead.report.charts.edits.downstream import downstream_chart
from levelhead.report.charts.edits.knowledge import knowledge_chart
from levelhead.report.charts.edits.pair_budget import pair_budget_chart, stability_chart
from levelhead.report.charts.edits.pareto import pareto_chart
from levelhead.report.charts.edits.placebo import placebo_chart
from levelhead.report.charts.edits.probing import edit_selection_chart, probing_chart
from levelhead.report.charts.edits.selection import selection_chart
from levelhead.report.charts.edits.sweep import sweep_chart
from levelhead.report.charts.forest import comparison_chart, measurement_chart
from levelhead.report.charts.heads.head_controls import control_chart
from levelhead.report.charts.heads.head_map import heat_map
from levelhead.report.charts.heads.map_comparison import map_comparison_chart
from levelhead.report.charts.heads.map_description import description_chart
from levelhead.report.charts.heads.masking import (
    masking_chart,
    masking_curve_chart,
)
from levelhead.report.charts.heads.split_stability import split_stability_chart
from levelhead.report.charts.paired_differences import claims_chart, glue_chart
from levelhead.report.charts.prompting import prompting_chart
from levelhead.report.save import save

if TYPE_CHECKING:
    from collections.abc import Callable

    from altair.typing import ChartType

__all__ = ["CHARTS", "chart", "save"]

CHARTS: dict[type, Callable[..., ChartType]] = {
    Measurement: measurement_chart,
    Comparison: comparison_chart,
    HeadMap: heat_map,
    MapComparison: map_comparison_chart,
    RandomHeadControl: control_chart,
    MapDescription: description_chart,
    SplitStability: split_stability_chart,
    CounterStereotypeResult: attention_change_chart,
    AttentionExample: attention_example_chart,
    KnowledgeResult: prompting_chart,
    MaskingReport: masking_chart,
    MaskingCurves: masking_curve_chart,
    SweepReport: sweep_chart,
    ParetoFront: pareto_chart,
    KnowledgeFront: knowledge_chart,
    DevSelection: selection_chart,
    PlaceboReport: placebo_chart,
    SubspaceStabilityReport: stability_chart,
    PairBudgetCurve: pair_budget_chart,
    ClaimTests: claims_chart,
    DownstreamReport: downstream_chart,
    GlueMaskingResult: glue_chart,
    RemovalReport: probing_chart,
    SelectionReport: edit_selection_chart,
}
"""The chart function of each type of result."""

MAPS = (HeadMap, MapComparison)
"""Types whose negative scores can be clipped."""


def chart(result: object, *, clip_negative: bool = False) -> ChartType:
    """Make the chart of a result; `levelhead.report.save.save` writes it.

    Args:
        result: result of `locate`, `compare_maps` or a similar function.
        clip_negative: whether to show negative scores of heads in white, as in Figure 2 of Yang et
            al. 2025.
    """
    make_chart = CHARTS.get(type(result))
    if make_chart is None:
        known_kinds = ", ".join(sorted(kind.__name__ for kind in CHARTS))
        raise LevelheadError(
            f"there is no chart of a {type(result).__name__}",
            hint=f"results with a chart: {known_kinds}",
        )
    options: dict[str, Any] = {}
    if clip_negative:
        if not isinstance(result, MAPS):
            raise LevelheadError(
                f"a {type(result).__name__} has no scores of heads to clip",
                hint="leave clip_negative out",
            )
        options = {"clip_negative": True}
    return make_chart(result, **options)
