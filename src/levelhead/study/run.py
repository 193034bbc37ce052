"""Run a study: every step is kept under the hash of what it depends on, so it can be resumed.

A step's readings lie in the same store by shard: what is killed loses one shard. Nothing in the
results depends on the clock or on what was interrupted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.files import write_atomic
from levelhead.core.results import Inconclusive
from levelhead.engine.claim import claimed
from levelhead.engine.runners import Cancelled
from levelhead.study.steps import steps
from levelhead.study.table import Row, rows, to_csv
from levelhead.study.work import Work

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from levelhead.core.results import Record
    from levelhead.engine.events import Event
    from levelhead.study.schema import Plan

SPENT = "the time was spent before this step"
GO_ON = "run the same command again: it goes on where it stopped"


def run(
    plan: Plan,
    folder: str | Path,
    *,
    on_step: Callable[[str, int, int], None] = lambda name, done, of: None,
    on_event: Callable[[Event], None] = lambda event: None,
    cancel: threading.Event | None = None,
    keep_going: bool = False,
    until: float | None = None,
) -> dict[str, Record]:
    """Run what is missing of a study; write `table.csv` and `results/`.

    A step that cannot be measured is Inconclusive, with the reason; it has no row in the table.

    Args:
        plan: the study.
        folder: where everything is kept.
        on_step: is told the step that begins, how many are done, and of how many.
        on_event: is told how far a step is.
        cancel: set it to stop.
        keep_going: take any error of ours for a step that cannot be measured: data that are not
            there, an edit that does not say what it was fitted on.
        until: when no step but the first may begin any more, by `time.monotonic`.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with claimed(str(place)):
        work = Work(plan, place, on_event, cancel)
        every = list(steps(work))
        results = place / "results"
        results.mkdir(exist_ok=True)
        for path in results.iterdir():
            if path.stem not in dict(every):
                path.unlink()  # of a step that the study has no more
        for done, (name, make) in enumerate(every):
            on_step(name, done, len(every))
            try:
                if done and until is not None and time.monotonic() > until:
                    raise NotMeasurable(SPENT, mend=GO_ON)
                work.done[name] = make()
            except LevelheadError as error:
                if isinstance(error, Cancelled) or not (
                    keep_going or isinstance(error, NotMeasurable)
                ):
                    raise
                # One number that cannot be had is no reason to lose the others; it stays empty.
                work.done[name] = Inconclusive(what=error.what, mend=error.mend)
            told = work.done[name].to_json().encode() + b"\n"
            write_atomic(str(results / f"{name}.json"), told)
        on_step("done", len(every), len(every))
        table: list[Row] = [row for name, result in work.done.items() for row in rows(name, result)]
        write_atomic(str(place / "table.csv"), to_csv(table).encode())
    return work.done
