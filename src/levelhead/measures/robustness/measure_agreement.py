"""Rank correlations between measures, over models or over edits of one model.

Values are ranked without a change of sign: if a larger value of one measure and a smaller value of
another mean more bias, their correlation is negative. Reports print the directions.
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field
from scipy import stats

from levelhead.core.calibration import DAGGER, DAGGER_NOTE, failed_calibration_mark
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Interval, Measurement, PValue, Record
from levelhead.stats.degenerate import is_constant
from levelhead.stats.multiple_testing import holm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

_Key = tuple[str, tuple[str, ...], str]
"""Measure, groups and comparability key: values with the same key are comparable."""
# With 4 models, a two-sided permutation test cannot reach .05: 2 of 24 orders are extreme.
MIN_MODELS = 5
"""Minimum number of models for a correlation."""


class AgreementCell(Record):
    """Rank correlation of two measures."""

    first: str
    second: str
    n: Annotated[int, Field(ge=MIN_MODELS)]
    spearman: float
    interval: Interval
    p: PValue


class MeasureAgreement(Record):
    """Correlations of all comparable pairs of measures, with notes on the others."""

    measures: tuple[str, ...]
    n_rows: int
    cells: tuple[AgreementCell, ...]
    directions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def cell(self, first: str, second: str) -> AgreementCell:
        """Return the correlation of two measures, in any order."""
        for cell in self.cells:
            if {cell.first, cell.second} == {first, second}:
                return cell
        raise LevelheadError(
            f"{first} and {second} are not compared", hint="look at the notes: they say why"
        )


def spearman_interval(rho: float, n: int, *, level: float = 0.95) -> Interval:
    """Bonett and Wright 2000: Fisher's z with variance (1 + rho^2 / 2) / (n - 3).

    A perfect correlation is replaced by that of half an exchange of neighbours, because Fisher's z
    is infinite at 1.

    >>> print(spearman_interval(-0.0405, 76))
    [-0.2636, 0.1868]
    """
    # An exchange of two neighbours lowers Spearman's rho by 12 / (n (n^2 - 1)): half of it.
    limit = 1 - 6 / (n * (n * n - 1))
    z = math.atanh(max(-limit, min(limit, rho)))
    half_width = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = math.tanh(z - half_width), math.tanh(z + half_width)
    return Interval(low=min(low, rho), high=max(high, rho), level=level, method="bonett-wright")


def measure_agreement(
    table: Mapping[str, Mapping[str, float]],
    *,
    level: float = 0.95,
    seed: int = 0,
    permutations: int = 9999,
) -> MeasureAgreement:
    """Compute Spearman's correlation of every pair of columns, over the rows that have both.

    Args:
        table: Row (a model, or an edit of one) -> measure -> value.
        level: Level of the intervals.
        seed: Seed of the permutations for p-values.
        permutations: Number of permutations; p-values are corrected by Holm.
    """
    if not 0 < level < 1:
        raise LevelheadError(f"a level of {level}", hint="give one such as 0.95")
    measures = tuple(dict.fromkeys(name for row in table.values() for name in row))
    if len(measures) < 2:
        raise LevelheadError(
            f"{len(measures)} measures where at least two are compared",
            hint="measure the models by at least two measures",
        )
    cells, notes = [], []
    for first, second in combinations(measures, 2):
        both = [(row[first], row[second]) for row in table.values() if {first, second} <= set(row)]
        values = np.array(both, dtype=np.float64).reshape(-1, 2)
        reason = _skip_reason(values)
        if reason:
            notes.append(f"{first} and {second}: {reason}")
            continue
        # The names are part of the seed: further columns do not change the p-value of a pair.
        rng = np.random.default_rng([seed, *map(ord, first), 0, *map(ord, second)])
        cells.append(_make_cell(first, second, values, level, rng, permutations))
    if not cells:
        raise LevelheadError(
            f"no two measures can be compared: {notes[0]}",
            hint=f"measure at least {MIN_MODELS} models, or edits, by both",
        )
    adjusted = holm([cell.p.value for cell in cells]).tolist()
    adjustments = [
        {"adjusted": p_value, "correction": "holm", "family": len(cells)} for p_value in adjusted
    ]
    corrected = tuple(
        cell.model_copy(update={"p": cell.p.model_copy(update=adjustment)})
        if len(cells) > 1
        else cell
        for cell, adjustment in zip(cells, adjustments, strict=True)
    )
    return MeasureAgreement(
        measures=measures, n_rows=len(table), cells=corrected, notes=tuple(notes)
    )


def agreement_from_results(
    paths: Sequence[str], *, level: float = 0.95, seed: int = 0
) -> MeasureAgreement:
    """Compute agreement from files that `levelhead measure -o` wrote, or from folders of them.

    A row is a model with its edits; a column is a measure with comparable values.
    """
    table: dict[str, dict[str, float]] = defaultdict(dict)
    checkpoints: dict[str, str] = {}
    directions: dict[str, str] = {}
    measurements = list(_read_measurements(paths))
    failed = {
        _key(measurement) for measurement in measurements if failed_calibration_mark(measurement)
    }
    names = {
        key: f"{name} {DAGGER}" if key in failed else name
        for key, name in _name_columns(measurements).items()
    }
    for measurement in measurements:
        provenance = measurement.provenance
        # By hash, not by name: two checkpoints in folders of one name are two models.
        row = provenance.model_hash
        column = names[_key(measurement)]
        # Two values of one cell mean that results of different data or seeds are mixed.
        if table[row].setdefault(column, measurement.value) != measurement.value:
            raise LevelheadError(
                f"{column} of {provenance.model} occurs twice, with different values",
                hint="give each model's results once",
            )
        checkpoints[row] = provenance.model
        directions[column] = measurement.direction
    result = measure_agreement(table, level=level, seed=seed)
    models = len(set(checkpoints.values()))
    notes = [*result.notes]
    if failed:
        notes.append(DAGGER_NOTE)
    if models < len(table):
        notes.insert(
            0,
            f"{len(table)} rows of {models} models: edits of one model are not independent, and "
            "intervals and p say nothing about other models",
        )
    return result.model_copy(
        update={"directions": tuple(sorted(directions.items())), "notes": tuple(notes)}
    )


def agreement_from_csv(
    path: str, columns: Sequence[str] = (), *, level: float = 0.95
) -> MeasureAgreement:
    """Compute agreement between the numeric columns of a CSV file.

    Args:
        path: Path of the file.
        columns: Names of columns; by default all that contain numbers only.
        level: Level of the intervals.
    """
    try:
        # Spreadsheets write a byte order mark, which would become part of the first column's name.
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="give a CSV file") from None
    names = list(rows[0]) if rows else []
    for name in columns:
        if name not in names:
            raise LevelheadError(
                f"{path} has no column {name!r}", hint=f"its columns: {', '.join(names)}"
            )
    selected = columns or [name for name in names if all(_is_number(row[name]) for row in rows)]
    table = {
        str(i): {name: float(row[name]) for name in selected if _is_number(row[name])}
        for i, row in enumerate(rows)
    }
    return measure_agreement(table, level=level)


def _make_cell(
    first: str,
    second: str,
    values: NDArray[np.float64],
    level: float,
    rng: np.random.Generator,
    permutations: int,
) -> AgreementCell:
    x, y = (stats.rankdata(column) for column in values.T)
    method = stats.PermutationMethod(n_resamples=permutations, rng=rng)
    # Pearson of ranks is Spearman, ties included; scipy's spearmanr has no permutation method.
    result = stats.pearsonr(x, y, method=method)
    rho, n = float(result.statistic), len(values)
    # scipy enumerates all permutations if there are no more than requested; capped at 20! because
    # no budget reaches it.
    exact = math.factorial(min(n, 20)) <= permutations
    return AgreementCell(
        first=first,
        second=second,
        n=n,
        spearman=rho,
        interval=spearman_interval(rho, n, level=level),
        p=PValue(
            value=float(result.pvalue),
            method="permutation",
            alternative="two-sided",
            n_resamples=None if exact else permutations,
        ),
    )


def _skip_reason(values: NDArray[np.float64]) -> str:
    if len(values) < MIN_MODELS:
        return f"{len(values)} rows have both, {MIN_MODELS} are needed"
    if not np.isfinite(values).all():
        return "a value is no finite number"
    if any(is_constant(column) for column in values.T):
        return "one of them is the same in every row"
    return ""


def _read_measurements(paths: Sequence[str]) -> Iterable[Measurement]:
    files = [
        file
        for path in paths
        for file in (sorted(Path(path).glob("*.json")) if Path(path).is_dir() else [Path(path)])
    ]
    if not files:
        raise LevelheadError("there is no result to read", hint="give files of measure -o")
    for file in files:
        try:
            rows = json.loads(file.read_bytes())["measurements"]
            measurements = [Measurement.from_json(json.dumps(row)) for row in rows]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise LevelheadError(
                f"{file} was not written by levelhead measure: {str(error)[:80]}",
                hint="give files of levelhead measure -o",
            ) from None
        yield from measurements


def _key(measurement: Measurement) -> _Key:
    return measurement.measure, measurement.groups, measurement.comparability_key


def _name_columns(measurements: Sequence[Measurement]) -> dict[_Key, str]:
    """Name the columns after their measures, with a number if a measure has several."""
    kinds: dict[str, list[_Key]] = defaultdict(list)
    for measurement in measurements:
        if _key(measurement) not in kinds[measurement.measure]:
            kinds[measurement.measure].append(_key(measurement))
    return {
        key: name if len(keys) == 1 else f"{name} {'-'.join(key[1])} #{i}".replace("  ", " ")
        for name, keys in kinds.items()
        for i, key in enumerate(keys, 1)
    }


def _is_number(text: object) -> bool:
    try:
        return math.isfinite(float(str(text)))
    except ValueError:
        return False
