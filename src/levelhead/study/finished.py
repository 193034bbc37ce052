"""What a study has written, read back: `results/*.json`, each by the kind of its step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement, Record
from levelhead.explain.counterstereotype import CounterStereotype
from levelhead.explain.example import Example
from levelhead.explain.knowledge import Knowledge
from levelhead.locate.compare import MapComparison
from levelhead.locate.controls import Control
from levelhead.locate.describe import Description
from levelhead.locate.greedy import Greedy
from levelhead.locate.headmap import HeadMap
from levelhead.locate.repeated import Repeated
from levelhead.measure.compare import Comparison
from levelhead.mitigate.amplify import Amplified
from levelhead.mitigate.children import Child
from levelhead.mitigate.choose import Choice
from levelhead.mitigate.claims import Findings
from levelhead.mitigate.downstream import Downstream
from levelhead.mitigate.placeboed import Placeboed
from levelhead.mitigate.removed import Removed
from levelhead.mitigate.swept import Swept
from levelhead.mitigate.targeted import Lines, Targeted
from levelhead.study.projecting import Handful, Stable
from levelhead.study.table import Inconclusive
from levelhead.study.tuning import MaskedTask, Trained

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

RESULTS = "results"
KINDS: Mapping[str, type[Record]] = {
    "child": Child,
    "tuned": Trained,
    "cell": Measurement,
    "against": Comparison,
    "removed": Removed,
    "map": HeadMap,
    "describe": Description,
    "control": Control,
    "splits": Repeated,
    "greedy": Greedy,
    "masking": Targeted,
    "lines": Lines,
    "amplify": Amplified,
    "explain": CounterStereotype,
    "example": Example,
    "knowledge": Knowledge,
    "compare": MapComparison,
    "stability": Stable,
    "sweep": Swept,
    "findings": Findings,
    "choice": Choice,
    "pairs": Handful,
    "placebo": Placeboed,
    "outside": Swept,
    "downstream": Downstream,
    "glue": MaskedTask,
}
"""What a step gives, by the first word of its name, in the order in which people read it."""


def finished(folder: str | os.PathLike[str]) -> dict[str, Record]:
    """The results of a study or an audit, by step. None at all is an error."""
    place = Path(folder) / RESULTS
    paths = [path for path in place.glob("*.json") if path.stem.partition(".")[0] in KINDS]
    if not paths:
        raise LevelheadError(
            f"there are no results in {folder}",
            mend="name the folder that `levelhead audit` or `levelhead study` wrote",
        )
    order = list(KINDS)
    paths.sort(key=lambda path: (order.index(path.stem.partition(".")[0]), path.stem))
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> Record:
    text = path.read_bytes()
    for kind in (Inconclusive, KINDS[path.stem.partition(".")[0]]):
        try:
            return kind.from_json(text)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
    raise LevelheadError(
        f"{path} cannot be read: {why}",
        mend="run the study again with this version of levelhead: it goes on from what is stored",
    )
