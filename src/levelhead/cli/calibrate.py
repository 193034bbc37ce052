"""`levelhead calibrate -o FOLDER`: test measures, locators and edits on models of known bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import Quiet, RunFolder
from levelhead.cli.shared.progress import print_line, show_progress
from levelhead.core.run_context import RunContext

if TYPE_CHECKING:
    from pathlib import Path

    from levelhead.calibrate.tables import TextTable
    from levelhead.core.calibration import Calibration


def calibrate_command(
    output: RunFolder,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=Panel.EXECUTION,
            help="Train a few models only, in minutes, to check that everything runs.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=Panel.EXECUTION,
            help="Number of processes that train and measure; one by default.",
        ),
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            rich_help_panel=Panel.MEASURE,
            help="Compare only the verdict on each model organism with the expected verdict.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Test measures, head scores and edits on models of known bias.

    Trains models with a planted bias of a known dose, and applies every measure, method of scoring
    heads and edit to them. Writes calibration.json and dose.svg; with --controls, controls.json. A
    run that was killed resumes where it stopped. The full run takes hours. A measure that is not
    refuted here has detected the doses that are reported with it, and no more is claimed.
    """
    from levelhead.calibrate.run import run_calibration
    from levelhead.calibrate.tables import make_calibration_tables
    from levelhead.calibrate.verdict_matrix import make_matrix_tables, run_verdict_matrix
    from levelhead.core.files import local_path, write_atomic
    from levelhead.engine.executors.processes import LocalProcesses
    from levelhead.engine.run_dir import mark_owned

    executor = LocalProcesses(workers) if workers is not None and workers > 1 else None
    folder = local_path(output)
    # mark_owned refuses a folder with foreign files of these names, before the hours of training.
    if controls:
        mark_owned(folder, ("controls.json",))
        with show_progress("models", quiet=quiet) as on_event:
            control_matrix = run_verdict_matrix(
                f"{folder}/store",
                quick=quick,
                executor=executor,
                context=RunContext(progress=on_event),
            )
        write_atomic(str(folder / "controls.json"), control_matrix.to_json().encode() + b"\n")
        for table in make_matrix_tables(control_matrix):
            # A quick run leaves some tables without a row; a head alone says nothing.
            if table.rows:
                _show(table)
        print_line(control_matrix.summary)
        return
    mark_owned(folder, ("calibration.json", "dose.svg"))
    with show_progress("models", quiet=quiet) as on_event:
        calibration = run_calibration(
            f"{folder}/store", quick=quick, executor=executor, context=RunContext(progress=on_event)
        )
    write_atomic(str(folder / "calibration.json"), calibration.to_json().encode() + b"\n")
    _save_dose_chart(calibration, folder / "dose.svg")
    for table in make_calibration_tables(calibration):
        if table.rows:
            _show(table)


def _save_dose_chart(calibration: Calibration, path: Path) -> None:
    """Draw response by dose, if the report extra is installed."""
    from levelhead.core.errors import MissingExtraError
    from levelhead.core.files import write_atomic
    from levelhead.report.charts.dose_response import dose_response_chart
    from levelhead.report.save import render_svg

    try:
        write_atomic(str(path), render_svg(dose_response_chart(calibration.measures)))
    except MissingExtraError as error:
        # The numbers took hours and are written: a missing picture is no reason to fail.
        print_line(str(error))


def _show(text_table: TextTable) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        *text_table.columns,
        title=text_table.title,
        title_justify="left",
        box=None,
        header_style="bold",
    )
    for row in text_table.rows:
        table.add_row(*row)
    Console().print(table)
