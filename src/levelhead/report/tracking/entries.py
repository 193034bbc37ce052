"""What a tracker gets of results: parameters, every number with its interval, and files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.frozen import FrozenDict
from levelhead.core.notebook import NotebookResult
from levelhead.core.results import Provenance, Record, StepFailure
from levelhead.study.results_dir import FINAL_FILES, load_results
from levelhead.study.table import result_to_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

Results = Record | Mapping[str, Record] | str | Path
"""A result, results by name, or the folder of an audit or a study."""
NUMBERS = ("low", "high", "level", "parity", "p", "adjusted", "detectable", "n", "dropped")
"""What is logged next to a value, if the value has it."""
MAX_PARAMETER = 500
"""Characters of a parameter, which all trackers accept. Full values are in the files."""


class Entries(NamedTuple):
    """Everything that is logged of results."""

    parameters: dict[str, str]
    numbers: dict[str, float]
    documents: dict[str, str]
    """Canonical JSON of every result, by file name."""
    files: tuple[Path, ...]
    sha256: str
    """Hash of the results, by which a run is found again."""


def make_entries(results: Results, files: tuple[str | os.PathLike[str], ...] = ()) -> Entries:
    """Convert results to parameters, numbers and files.

    A result that was not measured has no number; its reason is a parameter.

    Args:
        results: A result, results by name, or the folder of an audit or a study.
        files: More files or folders, such as that of an edit.
    """
    paths = tuple(map(Path, files))
    if isinstance(results, str | Path):
        folder = Path(results)
        results = load_results(folder)
        paths += tuple(folder / name for name in FINAL_FILES if (folder / name).is_file())
    if missing := [path for path in paths if not path.exists()]:
        raise LevelheadError(f"there is no file {missing[0]}", hint="correct its path")
    by_step = {"": results} if isinstance(results, Record) else dict(results)
    if not by_step:
        raise LevelheadError("there is no result to log", hint="give a result")
    numbers: dict[str, float] = {}
    for step, result in by_step.items():
        for key, value in _list_numbers(step, result):
            # A second number of one name would replace the first without a word.
            unique_key, count = key, 2
            while unique_key in numbers:
                unique_key, count = f"{key} {count}", count + 1
            numbers[unique_key] = value
    documents = {f"{step or 'result'}.json": result.to_json() for step, result in by_step.items()}
    return Entries(
        _list_parameters(by_step), numbers, documents, paths, content_hash(list(documents.values()))
    )


def _list_numbers(step: str, result: Record) -> Iterator[tuple[str, float]]:
    """Yield every number of a result by its name, each with interval, test and count behind it."""
    for row in _rows(step, result):
        parts = (row.get("step"), row.get("name"), row.get("what"))
        texts = dict.fromkeys(str(part) for part in parts if part)
        # The characters that the names of all trackers may hold.
        name = "/".join(re.sub(r"[^\w\-. ]", "_", text) for text in texts)
        value = row.get("value")
        if isinstance(value, int | float):
            yield name, float(value)
            for part in NUMBERS:
                number = row.get(part)
                if isinstance(number, int | float):
                    yield f"{name}.{part}", float(number)


def _rows(step: str, result: Record) -> list[dict[str, object]]:
    """The rows of the table of a study, or of the data frame of another result."""
    if isinstance(result, StepFailure):
        return []
    if isinstance(result, NotebookResult):
        return [{"step": step, **row} for row in result.to_rows()]
    try:
        return [row.model_dump() for row in result_to_rows(step, result)]
    except KeyError:
        raise LevelheadError(
            f"a {type(result).__name__} has no table of numbers to log",
            hint="log a measurement, a comparison, a head map or a folder of results",
        ) from None


def _list_parameters(results: Mapping[str, Record]) -> dict[str, str]:
    """List what the numbers depend on; with the step's name where steps differ."""
    by_step: dict[str, dict[str, str]] = {}
    for step, result in results.items():
        if isinstance(result, StepFailure):
            by_step[step] = {"not_measured": f"{result.problem}; {result.hint}"}
            continue
        provenance = _find_provenance(result)
        by_step[step] = {} if provenance is None else dict(_flatten(provenance.model_dump()))
    all_values: dict[str, set[str]] = {}
    for parameters in by_step.values():
        for name, value in parameters.items():
            all_values.setdefault(name, set()).add(value)
    listed: dict[str, str] = {}
    for step, parameters in by_step.items():
        for name, value in parameters.items():
            is_common = len(all_values[name]) == 1 and name != "not_measured"
            key = name if is_common or not step else f"{step}.{name}"
            listed[re.sub(r"[^\w\-. /]", "_", key)] = value[:MAX_PARAMETER]
    return listed


def _find_provenance(result: object) -> Provenance | None:
    """The provenance of a result, or of the second measurement of a comparison."""
    for holder in (result, getattr(result, "second", None)):
        provenance = getattr(holder, "provenance", None)
        if isinstance(provenance, Provenance):
            return provenance
    return None


def _flatten(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict | FrozenDict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif value not in (None, ()):
            yield f"{prefix}{name}", str(value)
