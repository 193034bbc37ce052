"""Read the results of a study: `results/*.json`, each by the kind of its step."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from pydantic import ValidationError

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Record, StepFailure
from levelhead.study.steps.kinds import STEP_KINDS

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping

AUDIT_FILE = "audit.json"
"""The plan of an audit; a study has none."""
RESULTS_DIR = "results"
STUDY_CONFIG_FILE = "plan.json"
"""The study that the results belong to."""
FINAL_FILES = ("table.csv", "index.html", "report.html", "gate.json")
"""Files that are written when all results are available."""
OWNED_FILES = (STUDY_CONFIG_FILE, RESULTS_DIR, "figures", *FINAL_FILES)
"""Files that a study writes into its folder, apart from its store."""
RESULT_CLASSES: Mapping[str, str] = {
    word: home for kind in STEP_KINDS for word, home in kind.results.items()
}
"""The result class of a step by the first part of its name, in the order of the report. A class is
imported with the first result of its kind: a gate that reads measurements needs no torch."""


def load_results(
    folder: str | os.PathLike[str], kinds: Collection[str] = tuple(RESULT_CLASSES)
) -> dict[str, Record]:
    """Read the results of a study or an audit by step; raises an error if there are none.

    Args:
        folder: folder that `levelhead audit` or `levelhead study` wrote.
        kinds: kinds of `RESULT_CLASSES` to read.
    """
    results_dir = Path(folder) / RESULTS_DIR
    paths = [path for path in results_dir.glob("*.json") if path.stem.partition(".")[0] in kinds]
    if not paths:
        raise LevelheadError(
            f"there are no results in {folder}",
            hint="name the folder that `levelhead audit` or `levelhead study` wrote",
        )
    order = list(RESULT_CLASSES)
    paths.sort(key=lambda path: (order.index(path.stem.partition(".")[0]), path.stem))
    return {path.stem: parse_result(path.stem, path.read_bytes(), str(path)) for path in paths}


def parse_result(step: str, text: bytes, source: str) -> Record:
    """Parse the JSON of a step's result; an error names `source`."""
    result_class: type[Record] = resolve_name(f"levelhead.{RESULT_CLASSES[step.partition('.')[0]]}")
    # Records forbid unknown fields, so neither kind can be read as the other.
    for kind in (StepFailure, result_class):
        try:
            return kind.from_json(text)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
    raise LevelheadError(
        f"{source} cannot be read: {reason}",
        hint="run the study again with this version of levelhead: it resumes from stored responses",
    )
