"""`levelhead audit MODEL -o FOLDER`: everything that fits a model, and a report to open."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from levelhead.cli.shared.executors import LOCAL, Address, Gpus, Runner, Workers, chosen
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWith
from levelhead.cli.shared.options import BatchSize, Device, Draws, Dtype, Json, Model, Revision
from levelhead.cli.shared.progress import line, progress, steps
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from levelhead.core.results import Record
    from levelhead.models.lm import LM
    from levelhead.report.audit_page.verdict import Ruled
    from levelhead.study.audit.audit import Audit, Audited
    from levelhead.study.config import Plan
    from levelhead.study.distributed import Deadline

NO_BUDGET, BASE = "none", "base"


def audit(
    model: Model,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A folder for report and results; resumed if it holds this audit.",
        ),
    ],
    edit: Annotated[str | None, typer.Option(help="A folder that save_edits wrote.")] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Another model, paired item by item; `base`: this one without the edit."),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="How long it may take: 30s, 10m, 1h. The core suite is always run first and "
            "whole; the budget decides what is added. none: everything."
        ),
    ] = "20m",
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 0,
    draws: Draws = 999,
    permutations: Annotated[int, typer.Option(help="Rearrangements for a p-value.")] = 1999,
    threads: Annotated[
        int | None, typer.Option(help="Threads of numpy and torch; by default all cores.")
    ] = None,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    profile: Annotated[
        bool, typer.Option("--profile", help="Tell how much of the CPU time the model took.")
    ] = False,
    json: Json = False,
    workers: Workers = None,
    runner: Runner = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
) -> None:
    """Audit a model: measures of bias, heads, counterexamples, capability, and a report.

    A fixed core suite of measures is run first, the same whatever the budget, and gives the
    verdict; the budget decides what is added, and what was skipped is said. Interrupted and called
    again, it goes on where it stopped. Exit 0: the core suite was run, whether bias was found or
    not. Exit 2: inconclusive, for some of it was not run or no measure could tell.
    """
    began = time.monotonic()  # what loads the model counts, too
    from levelhead.core.files import on_disk

    folder = on_disk(output)
    typer.echo(f"loading {model}", err=True)
    from levelhead.models.diagnostics.profile import spent
    from levelhead.models.loading.load import load
    from levelhead.study.audit.audit import Audited
    from levelhead.study.audit.time_budget import seconds
    from levelhead.study.run import run
    from levelhead.study.steps.config import Source

    limit = None if budget == NO_BUDGET else seconds(budget)
    cores = threads or os.cpu_count() or 1
    how = {"revision": revision, "dtype": dtype, "batch_size": batch_size, "device": device}
    source = Source(path=model, edit=edit, **how)  # type: ignore[arg-type]
    other = None
    if against == BASE:
        if edit is None:
            raise typer.BadParameter("--against base: this model has no edit to be set beside")
        other = Source(path=model, **how)  # type: ignore[arg-type]
    elif against is not None:
        other = Source(path=against, dtype=dtype, batch_size=batch_size, device=device)
    sources = Audited(source, other)
    inference = Inference(seed=seed, resamples=draws, permutations=permutations)
    clock = _Clock(began, limit)

    def ran(plan: Plan, deadline: Deadline | None) -> dict[str, Record]:
        with progress("questions") as on_event:
            return run(
                plan,
                folder,
                runner=chosen(runner, workers=workers, address=address, gpus=gpus),
                on_step=clock.tell,
                context=RunContext(progress=on_event),
                keep_going=True,
                until=deadline,
            )

    with spent() if profile else nullcontext() as meter:
        lm = load(model, edit=edit, **how)  # type: ignore[arg-type]
        found, results = _asked(
            _planned(lm, sources, folder, limit, inference, cores), lm, folder, clock, ran
        )
    report = _written(found, results, folder)
    if meter is not None:
        typer.echo(f"levelhead: {meter}", err=True)
    _show(found, results, report, json=json)


def _planned(
    lm: LM,
    sources: Audited,
    folder: Path,
    limit: float | None,
    inference: Inference,
    threads: int,
) -> Audit:
    """The audit that the folder holds, or its core suite anew; with another budget that as well."""
    from levelhead.study.audit.audit import NothingToAsk, keep, kept, plan_core, request

    found = kept(folder, request(lm, sources, inference, threads))
    if found is not None and found.budget == limit:
        return found
    try:
        found = plan_core(lm, sources, budget=limit, inference=inference, threads=threads)
    except NothingToAsk as error:
        typer.echo(f"levelhead: {error}", err=True)
        raise ExitWith(INCONCLUSIVE) from None
    keep(found, folder)
    return found


class _Clock(NamedTuple):
    """When an audit began, and how many seconds it may take."""

    began: float
    limit: float | None

    @property
    def left(self) -> float | None:
        """Seconds of the budget that are left; below 0 if it is spent."""
        return None if self.limit is None else self.began + self.limit - time.monotonic()

    def tell(self, name: str, done: int, of: int) -> None:
        """Show which step begins, and how much time is left."""
        left = "" if self.left is None or done == of else f", {_minutes(max(self.left, 0))} left"
        line(f"[{done}/{of}] {name} (after {_minutes(time.monotonic() - self.began)}{left})")

    def deadline(self, times: float = 1.0, exempt: frozenset[str] = frozenset()) -> Deadline | None:
        """When no step may begin any more, in budgets."""
        from levelhead.study.distributed import Deadline

        return None if self.limit is None else Deadline(self.began + times * self.limit, exempt)


def _asked(
    audit: Audit,
    lm: LM,
    folder: Path,
    clock: _Clock,
    ran: Callable[[Plan, Deadline | None], dict[str, Record]],
) -> tuple[Audit, dict[str, Record]]:
    """Run the core suite; then plan what there is time for beyond it, and run that."""
    from levelhead.study.audit.audit import CORE_LIMIT, extended, keep

    if audit.stage == "core":
        results = ran(audit.plan, clock.deadline(CORE_LIMIT))
        if _is_cut_short(results):  # the next call goes on with the core suite
            return audit, results
        left = clock.left
        if left is not None and left <= 0:
            line("the core suite took longer than the budget: nothing is added")
        with steps() as tell:
            whole = extended(audit, lm, left=left, on_step=tell)
        keep(whole, folder)
        if whole.plan == audit.plan:
            return whole, results
        audit = whole
    return audit, ran(audit.plan, clock.deadline(exempt=audit.core_steps))


def _is_cut_short(results: Mapping[str, Record]) -> bool:
    from levelhead.core.results import Inconclusive
    from levelhead.study.distributed import SPENT

    return any(isinstance(one, Inconclusive) and one.what == SPENT for one in results.values())


def _written(audit: Audit, results: Mapping[str, Record], folder: Path) -> Path | None:
    """The report, if what draws it is installed; the numbers are there without it."""
    from levelhead.core.errors import MissingExtra
    from levelhead.core.files import write_atomic
    from levelhead.report.audit_page.page import page

    path = folder / "report.html"
    try:
        write_atomic(str(path), page(audit, results, command=command(folder)))
    except MissingExtra as error:
        typer.echo(
            f"levelhead: no report: {error}; then call `levelhead report {folder} -o {path}`",
            err=True,
        )
        return None
    return path


def command(folder: Path) -> str:
    """What repeats an audit with the same questions: its plan lies in the folder."""
    from levelhead.study.audit.audit import STUDY

    return f"levelhead study {shlex.quote(str(folder / STUDY))} -o again"


def _show(audit: Audit, results: Mapping[str, Record], report: Path | None, *, json: bool) -> None:
    from levelhead.report.audit_page.verdict import verdict

    told = verdict(audit, results)
    if json:
        from levelhead.core.canonical_json import canonical

        rows = [_row(one) for one in (*told.rulers, *told.derived)]
        skipped = [row.model_dump() for row in audit.left_out]
        plain = {
            "verdict": told.headline,
            "complete": told.is_complete,
            "conclusive": told.is_conclusive,
            "coverage": told.coverage,
            "planned": list(audit.core_names),
            "run": [one.name for one in told.rulers if one.measurement and one.is_core],
            "skipped": [{key: row[key] for key in ("what", "reason", "why")} for row in skipped],
            "report": None if report is None else str(report),
            "rulers": rows,
        }
        typer.echo(canonical(plain).decode(), file=sys.stdout)
    else:
        for line in (told.headline, *told.sentences):
            typer.echo(line, file=sys.stdout)
        if report is not None:
            typer.echo(f"report: {report}", file=sys.stdout)
    if not told.is_complete:
        typer.echo(f"levelhead: INCONCLUSIVE: {told.coverage}", err=True)
    elif not told.is_conclusive:
        typer.echo("levelhead: INCONCLUSIVE: no measure could tell bias from none", err=True)
    if not (told.is_complete and told.is_conclusive):
        raise ExitWith(INCONCLUSIVE)


def _row(one: Ruled) -> dict[str, object]:
    """What one measure says, as plain JSON."""
    from levelhead.core.calibration import NOT_TRIED, verdict_of

    return {
        "name": one.name,
        "role": one.role,
        "core": one.is_core,
        "status": one.status,
        "direction": one.toward,
        "reason": one.reason,
        "why": one.why,
        "calibration": verdict_of(one.measurement) if one.measurement else NOT_TRIED,
    }


def _minutes(spent: float) -> str:
    minutes, seconds = divmod(round(spent), 60)
    return f"{minutes}:{seconds:02}"
