"""The steps of a study over processes or machines: each a unit that needs the steps before it.

A worker keeps the study's models loaded from step to step. Readings and results go into the study's
store, which all workers must see: on several machines a shared disk or an object store. What a step
needs of earlier ones it finds there. Its result comes back to the process that runs the study,
which alone writes `results/`. (Models that a study trains lie in its folder: these want a shared
disk.)
"""

from __future__ import annotations

import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.files import absolute, whole_path
from levelhead.core.frozen import Frozen
from levelhead.core.results import Inconclusive
from levelhead.core.run_context import RunContext
from levelhead.engine.events import Failed
from levelhead.engine.executors.base import Cancelled, Computed
from levelhead.engine.tasks import Unit
from levelhead.study.config import Plan
from levelhead.study.results_dir import RESULTS, result_of
from levelhead.study.session import Work
from levelhead.study.steps.kinds import make_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.core.results import Record
    from levelhead.engine.executors.base import OrderedRunner
    from levelhead.study.session import Step
    from levelhead.study.steps.config import PlanBase

WORK = "levelhead.study.distributed:one_step"
SPENT = "the time was spent before this step"
GO_ON = "run the same command again: it goes on where it stopped"


class Deadline(NamedTuple):
    """When no step may begin any more, by `time.monotonic`; the first step may always."""

    at: float
    exempt: frozenset[str] = frozenset()
    """Steps that it is not for."""


def apart(
    work: Work,
    every: Sequence[Step],
    runner: OrderedRunner,
    *,
    keep_going: bool,
    until: Deadline | None,
) -> Iterator[tuple[str, Record]]:
    """The results of all steps, by name, in the order in which they end."""
    # Until when by the clock on the wall: other machines have that, too.
    late = None if until is None else time.time() + until.at - time.monotonic()
    exempt = frozenset[str]() if until is None else until.exempt
    told = {
        "plan": _placed(work.plan).to_json(),
        "folder": str(work.folder.resolve()),
        "store": absolute(work.url),
        "keep_going": keep_going,
    }
    units = {
        step.name: Unit(
            WORK,
            Frozen(
                told
                | {
                    "step": step.name,
                    "until": late if number and step.name not in exempt else None,
                }
            ),
            threads=work.plan.threads,
        )
        for number, step in enumerate(every)
    }
    names = {unit.key: name for name, unit in units.items()}
    after = {units[step.name].key: [units[name].key for name in step.after] for step in every}
    for outcome in runner.run(list(units.values()), cancel=work.context.cancel, after=after):
        name = names[outcome.key]
        if isinstance(outcome, Computed):
            yield name, result_of(name, outcome.payload, name)
        elif isinstance(outcome, Failed) and keep_going:
            yield name, Inconclusive(what=outcome.why, mend="give it more memory, or run it alone")
        elif isinstance(outcome, Failed):
            raise LevelheadError(
                f"the step {name} failed: {outcome.why}",
                mend="mend the cause and run again: what was stored is kept",
            )


def _placed(plan: PlanBase) -> PlanBase:
    """The study with whole paths: where there is no such folder, a part would name a Hub id."""
    models = {
        name: one.model_copy(
            update={
                "path": whole_path(one.path),
                "edit": None if one.edit is None else whole_path(one.edit),
            }
        )
        for name, one in plan.models.items()
    }
    return plan.model_copy(update={"models": models})


def tried(step: Step, *, keep_going: bool, late: bool) -> Record:
    """The result of a step; if it cannot be measured, why.

    One number that cannot be had is no reason to lose the others; it stays empty.
    """
    try:
        if late:
            raise NotMeasurable(SPENT, mend=GO_ON)
        return step.make()
    except LevelheadError as error:
        if isinstance(error, Cancelled) or not (keep_going or isinstance(error, NotMeasurable)):
            raise
        return Inconclusive(what=error.what, mend=error.mend)
    except Exception as error:
        if not keep_going:
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        where = f"{Path(last.filename).name}, line {last.lineno}"
        return Inconclusive(what=what, mend=f"report this: it was raised in {where}")


def one_step(spec: Mapping[str, object]) -> bytes:
    """A step in a worker."""
    until = spec["until"]
    work, every = _study(str(spec["plan"]), str(spec["folder"]), str(spec["store"]))
    late = isinstance(until, float) and time.time() > until
    step, keep_going = every[str(spec["step"])], bool(spec["keep_going"])
    if not late:
        _need(step, work, every, keep_going=keep_going)
    return tried(step, keep_going=keep_going, late=late).to_json().encode()


def _need(step: Step, work: Work, every: Mapping[str, Step], *, keep_going: bool) -> None:
    """Have the results at hand that a step needs: written beside, or made of what is stored."""
    for name in step.after:
        path = work.folder / RESULTS / f"{name}.json"
        if name in work.done:
            continue
        if path.exists():  # whoever runs the study has written it
            work.done[name] = result_of(name, path.read_bytes(), str(path))
            continue
        _need(every[name], work, every, keep_going=keep_going)
        work.done[name] = tried(every[name], keep_going=keep_going, late=False)


@lru_cache(maxsize=1)
def _study(plan: str, folder: str, store: str) -> tuple[Work, dict[str, Step]]:
    work = Work(Plan.from_json(plan), Path(folder), RunContext(store=store))
    return work, {step.name: step for step in make_steps(work)}
