"""`levelhead gate RUN --policy FILE`: test a run against a policy; the exit code is the result."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.exit_codes import ERROR, FAIL, INCONCLUSIVE, PASS, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import Json

if TYPE_CHECKING:
    from levelhead.report.gate.gate import GateReport

CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE, "error": ERROR}
# GitHub shows this file on the page of a workflow's run.
SUMMARY = "GITHUB_STEP_SUMMARY"
GATE_FILE = "gate.json"


def _print_schema(is_requested: bool) -> None:
    if is_requested:
        from levelhead.report.gate.policy import Policy
        from levelhead.study.schema import make_schema

        typer.echo(make_schema(Policy), nl=False, file=sys.stdout)
        raise typer.Exit


def gate_command(
    run: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder of an audit's or a study's results.")
    ],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            metavar="FILE",
            rich_help_panel=Panel.DATA,
            help="TOML file with the rules.",
        ),
    ],
    junit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            help="File for the results as JUnit XML.",
        ),
    ] = None,
    sarif: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            help="File for what did not pass as SARIF 2.1.0, for code scanning.",
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            callback=_print_schema,
            rich_help_panel=Panel.OUTPUT,
            help="Print the JSON Schema of policy files, for editors, and exit.",
        ),
    ] = False,
    summary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            help="File to which a summary in Markdown is added; $GITHUB_STEP_SUMMARY by default.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Test a run against a policy.

    Exit 0 if every rule passes, 1 if a rule fails, 2 if a rule is inconclusive, 3 if a rule cannot
    be evaluated. A run without results never passes, nor does a measure that is missing or was
    measured on too few items.
    """
    from levelhead.core.escape import to_single_line
    from levelhead.core.files import write_atomic
    from levelhead.report.gate.ci_files import to_junit_xml, to_markdown_summary
    from levelhead.report.gate.gate import run_gate
    from levelhead.report.gate.policy import read_policy

    gate_result = run_gate(run, read_policy(policy))
    if junit is not None:
        write_atomic(junit, to_junit_xml(gate_result))
    if sarif is not None:
        from levelhead.report.gate.sarif import to_sarif

        write_atomic(sarif, to_sarif(gate_result, policy))
    summary_path = summary or os.environ.get(SUMMARY)
    if summary_path:
        # Appended, because other steps of a workflow write their summaries into this file.
        with open(summary_path, "a", encoding="utf-8") as file:
            file.write(to_markdown_summary(gate_result))
    # Read before the file is replaced: a gate that passes after its rules were relaxed must show.
    has_policy_changed = _has_policy_changed(Path(run) / GATE_FILE, gate_result)
    try:
        write_atomic(str(Path(run) / GATE_FILE), gate_result.to_json().encode() + b"\n")
    except OSError as error:
        # A run's folder may be read-only in CI: the verdict does not depend on this file.
        typer.echo(f"levelhead: {GATE_FILE} was not written: {error.strerror}", err=True)
    if json:
        typer.echo(gate_result.to_json(), file=sys.stdout)
    else:
        for rule_result in gate_result.results:
            typer.echo(
                f"{rule_result.verdict:<13} "
                + to_single_line(f"{rule_result.rule}: {rule_result.explanation}"),
                file=sys.stdout,
            )
        typer.echo(f"{gate_result.verdict}: {len(gate_result.results)} rules", file=sys.stdout)
    if has_policy_changed:
        typer.echo("levelhead: the policy has changed since this run was last tested", err=True)
    raise ExitWithCode(CODES[gate_result.verdict])


def _has_policy_changed(path: Path, gate_result: GateReport) -> bool:
    """Report whether the run was tested before against another policy."""
    from levelhead.report.gate.gate import GateReport

    try:
        return GateReport.from_json(path.read_bytes()).policy_sha256 != gate_result.policy_sha256
    except (OSError, ValueError):
        return False
