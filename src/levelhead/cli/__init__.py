"""The command line: one file per command, each a thin layer over the Python API.

Exit codes: 0 done or passed, 1 a gate failed, 2 inconclusive, 3 error (a wrong command line too),
130 interrupted. Commands import what they need when they run, so `--help` is quick.
"""

from __future__ import annotations

import errno
import os
import re
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
from levelhead.cli.shared.help_pages import CachingCommand, Group, ResumableCommand, add_command
from levelhead.cli.shared.terminal import protect_terminal
from levelhead.cli.study import leaderboard, study
from levelhead.core.errors import LevelheadError
from levelhead.core.escape import escape_controls

app = typer.Typer(
    name="levelhead",
    cls=Group,
    help="Measure stereotype bias in language models, locate it, edit the model, test the effect.",
    epilog="levelhead audit bert-base-uncased -o audit\n"
    "levelhead measure bert-base-uncased -m crows -m seat\n"
    "levelhead measure --list",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help panels cost 0.3 CPU-seconds of imports at every call
    pretty_exceptions_enable=False,
)
# The names of commands and options are public (CHANGELOG); modules are named by what they do.
add_command(
    app,
    "audit",
    audit.audit_command,
    "levelhead audit bert-base-uncased -o audit",
    "levelhead audit bert-base-uncased -o audit --budget 5m",
    "levelhead audit bert-base-uncased -o audit --edit edit --against base",
    command_class=ResumableCommand,
)
add_command(
    app,
    "demo",
    demo.demo_command,
    "levelhead demo",
    "levelhead demo --full -o demo.html",
)
add_command(
    app,
    "calibrate",
    calibrate.calibrate_command,
    "levelhead calibrate -o calibration --quick",
    "levelhead calibrate -o calibration --workers 8",
    command_class=ResumableCommand,
)
add_command(
    app,
    "doctor",
    doctor.doctor_command,
    "levelhead doctor bert-base-uncased",
    "levelhead doctor gpt2 --json",
)
add_command(
    app,
    "measure",
    measure.measure_command,
    "levelhead measure bert-base-uncased -m crows -m seat",
    "levelhead measure bert-base-uncased -m seat --edit edit --against base",
    "levelhead measure classifier -m counterfactual --data texts.csv --text text",
    command_class=CachingCommand,
)
add_command(
    app,
    "leaderboard",
    leaderboard.leaderboard_command,
    "levelhead leaderboard bert-base-uncased roberta-base -m crows -o board",
    "levelhead leaderboard --file models.txt -m crows -m seat -o board --workers 4",
    command_class=ResumableCommand,
)
add_command(
    app,
    "locate",
    locate.locate_command,
    "levelhead locate bert-base-uncased -m seat -o heads.json --chart heads.svg",
    "levelhead locate gpt2 -m crows --method ablation --details",
    command_class=CachingCommand,
)
add_command(
    app,
    "finetune",
    finetune.finetune_command,
    "levelhead finetune bert-base-uncased --task rte -o rte",
    "levelhead finetune bert-base-uncased --task mnli -o mnli --lr 2e-5 --epochs 1",
    command_class=ResumableCommand,
)
add_command(
    app,
    "export",
    export.export_command,
    "levelhead export bert-base-uncased --edit edit -o edited",
)
add_command(
    app,
    "probe",
    probe.probe_command,
    "levelhead probe bert-base-uncased --edit edit",
    "levelhead probe bert-base-uncased --edit edit -m seat -o probes.json",
    command_class=CachingCommand,
)
add_command(
    app,
    "report",
    report.report_command,
    "levelhead report audit -o report.html",
    "levelhead report audit -o README.md",
    "levelhead report audit --push organisation/model",
)
add_command(
    app,
    "gate",
    gate.gate_command,
    "levelhead gate audit --policy policy.toml",
    "levelhead gate audit -p policy.toml --junit gate.xml --json",
)
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


DISK_ERRORS = {
    errno.ENOSPC: "free some space on the disk, then run the same command again",
    errno.EDQUOT: "free some of your disk quota, then run the same command again",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), then run the same command again",
    errno.EROFS: "give -o a folder on a disk that can be written",
    errno.EACCES: "give a path that you may read and write",
}
"""Errors of the disk that are no bugs of levelhead, with hints."""


def main() -> NoReturn:
    """Run the command line and exit with one of the documented codes."""
    protect_terminal()
    try:
        app(_normalise_json_flag(sys.argv[1:]))
    except ExitWithCode as end:
        sys.exit(end.code)
    except LevelheadError as error:
        # A bar may move the cursor on stderr; a message may not.
        typer.echo(f"levelhead: {escape_controls(str(error))}", err=True)
        sys.exit(ERROR)
    except SystemExit as end:
        # Commands end by ExitWithCode, so a 1 or 2 here comes from typer (aborted, wrong usage).
        # Among our codes these would mean a failed or an inconclusive gate.
        if end.code == INTERRUPTED:
            typer.echo("levelhead: interrupted", err=True)
        sys.exit(end.code if end.code in (None, 0, INTERRUPTED) else ERROR)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            traceback.print_exc()
            sys.exit(ERROR)
        place = f": {escape_controls(str(error.filename))}" if error.filename else ""
        typer.echo(f"levelhead: {error.strerror}{place}", err=True)
        typer.echo(f"  hint: {DISK_ERRORS[error.errno]}", err=True)
        sys.exit(ERROR)
    except MemoryError:
        typer.echo("levelhead: the memory is not enough", err=True)
        typer.echo("  hint: give a smaller --batch-size, or use a larger machine", err=True)
        sys.exit(ERROR)
    except KeyboardInterrupt:
        raise
    # A bug of levelhead, or a panic of a library in Rust, which is no Exception: Python would exit
    # with 1, which CI would take for a failed gate.
    except BaseException as error:
        _report_bug(error)
        sys.exit(ERROR)
    sys.exit(0)


def _report_bug(error: BaseException) -> None:
    """Print where an unexpected error was raised, unless it says that the disk is at fault."""
    # Libraries in Rust have errors of their own, with the system's number in the text.
    match = re.search(r"\(os error (\d+)\)", str(error))
    if match and (code := int(match[1])) in DISK_ERRORS:
        typer.echo(f"levelhead: {os.strerror(code)}", err=True)
        typer.echo(f"  hint: {DISK_ERRORS[code]}", err=True)
    else:
        traceback.print_exc()


def _normalise_json_flag(words: list[str]) -> list[str]:
    """Accept `--json -` for `--json`: in other tools `-` names standard output.

    >>> _normalise_json_flag(["gate", "run", "--json", "-", "-p", "x"])
    ['gate', 'run', '--json', '-p', 'x']
    """
    pairs = zip(["", *words], words, strict=False)
    return [word for previous, word in pairs if (previous, word) != ("--json", "-")]
