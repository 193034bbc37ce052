"""Run a study: every result is stored under the hash of its inputs, so that runs can be resumed.

A step's responses are in the same store by shard: an interrupted run loses at most one shard. The
results depend neither on the clock, nor on interruptions, nor on the number of processes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from levelhead.core.files import local_path, write_atomic
from levelhead.core.run_context import RunContext
from levelhead.engine.locks import exclusive_lock
from levelhead.engine.run_dir import mark_owned
from levelhead.study.distributed import run_step_safely, run_steps_distributed
from levelhead.study.results_dir import FINAL_FILES, OWNED_FILES, RESULTS_DIR, STUDY_CONFIG_FILE
from levelhead.study.session import StudySession
from levelhead.study.steps.kinds import make_steps
from levelhead.study.table import result_to_rows, to_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from levelhead.core.results import Record
    from levelhead.engine.executors.base import DependencyExecutor
    from levelhead.study.config import StudyConfig
    from levelhead.study.distributed import Deadline
    from levelhead.study.table_row import TableRow


def run_study(
    config: StudyConfig,
    folder: str | Path,
    *,
    executor: DependencyExecutor | None = None,
    on_step: Callable[[str, int, int], None] = lambda name, done, of: None,
    context: RunContext = RunContext(),
    keep_going: bool = False,
    deadline: Deadline | None = None,
) -> dict[str, Record]:
    """Run the missing steps of a study; write `plan.json`, `results/` and `table.csv`.

    A step that cannot be measured gives a StepFailure with the reason; the table has no row for it.

    Args:
        config: the study.
        folder: folder of the study.
        executor: executor of the steps; by default this process, one step after the other.
        on_step: callback with the step that begins (with an executor: that has ended), the number
            of finished steps and their total.
        context: its store, if any, holds the responses instead of the folder: a path or URL that
            all workers can access. Its progress callback gets the progress within a step, without
            an executor. The threads are those of the study.
        keep_going: whether any LevelheadError only fails its step: missing data, or an edit without
            a record of the words it was fitted on.
        deadline: time after which no step except the first begins.
    """
    out_dir = local_path(folder)
    mark_owned(out_dir, OWNED_FILES)
    # Two runs in one folder would remove each other's results.
    with exclusive_lock(str(out_dir)):
        session = StudySession(config, out_dir, context)
        steps = list(make_steps(session))
        names = [step.name for step in steps]
        results_dir = out_dir / RESULTS_DIR
        results_dir.mkdir(exist_ok=True)
        _clear_results(out_dir, config, names)

        def run_in_process() -> Iterator[tuple[str, Record]]:
            for done, step in enumerate(steps):
                on_step(step.name, done, len(steps))
                is_late = (
                    bool(done)
                    and deadline is not None
                    and time.monotonic() > deadline.of(step.name)
                )
                with threadpool_limits(
                    config.threads
                ):  # as in a worker: the same results, bit by bit
                    result = run_step_safely(step, keep_going=keep_going, is_late=is_late)
                yield step.name, result

        def run_on_executor(executor: DependencyExecutor) -> Iterator[tuple[str, Record]]:
            outcomes = run_steps_distributed(
                session, steps, executor, keep_going=keep_going, deadline=deadline
            )
            for done, (name, result) in enumerate(outcomes):
                on_step(name, done, len(steps))
                yield name, result

        for name, result in run_in_process() if executor is None else run_on_executor(executor):
            session.results[name] = result
            # After every step: a run that is killed leaves the results of all steps before.
            write_atomic(str(results_dir / f"{name}.json"), result.to_json().encode() + b"\n")
        on_step("done", len(steps), len(steps))
        results = {name: session.results[name] for name in names}
        table: list[TableRow] = [
            row for name, result in results.items() for row in result_to_rows(name, result)
        ]
        write_atomic(str(out_dir / "table.csv"), to_csv(table).encode())
    return results


def _clear_results(out_dir: Path, config: StudyConfig, step_names: Sequence[str]) -> None:
    """Remove results of another plan: readers of an unfinished run must not mix the two.

    Results that both plans share are still in the store.
    """
    config_bytes, config_path = config.to_json().encode() + b"\n", out_dir / STUDY_CONFIG_FILE
    is_same = config_path.exists() and config_path.read_bytes() == config_bytes
    for path in (out_dir / RESULTS_DIR).glob("*.json"):
        if not is_same or path.stem not in step_names:
            path.unlink()
    if not is_same:
        for name in FINAL_FILES:
            (out_dir / name).unlink(missing_ok=True)
        # Last: if a kill comes before this line, the old plan remains and the next run clears
        # again.
        write_atomic(str(config_path), config_bytes)
