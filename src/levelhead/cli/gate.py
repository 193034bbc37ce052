"""`levelhead gate RUN --policy FILE`: may this model pass? The exit code says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.exit_codes import ERROR, FAIL, INCONCLUSIVE, PASS, ExitWith
from levelhead.cli.shared.options import Json

if TYPE_CHECKING:
    from levelhead.report.gate.gate import Gate

CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE, "error": ERROR}
SUMMARY = "GITHUB_STEP_SUMMARY"
KEPT = "gate.json"


def gate(
    run: Annotated[str, typer.Argument(help="The folder of an audit or a study.")],
    policy: Annotated[str, typer.Option("--policy", "-p", help="A TOML file of rules.")],
    junit: Annotated[str | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    summary: Annotated[
        str | None,
        typer.Option(help="Add Markdown to this file; by default $GITHUB_STEP_SUMMARY."),
    ] = None,
    json: Json = False,
) -> None:
    """Judge a run by a policy.

    Exit 0 if every rule passes, 1 if one fails, 2 if one is inconclusive, 3 if one cannot be
    judged. A run without results, a measure that is missing or asked of too few items never passes.
    """
    from levelhead.core.files import write_atomic
    from levelhead.report.gate.ci_files import junit as as_junit
    from levelhead.report.gate.ci_files import summary as as_summary
    from levelhead.report.gate.gate import gate as judged
    from levelhead.report.gate.policy import read_policy

    found = judged(run, read_policy(policy))
    if junit is not None:
        write_atomic(junit, as_junit(found))
    place = summary or os.environ.get(SUMMARY)
    if place:
        with open(place, "a", encoding="utf-8") as file:
            file.write(as_summary(found))
    changed = _changed(Path(run) / KEPT, found)
    try:
        write_atomic(str(Path(run) / KEPT), found.to_json().encode() + b"\n")
    except OSError as error:  # the ruling stands without it
        typer.echo(f"levelhead: {KEPT} is not kept: {error.strerror}", err=True)
    if json:
        typer.echo(found.to_json(), file=sys.stdout)
    else:
        for one in found.rulings:
            typer.echo(f"{one.verdict:<13} {one.rule}: {one.why}", file=sys.stdout)
        typer.echo(f"{found.verdict}: {len(found.rulings)} rules", file=sys.stdout)
    if changed:
        typer.echo("levelhead: the policy has changed since this run was last judged", err=True)
    raise ExitWith(CODES[found.verdict])


def _changed(path: Path, found: Gate) -> bool:
    """Whether the run was judged before, by another policy."""
    from levelhead.report.gate.gate import Gate as Kept

    try:
        return Kept.from_json(path.read_bytes()).policy_sha256 != found.policy_sha256
    except (OSError, ValueError):
        return False
