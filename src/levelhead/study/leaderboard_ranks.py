"""The order of models by the same measures, their ranks, and the table of both.

Models are ordered by the first measure, nearest to parity first. Every rank is a range, because
models with overlapping intervals cannot be distinguished.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from levelhead.core.calibration import failed_calibration_mark
from levelhead.core.escape import escape_cell
from levelhead.core.results import Measurement, Record
from levelhead.core.verdicts import decide_measure_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLUMNS = (
    *("model", "revision", "measure", "value", "low", "high", "parity", "p", "n", "dropped"),
    *("first_rank", "last_rank", "mark", "missing", "verdict", "skill"),
)


class ModelEntry(Record):
    """One model, by every measure."""

    model: str
    revision: str | None = None
    measurements: dict[str, Measurement] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
    """Why there is no number, by measure."""

    @property
    def name(self) -> str:
        """The model's name with its revision: two revisions are two models."""
        return f"{self.model}@{self.revision}" if self.revision else self.model


class Leaderboard(Record):
    """Models in their order, by measures in theirs."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)]
    entries: Annotated[tuple[ModelEntry, ...], Field(min_length=1)]

    def rank_ranges(self, measure: str) -> dict[str, tuple[int, int]]:
        """First and last possible rank of each model by name; nearest to parity is first.

        There are no ranks if values are not comparable or the measure has no parity. A model with
        an inconclusive measure has no rank: a model without the skill would otherwise be first.
        """
        measurements = {
            entry.name: measurement
            for entry in self.entries
            if (measurement := entry.measurements.get(measure))
        }
        if len({measurement.comparability_key for measurement in measurements.values()}) != 1:
            return {}
        distances = {
            name: _distance_range(measurement)
            for name, measurement in measurements.items()
            if measurement.parity is not None and _is_ranked(measurement)
        }
        return {
            name: (
                # After the models that are certainly nearer, before those that are certainly
                # farther.
                1 + sum(other[1] < distance[0] for other in distances.values()),
                len(distances) - sum(other[0] > distance[1] for other in distances.values()),
            )
            for name, distance in distances.items()
        }


def sort_entries(board: Leaderboard) -> Leaderboard:
    """Sort key: the distance of the first measure's value from parity.

    Models with an inconclusive measure come after these, and models without a value last.
    """
    measure = board.measures[0]
    if not board.rank_ranges(measure):
        return board

    def sort_key(entry: ModelEntry) -> tuple[bool, bool, float]:
        measurement = entry.measurements.get(measure)
        if measurement is None:
            return True, True, 0.0
        return (
            False,
            not _is_ranked(measurement),
            abs((measurement.effect or (measurement.value,))[0]),
        )

    return board.model_copy(update={"entries": tuple(sorted(board.entries, key=sort_key))})


def leaderboard_to_csv(board: Leaderboard) -> str:
    """Write a row for every model and measure."""
    return rows_to_csv(
        COLUMNS,
        (
            {"model": entry.model, "revision": entry.revision, "measure": measure}
            | _measurement_cells(entry, measure, ranks.get(entry.name, (None, None)))
            for measure in board.measures
            for ranks in [board.rank_ranges(measure)]
            for entry in board.entries
        ),
    )


def _measurement_cells(
    entry: ModelEntry, measure: str, ranks: tuple[int | None, int | None]
) -> dict[str, object]:
    measurement = entry.measurements.get(measure)
    if measurement is None:
        return {"missing": entry.missing.get(measure), "verdict": "not measured"}
    first_rank, last_rank = ranks
    return {
        "value": measurement.value,
        "low": measurement.interval.low,
        "high": measurement.interval.high,
        "parity": measurement.parity,
        "p": measurement.p and measurement.p.value,
        "n": measurement.n,
        "dropped": len(measurement.dropped),
        "first_rank": first_rank,
        "last_rank": last_rank,
        "mark": failed_calibration_mark(measurement),
        "verdict": decide_measure_verdict(measurement),
        "skill": measurement.skill,
    }


def rows_to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Write rows as CSV; a missing cell, or None, is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    # Names of models may be those of anybody: none is a formula in a spreadsheet.
    writer.writerows(
        {key: escape_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
        for row in rows
    )
    return file.getvalue()


def _distance_range(measurement: Measurement) -> tuple[float, float]:
    """The smallest and largest distance from parity within the interval."""
    _, low, high = measurement.effect or (0.0, measurement.interval.low, measurement.interval.high)
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return nearest, max(abs(low), abs(high))


def _is_ranked(measurement: Measurement) -> bool:
    """Whether the measure is conclusive for the model."""
    lacks_skill = measurement.skill is not None and not measurement.skill.is_shown
    return not lacks_skill and decide_measure_verdict(measurement).status != "inconclusive"
