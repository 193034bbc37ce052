"""`levelhead calibrate -o FOLDER`: every ruler, locator and edit where the truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.progress import line, progress
from levelhead.core.run_context import RunContext

if TYPE_CHECKING:
    from pathlib import Path

    from levelhead.calibrate.tables import Tabled
    from levelhead.core.calibration import Calibration


def calibrate(
    output: Annotated[
        str, typer.Option("--output", "-o", help="A folder for results, kept to resume from.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A few models, in minutes: shows that it works.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that grow and measure models; 0: this one.")
    ] = 0,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls", help="Only hold verdicts against the expected ones, organism by organism."
        ),
    ] = False,
) -> None:
    """Grow models with a planted, known bias, and put every measure, locator and edit to them.

    Writes calibration.json and dose.svg; with --controls, controls.json. Killed and called again,
    it goes on where it stopped. The full run takes hours. A measure that is not refuted here has
    found the doses named beside it, and no more is claimed.
    """
    from levelhead.calibrate.matrix import matrix
    from levelhead.calibrate.matrix import tables as matrix_tables
    from levelhead.calibrate.run import calibrate as run
    from levelhead.calibrate.tables import tables
    from levelhead.core.files import on_disk, write_atomic
    from levelhead.engine.executors.processes import LocalProcesses
    from levelhead.engine.run_dir import own

    runner = LocalProcesses(workers) if workers else None
    place = on_disk(output)
    if controls:
        own(place, ("controls.json",))
        with progress("models") as told:
            held = matrix(
                f"{place}/store", quick=quick, runner=runner, context=RunContext(progress=told)
            )
        write_atomic(str(place / "controls.json"), held.to_json().encode() + b"\n")
        for table in matrix_tables(held):
            if table.rows:
                _show(table)
        line(held.summary)
        return
    own(place, ("calibration.json", "dose.svg"))
    with progress("models") as told:
        found = run(f"{place}/store", quick=quick, runner=runner, context=RunContext(progress=told))
    write_atomic(str(place / "calibration.json"), found.to_json().encode() + b"\n")
    _draw(found, place / "dose.svg")
    for table in tables(found):
        if table.rows:
            _show(table)


def _draw(found: Calibration, path: Path) -> None:
    """Dose and response as a picture, if what draws it is installed."""
    from levelhead.core.errors import MissingExtra
    from levelhead.core.files import write_atomic
    from levelhead.report.charts.dose_response import dose
    from levelhead.report.save import svg_of

    try:
        write_atomic(str(path), svg_of(dose(found.rulers)))
    except MissingExtra as error:
        line(str(error))


def _show(told: Tabled) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        *told.columns, title=told.title, title_justify="left", box=None, header_style="bold"
    )
    for row in told.rows:
        table.add_row(*row)
    Console().print(table)
