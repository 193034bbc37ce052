"""Maps of several models side by side."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.calibration import mark_of
from levelhead.locate.compare_maps import MapComparison, compare_maps
from levelhead.study.row import RowCells, estimate_cells
from levelhead.study.session import Step, Work
from levelhead.study.steps.config import Names, Reference, Strict, map_named
from levelhead.study.steps.head_maps import head_effects
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator


class Compared(Strict):
    """Maps of several models side by side."""

    maps: Names

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield from map(map_named, self.maps)


def compare_steps(work: Work) -> Iterator[Step]:
    """A step for every set of maps."""
    for name, row in work.plan.rows(Compared).items():
        after = tuple(f"map.{one}" for one in row.maps)
        yield Step(f"compare.{name}", partial(compared_of, work, name), after)


def compared_of(work: Work, name: str) -> MapComparison:
    """Maps side by side."""
    names = work.plan.rows(Compared)[name].maps
    maps = [(one, work.map(one)) for one in names]

    def make() -> MapComparison:
        return compare_maps(maps, [head_effects(work, one) for one in names])

    told = {"maps": [own.content_hash for _, own in maps], "names": list(names)}
    return work.kept(MapComparison, told, make)


def compared_rows(one: MapComparison) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for child in one.children:
        failed = mark_of(one.base.measured_by) or mark_of(child.map.measured_by)
        if child.boxed_flipped is not None:  # None: of models with other heads
            boxed = {"what": "anti-bias heads turned positive", "value": child.boxed_flipped}
            yield {"name": child.name, **boxed, "n": len(one.boxed), "mark": failed}
        for estimate in (child.fewer, child.darker, child.flipped, child.total):
            if estimate is not None:
                yield estimate_cells(child.name, estimate, mark=failed)


COMPARE_MAPS = StepDefinition(Compared, compare_steps, {MapComparison: compared_rows})
