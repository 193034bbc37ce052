"""The command line: one file per command, each a thin layer over the Python API.

Exit codes: 0 done or passed, 1 a gate failed, 2 inconclusive, 3 error (a wrong command line too),
130 interrupted. Commands import what they need when they run, so `--help` is quick.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, NoReturn

import typer

from levelhead._version import __version__
from levelhead.cli import (
    audit,
    calibrate,
    demo,
    doctor,
    export,
    finetune,
    gate,
    locate,
    measure,
    probe,
    report,
)
from levelhead.cli.data import data
from levelhead.cli.explain import explain
from levelhead.cli.mitigate import mitigate
from levelhead.cli.shared.exit_codes import ERROR, INTERRUPTED, ExitWithCode
from levelhead.cli.study import leaderboard, study
from levelhead.core.errors import LevelheadError

app = typer.Typer(
    name="levelhead",
    help="Measure stereotype bias in language models, locate it, edit the model, test the effect.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help panels cost 0.3 CPU-seconds of imports at every call
    pretty_exceptions_enable=False,
)
# The names of commands and options are public (CHANGELOG); modules are named by what they do.
app.command("audit")(audit.audit_command)
app.command("demo")(demo.demo_command)
app.command("calibrate")(calibrate.calibrate_command)
app.command("doctor")(doctor.doctor_command)
app.command("measure")(measure.measure_command)
app.command("leaderboard")(leaderboard.leaderboard_command)
app.command("locate")(locate.locate_command)
app.command("finetune")(finetune.finetune_command)
app.command("export")(export.export_command)
app.command("probe")(probe.probe_command)
app.command("report")(report.report_command)
app.command("gate")(gate.gate_command)
app.add_typer(explain.app, name="explain")
app.add_typer(mitigate.app, name="mitigate")
app.add_typer(data.app, name="data")
app.add_typer(study.app, name="study")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"levelhead {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line and exit with one of the documented codes."""
    try:
        app(_normalise_json_flag(sys.argv[1:]))
    except ExitWithCode as end:
        sys.exit(end.code)
    except LevelheadError as error:
        typer.echo(f"levelhead: {error}", err=True)
        sys.exit(ERROR)
    except SystemExit as end:
        # Commands end by ExitWithCode, so a 1 or 2 here comes from typer (aborted, wrong usage).
        # Among our codes these would mean a failed or an inconclusive gate.
        if end.code == INTERRUPTED:
            typer.echo("levelhead: interrupted", err=True)
        sys.exit(end.code if end.code in (None, 0, INTERRUPTED) else ERROR)
    except Exception:
        # A bug of levelhead: Python would exit with 1, which CI would take for a failed gate.
        traceback.print_exc()
        sys.exit(ERROR)
    sys.exit(0)


def _normalise_json_flag(words: list[str]) -> list[str]:
    """Accept `--json -` for `--json`: in other tools `-` names standard output.

    >>> _normalise_json_flag(["gate", "run", "--json", "-", "-p", "x"])
    ['gate', 'run', '--json', '-p', 'x']
    """
    pairs = zip(["", *words], words, strict=False)
    return [word for previous, word in pairs if (previous, word) != ("--json", "-")]
