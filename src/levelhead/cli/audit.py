"""`levelhead audit MODEL -o FOLDER`: everything that fits a model, and a report to open."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.exits import INCONCLUSIVE, ExitWith
from levelhead.cli.options import BatchSize, Device, Draws, Dtype, Json, Model, Revision
from levelhead.cli.progress import line, progress, steps
from levelhead.cli.runners import LOCAL, Address, Gpus, Runner, Workers, chosen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from levelhead.core.results import Record
    from levelhead.study.audit import Audit

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
            help="How long it may take: 30s, 10m, 1h; less is asked then, and said. "
            "none: everything is asked whole."
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
    """Audit a model: rulers, heads, counterexamples, prices, and a report in one HTML file.

    Finds out what the model can answer, asks what fits into the budget, and says what it did not
    ask. Interrupted and called again, it goes on where it stopped. Exit 2 if nothing of what was
    asked could be answered by any ruler of bias.
    """
    began = time.monotonic()  # what loads the model counts, too
    from levelhead.core.files import on_disk

    folder = on_disk(output)
    typer.echo(f"loading {model}", err=True)
    from levelhead.models.load import load
    from levelhead.models.spent import spent
    from levelhead.study.audit import Audited, keep, kept, planned, request
    from levelhead.study.budget import seconds
    from levelhead.study.run import run
    from levelhead.study.schema import Source

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
    told = {"budget": limit, "seed": seed, "threads": cores, "draws": draws}
    told["permutations"] = permutations
    with spent() if profile else nullcontext() as meter:
        lm = load(model, edit=edit, **how)  # type: ignore[arg-type]
        found = kept(folder, request(lm, sources, **told))
        if found is None:
            with steps() as tell:
                found = planned(lm, sources, began=began, on_step=tell, **told)  # type: ignore[arg-type]
            keep(found, folder)

        until = None if limit is None else began + limit

        def step(name: str, done: int, of: int) -> None:
            now = time.monotonic()
            left = "" if until is None or done == of else f", {_minutes(max(until - now, 0))} left"
            line(f"[{done}/{of}] {name} (after {_minutes(now - began)}{left})")

        with progress("questions") as on_event:
            results = run(
                found.plan,
                folder,
                runner=chosen(runner, workers=workers, address=address, gpus=gpus),
                on_step=step,
                on_event=on_event,
                keep_going=True,
                until=until,
            )
    report = _written(found, results, folder)
    if meter is not None:
        typer.echo(f"levelhead: {meter}", err=True)
    _show(found, results, report, json=json)


def _written(audit: Audit, results: Mapping[str, Record], folder: Path) -> Path | None:
    """The report, if what draws it is installed; the numbers are there without it."""
    from levelhead.core.errors import MissingExtra
    from levelhead.core.files import write_atomic
    from levelhead.report.page import page

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
    from levelhead.study.audit import STUDY

    return f"levelhead study {shlex.quote(str(folder / STUDY))} -o again"


def _show(audit: Audit, results: Mapping[str, Record], report: Path | None, *, json: bool) -> None:
    from levelhead.report.verdict import verdict

    told = verdict(audit, results)
    if json:
        from levelhead.core.calibration import NOT_TRIED, verdict_of
        from levelhead.core.canonical import canonical

        plain = {
            "verdict": told.headline,
            "report": None if report is None else str(report),
            "rulers": [
                {
                    "name": one.name,
                    "role": one.role,
                    "status": one.status,
                    "why": one.why,
                    "calibration": verdict_of(one.measurement) if one.measurement else NOT_TRIED,
                }
                for one in told.rulers
            ],
        }
        typer.echo(canonical(plain).decode(), file=sys.stdout)
    else:
        for line in (told.headline, *told.sentences):
            typer.echo(line, file=sys.stdout)
        if report is not None:
            typer.echo(f"report: {report}", file=sys.stdout)
    if not any(one.measurement for one in told.rulers if one.role == "bias"):
        raise ExitWith(INCONCLUSIVE)


def _minutes(spent: float) -> str:
    minutes, seconds = divmod(round(spent), 60)
    return f"{minutes}:{seconds:02}"
