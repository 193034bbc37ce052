"""What a study has written, read back: `results/*.json`, each by the kind of its step."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from pydantic import ValidationError

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Inconclusive, Record
from levelhead.study.steps.kinds import STEP_KINDS

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping

AUDIT = "audit.json"
"""What an audit asked; a study has none."""
RESULTS = "results"
PLAN = "plan.json"
"""The study whose results lie here."""
ENDS = ("table.csv", "index.html", "report.html", "gate.json")
"""What is made of results when all are there."""
WRITTEN = (PLAN, RESULTS, "figures", *ENDS)
"""What a study leaves in its folder, beside its store."""
KINDS: Mapping[str, str] = {
    word: home for kind in STEP_KINDS for word, home in kind.results.items()
}
"""What a step gives, by the first word of its name, in the order in which people read it. A class
is imported when a result of its kind is there: a gate that reads measurements needs no torch."""


def finished(
    folder: str | os.PathLike[str], kinds: Collection[str] = tuple(KINDS)
) -> dict[str, Record]:
    """The results of a study or an audit, by step; none at all is an error.

    Args:
        folder: what `levelhead audit` or `levelhead study` wrote.
        kinds: which of `KINDS` to read.
    """
    place = Path(folder) / RESULTS
    paths = [path for path in place.glob("*.json") if path.stem.partition(".")[0] in kinds]
    if not paths:
        raise LevelheadError(
            f"there are no results in {folder}",
            mend="name the folder that `levelhead audit` or `levelhead study` wrote",
        )
    order = list(KINDS)
    paths.sort(key=lambda path: (order.index(path.stem.partition(".")[0]), path.stem))
    return {path.stem: result_of(path.stem, path.read_bytes(), str(path)) for path in paths}


def result_of(step: str, text: bytes, source: str) -> Record:
    """What a step gave, from its JSON; `source` is named if it cannot be read."""
    own: type[Record] = resolve_name(f"levelhead.{KINDS[step.partition('.')[0]]}")
    for kind in (Inconclusive, own):
        try:
            return kind.from_json(text)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
    raise LevelheadError(
        f"{source} cannot be read: {why}",
        mend="run the study again with this version of levelhead: it goes on from what is stored",
    )
