"""The command line: one file a verb, each a thin skin over the Python of the same name.

Exit codes: 0 done or passed, 1 a gate failed, 2 inconclusive, 3 error (a wrong command line too),
130 interrupted. Verbs import what they need when they are called, so `--help` is quick.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, NoReturn

import typer

from levelhead import __version__
from levelhead.cli import (
    audit,
    calibrate,
    correlate,
    demo,
    doctor,
    finetune,
    gate,
    locate,
    measure,
    report,
)
from levelhead.cli import export as bake
from levelhead.cli import probe as removed
from levelhead.cli.data import data, mine
from levelhead.cli.explain import explain
from levelhead.cli.mitigate import mitigate
from levelhead.cli.mitigate import select_edit as tune
from levelhead.cli.shared.exit_codes import ERROR, INTERRUPTED, ExitWith
from levelhead.cli.study import leaderboard, plan, store, study
from levelhead.core.errors import LevelheadError

app = typer.Typer(
    name="levelhead",
    help="Measure stereotype bias in language models, locate it, edit the model, prove the effect.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help panels cost 0.3 CPU-seconds of imports at every call
    pretty_exceptions_enable=False,
)
app.command("audit")(audit.audit)
app.command("demo")(demo.demo)
app.command("calibrate")(calibrate.calibrate)
app.command("doctor")(doctor.doctor)
app.command("measure")(measure.measure)
app.command("leaderboard")(leaderboard.leaderboard)
app.command("locate")(locate.locate)
app.command("correlate")(correlate.correlate)
app.command("finetune")(finetune.finetune)
app.command("tune")(tune.tune)
app.command("bake")(bake.bake)
app.command("removed")(removed.removed)
app.command("mine")(mine.mine)
app.command("report")(report.report)
app.command("gate")(gate.gate)
app.command("store")(store.store)
app.command("study")(study.study)
app.add_typer(explain.app, name="explain")
app.add_typer(mitigate.app, name="mitigate")
app.add_typer(data.app, name="data")
app.add_typer(plan.app, name="plan")


def _print_version(wanted: bool) -> None:
    if wanted:
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
    """Run the command line and exit with its code."""
    try:
        app(_plain(sys.argv[1:]))
    except ExitWith as end:
        sys.exit(end.code)
    except LevelheadError as error:
        typer.echo(f"levelhead: {error}", err=True)
        sys.exit(ERROR)
    except SystemExit as end:
        # Verbs leave by ExitWith, so a 1 or 2 is typer's own (aborted, wrong usage); in our codes
        # these would read as a failed or an inconclusive gate.
        if end.code == INTERRUPTED:
            typer.echo("levelhead: interrupted", err=True)
        sys.exit(end.code if end.code in (None, 0, INTERRUPTED) else ERROR)
    except Exception:
        traceback.print_exc()
        sys.exit(ERROR)
    sys.exit(0)


def _plain(words: list[str]) -> list[str]:
    """`--json -` is `--json`: other tools name standard output so.

    >>> _plain(["gate", "run", "--json", "-", "-p", "x"])
    ['gate', 'run', '--json', '-p', 'x']
    """
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if (before, word) != ("--json", "-")]
