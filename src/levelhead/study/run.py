"""Run a study: every step is kept under the hash of what it depends on, so it can be resumed.

A step's readings lie in the same store by shard: what is killed loses one shard. Nothing in the
results depends on the clock, on what was interrupted, or on how many processes took part.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from levelhead.core.files import on_disk, write_atomic
from levelhead.core.run_context import RunContext
from levelhead.engine.locks import claimed
from levelhead.engine.run_dir import own
from levelhead.study.distributed import apart, tried
from levelhead.study.results_dir import ENDS, PLAN, RESULTS, WRITTEN
from levelhead.study.session import Work
from levelhead.study.steps.kinds import make_steps
from levelhead.study.table import rows, to_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from levelhead.core.results import Record
    from levelhead.engine.executors.base import OrderedRunner
    from levelhead.study.config import Plan
    from levelhead.study.distributed import Deadline
    from levelhead.study.row import Row


def run(
    plan: Plan,
    folder: str | Path,
    *,
    runner: OrderedRunner | None = None,
    on_step: Callable[[str, int, int], None] = lambda name, done, of: None,
    context: RunContext = RunContext(),
    keep_going: bool = False,
    until: Deadline | None = None,
) -> dict[str, Record]:
    """Run what is missing of a study; write `plan.json`, `results/` and `table.csv`.

    A step that cannot be measured is Inconclusive, with the reason; it has no row in the table.

    Args:
        plan: the study.
        folder: where everything is kept.
        runner: who computes the steps; by default this process, one after the other.
        on_step: is told the step that begins (with a runner, the one that has ended), how many are
            done, and of how many.
        context: its store is where readings are kept, if not in the folder: a path or URL that all
            workers see; its progress is told how far a step is, and nothing with a runner. The
            threads are the study's.
        keep_going: take any error of ours for a step that cannot be measured: data that are not
            there, an edit that does not say what it was fitted on.
        until: when no step but the first may begin any more.
    """
    place = on_disk(folder)
    own(place, WRITTEN)
    with claimed(str(place)):
        work = Work(plan, place, context)
        every = list(make_steps(work))
        names = [step.name for step in every]
        results = place / RESULTS
        results.mkdir(exist_ok=True)
        _clear(place, plan, names)

        def here() -> Iterator[tuple[str, Record]]:
            for done, step in enumerate(every):
                on_step(step.name, done, len(every))
                late = (
                    bool(done)
                    and until is not None
                    and step.name not in until.exempt
                    and time.monotonic() > until.at
                )
                with threadpool_limits(plan.threads):  # as a worker has it: the same last bits
                    result = tried(step, keep_going=keep_going, late=late)
                yield step.name, result

        def there(runner: OrderedRunner) -> Iterator[tuple[str, Record]]:
            found = apart(work, every, runner, keep_going=keep_going, until=until)
            for done, (name, result) in enumerate(found):
                on_step(name, done, len(every))
                yield name, result

        for name, result in here() if runner is None else there(runner):
            work.done[name] = result
            write_atomic(str(results / f"{name}.json"), result.to_json().encode() + b"\n")
        on_step("done", len(every), len(every))
        found = {name: work.done[name] for name in names}
        table: list[Row] = [row for name, result in found.items() for row in rows(name, result)]
        write_atomic(str(place / "table.csv"), to_csv(table).encode())
    return found


def _clear(place: Path, plan: Plan, steps: Sequence[str]) -> None:
    """Remove what is not of this plan: should it never end, it must not be taken for this one's.

    What two plans have in common is still in the store.
    """
    told, known = plan.to_json().encode() + b"\n", place / PLAN
    same = known.exists() and known.read_bytes() == told
    for path in (place / RESULTS).glob("*.json"):
        if not same or path.stem not in steps:
            path.unlink()
    if not same:
        for name in ENDS:
            (place / name).unlink(missing_ok=True)
        write_atomic(str(known), told)
