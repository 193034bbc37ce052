"""Maps of several models side by side."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.calibration import failed_calibration_mark
from levelhead.locate.compare_maps import MapComparison, compare_maps
from levelhead.study.session import StudySession, StudyStep
from levelhead.study.steps.config import Names, Reference, StrictConfig, map_reference
from levelhead.study.steps.head_maps import head_effects
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells

if TYPE_CHECKING:
    from collections.abc import Iterator


class CompareMapsStep(StrictConfig):
    """Maps of several models side by side."""

    maps: Names

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield from map(map_reference, self.maps)


def compare_maps_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield one step per set of maps."""
    for name, row in session.config.rows(CompareMapsStep).items():
        after = tuple(f"map.{map_name}" for map_name in row.maps)
        yield StudyStep(f"compare.{name}", partial(run_compare_maps_step, session, name), after)


def run_compare_maps_step(session: StudySession, name: str) -> MapComparison:
    """Compare the maps."""
    names = session.config.rows(CompareMapsStep)[name].maps
    maps = [(map_name, session.head_map(map_name)) for map_name in names]

    def make() -> MapComparison:
        return compare_maps(maps, [head_effects(session, map_name) for map_name in names])

    inputs = {"maps": [head_map.content_hash for _, head_map in maps], "names": list(names)}
    return session.load_or_compute(MapComparison, inputs, make)


def map_comparison_rows(result: MapComparison) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for variant in result.compared_maps:
        failed = failed_calibration_mark(result.base.measured_by) or failed_calibration_mark(
            variant.head_map.measured_by
        )
        if variant.anti_bias_now_positive is not None:  # None: of models with other heads
            yield {
                "name": variant.name,
                "what": "anti-bias heads turned positive",
                "value": variant.anti_bias_now_positive,
                "n": len(result.anti_bias_in_base),
                "mark": failed,
            }
        for estimate in (
            variant.fewer_positive,
            variant.larger_positive,
            variant.negative_to_positive,
            variant.total,
        ):
            if estimate is not None:
                yield estimate_cells(variant.name, estimate, mark=failed)


COMPARE_MAPS = StepDefinition(
    CompareMapsStep, compare_maps_steps, {MapComparison: map_comparison_rows}
)
