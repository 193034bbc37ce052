"""Do rulers agree? Rank correlations between measures, over models or over edits of one.

Values are ranked as they are: where a larger value of one ruler and a smaller of another mean more
bias, agreement is negative. Directions are printed beside.
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

from levelhead.core.calibration import MISSED, MISSES, mark_of
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Interval, Measurement, PValue, Record
from levelhead.stats.degenerate import is_constant
from levelhead.stats.multiple_testing import holm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

_Key = tuple[str, tuple[str, ...], str]
"""A measure as far as its values are comparable."""
FEWEST = 5
"""Models of which fewer say nothing about agreement."""


class Cell(Record):
    """How far two rulers rank alike."""

    first: str
    second: str
    n: Annotated[int, Field(ge=FEWEST)]
    spearman: float
    interval: Interval
    p: PValue


class Agreement(Record):
    """All pairs of rulers that can be compared, and why others cannot."""

    rulers: tuple[str, ...]
    rows: int
    cells: tuple[Cell, ...]
    directions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def cell(self, first: str, second: str) -> Cell:
        """One pair, in whichever order."""
        for cell in self.cells:
            if {cell.first, cell.second} == {first, second}:
                return cell
        raise LevelheadError(
            f"{first} and {second} are not compared", mend="look at the notes: they say why"
        )


def spearman_interval(rho: float, n: int, *, level: float = 0.95) -> Interval:
    """Bonett and Wright 2000: Fisher's z with variance (1 + rho^2 / 2) / (n - 3).

    Of a perfect order the interval is that of half an exchange of neighbours.

    >>> print(spearman_interval(-0.0405, 76))
    [-0.2636, 0.1868]
    """
    most = 1 - 6 / (n * (n * n - 1))
    z = math.atanh(max(-most, min(most, rho)))
    reach = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = math.tanh(z - reach), math.tanh(z + reach)
    return Interval(low=min(low, rho), high=max(high, rho), level=level, method="bonett-wright")


def agreement(
    table: Mapping[str, Mapping[str, float]],
    *,
    level: float = 0.95,
    seed: int = 0,
    permutations: int = 9999,
) -> Agreement:
    """Spearman's correlation of every two columns, over the rows that have both.

    Args:
        table: row (a model, or an edit of one) -> ruler -> value.
        level: of the intervals.
        seed: of the permutations that give p.
        permutations: how many; p-values are corrected by Holm.
    """
    if not 0 < level < 1:
        raise LevelheadError(f"a level of {level}", mend="give one such as 0.95")
    rulers = tuple(dict.fromkeys(name for row in table.values() for name in row))
    if len(rulers) < 2:
        raise LevelheadError(
            f"{len(rulers)} rulers where two are set against each other",
            mend="measure the models by at least two measures",
        )
    cells, notes = [], []
    for first, second in combinations(rulers, 2):
        both = [(row[first], row[second]) for row in table.values() if {first, second} <= set(row)]
        found = np.array(both, dtype=np.float64).reshape(-1, 2)
        why = _why_not(found)
        if why:
            notes.append(f"{first} and {second}: {why}")
            continue
        rng = np.random.default_rng([seed, *map(ord, first), 0, *map(ord, second)])
        cells.append(_cell(first, second, found, level, rng, permutations))
    if not cells:
        raise LevelheadError(
            f"no two rulers can be compared: {notes[0]}",
            mend=f"measure at least {FEWEST} models, or edits, by both",
        )
    adjusted = holm([cell.p.value for cell in cells]).tolist()
    told = [{"adjusted": own, "correction": "holm", "family": len(cells)} for own in adjusted]
    corrected = tuple(
        cell.model_copy(update={"p": cell.p.model_copy(update=more)}) if len(cells) > 1 else cell
        for cell, more in zip(cells, told, strict=True)
    )
    return Agreement(rulers=rulers, rows=len(table), cells=corrected, notes=tuple(notes))


def measured(paths: Sequence[str], *, level: float = 0.95, seed: int = 0) -> Agreement:
    """Agreement over what `levelhead measure -o` wrote, in files or in folders of them.

    A row is a model with its edits; a column is a measure as far as its values are comparable.
    """
    table: dict[str, dict[str, float]] = defaultdict(dict)
    checkpoints: dict[str, str] = {}
    directions: dict[str, str] = {}
    found = list(_measurements(paths))
    failed = {_key(one) for one in found if mark_of(one)}
    names = {
        key: f"{name} {MISSES}" if key in failed else name for key, name in _columns(found).items()
    }
    for one in found:
        told = one.provenance
        row = told.model_hash
        column = names[_key(one)]
        if table[row].setdefault(column, one.value) != one.value:
            raise LevelheadError(
                f"{column} of {told.model} stands twice, with different values",
                mend="give each model's results once",
            )
        checkpoints[row] = told.model
        directions[column] = one.direction
    result = agreement(table, level=level, seed=seed)
    models = len(set(checkpoints.values()))
    notes = [*result.notes]
    if failed:
        notes.append(MISSED)
    if models < len(table):
        notes.insert(
            0,
            f"{len(table)} rows of {models} models: edits of one model are not independent, and "
            "intervals and p say nothing about other models",
        )
    return result.model_copy(
        update={"directions": tuple(sorted(directions.items())), "notes": tuple(notes)}
    )


def columns_of(path: str, wanted: Sequence[str] = (), *, level: float = 0.95) -> Agreement:
    """Agreement between the columns of numbers in a CSV file.

    Args:
        path: the file.
        wanted: which columns; by default all that hold numbers only.
        level: of the intervals.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="give a CSV file") from None
    names = list(rows[0]) if rows else []
    for name in wanted:
        if name not in names:
            raise LevelheadError(
                f"{path} has no column {name!r}", mend=f"its columns: {', '.join(names)}"
            )
    chosen = wanted or [name for name in names if all(_is_number(row[name]) for row in rows)]
    table = {
        str(i): {name: float(row[name]) for name in chosen if _is_number(row[name])}
        for i, row in enumerate(rows)
    }
    return agreement(table, level=level)


def _cell(
    first: str,
    second: str,
    values: NDArray[np.float64],
    level: float,
    rng: np.random.Generator,
    permutations: int,
) -> Cell:
    x, y = (stats.rankdata(column) for column in values.T)
    method = stats.PermutationMethod(n_resamples=permutations, rng=rng)
    found = stats.pearsonr(x, y, method=method)
    rho, n = float(found.statistic), len(values)
    exact = math.factorial(min(n, 20)) <= permutations
    return Cell(
        first=first,
        second=second,
        n=n,
        spearman=rho,
        interval=spearman_interval(rho, n, level=level),
        p=PValue(
            value=float(found.pvalue),
            method="permutation",
            alternative="two-sided",
            draws=None if exact else permutations,
        ),
    )


def _why_not(values: NDArray[np.float64]) -> str:
    if len(values) < FEWEST:
        return f"{len(values)} rows have both, {FEWEST} are needed"
    if not np.isfinite(values).all():
        return "a value is no finite number"
    if any(is_constant(column) for column in values.T):
        return "one of them is the same in every row"
    return ""


def _measurements(paths: Sequence[str]) -> Iterable[Measurement]:
    files = [
        file
        for path in paths
        for file in (sorted(Path(path).glob("*.json")) if Path(path).is_dir() else [Path(path)])
    ]
    if not files:
        raise LevelheadError("there is no result to read", mend="give files of measure -o")
    for file in files:
        try:
            rows = json.loads(file.read_bytes())["measurements"]
            found = [Measurement.from_json(json.dumps(row)) for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LevelheadError(
                f"{file} was not written by levelhead measure: {str(error)[:80]}",
                mend="give files of levelhead measure -o",
            ) from None
        yield from found


def _key(one: Measurement) -> _Key:
    return one.measure, one.groups, one.comparable


def _columns(found: Sequence[Measurement]) -> dict[_Key, str]:
    """A name for every kind of comparable values: the measure's, numbered if it has several."""
    kinds: dict[str, list[_Key]] = defaultdict(list)
    for one in found:
        if _key(one) not in kinds[one.measure]:
            kinds[one.measure].append(_key(one))
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
