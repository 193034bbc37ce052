"""`levelhead study FILE -o FOLDER`: run what a file writes down, resume it, and show it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.shared.executors import LOCAL, Address, Gpus, Runner, Store, Workers, chosen
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWith
from levelhead.cli.shared.progress import line, progress
from levelhead.core.run_context import RunContext


def study(
    file: Annotated[str, typer.Argument(help="A study: a TOML file.")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A folder for results, kept to resume from.")
    ],
    charts: Annotated[
        bool, typer.Option("--charts/--no-charts", help="Draw figures (the report extra).")
    ] = True,
    store: Store = None,
    workers: Workers = None,
    runner: Runner = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
) -> None:
    """Run a study, or what is missing of it.

    Writes table.csv, results/*.json, index.html and, with the report extra, figures/. Killed and
    called again, it goes on where it stopped and ends with the same bytes. Exit 2 if some step is
    inconclusive.
    """
    from levelhead.core.results import Inconclusive
    from levelhead.study.config import read_plan
    from levelhead.study.run import run

    plan = read_plan(file)
    paper = None
    if charts and plan.printed:
        from levelhead.report.study_page import read_printed

        paper = read_printed(Path(file).parent / plan.printed)

    began = time.monotonic()

    def step(name: str, done: int, of: int) -> None:
        minutes, seconds = divmod(round(time.monotonic() - began), 60)
        line(f"[{done}/{of}] {name} (after {minutes}:{seconds:02})")

    with progress("units") as on_event:
        who = chosen(runner, workers=workers, address=address, gpus=gpus)
        results = run(
            plan,
            output,
            runner=who,
            context=RunContext(store=store, progress=on_event),
            on_step=step,
        )
    unsure = {name: one for name, one in results.items() if isinstance(one, Inconclusive)}
    typer.echo(f"{output}/table.csv: {len(results) - len(unsure)} results", file=sys.stdout)
    for name, one in unsure.items():
        typer.echo(f"inconclusive: {name}: {one.what}", file=sys.stdout)
    if charts:
        from levelhead.core.errors import MissingExtra
        from levelhead.report.study_page import beside, draw

        try:
            figures = draw(results, output)
        except MissingExtra as error:
            typer.echo(f"levelhead: no figures: {error}", err=True)
            figures = ()
        page = beside(results, paper, output, title=plan.about or plan.name, figures=figures)
        typer.echo(f"{page}: {len(figures)} figures", file=sys.stdout)
    if unsure:
        raise ExitWith(INCONCLUSIVE)
