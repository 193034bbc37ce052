"""`--log`: results to an experiment tracker, after they are complete."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Record
    from levelhead.report.tracking.entries import Results

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        rich_help_panel=Panel.OUTPUT,
        help="Also log the results to mlflow[:ADDRESS], wandb[:PROJECT] or trackio[:PROJECT]. "
        "Repeat for more.",
    ),
]


def check_trackers(targets: Sequence[str] | None) -> None:
    """Raise for an unknown tracker or a missing package, before anything is measured."""
    for text in targets or ():
        from levelhead.report.tracking.trackers import Target

        Target.parse(text).require_client()


def log_results(
    targets: Sequence[str] | None,
    results: Results | Sequence[Record],
    *,
    name: str,
    files: Sequence[str] = (),
) -> None:
    """Log results to every tracker, and print where the runs are."""
    for text in targets or ():
        from levelhead.report.tracking.log import log

        run = log(name_results(results), text, name=name, files=tuple(files))
        typer.echo(f"logged: {run}", err=True)


def name_results(results: Results | Sequence[Record]) -> Results:
    """Name the results of a list by kind and measure: `measurement.crows`."""
    from levelhead.core.results import Record

    if isinstance(results, Record | Mapping | str | Path):
        return results
    by_name: dict[str, Record] = {}
    for result in results:
        name = f"{type(result).__name__.lower()}.{getattr(result, 'measure', '')}".rstrip(".")
        count = 2
        # One measure may be there twice, with other options.
        while name in by_name:
            name, count = f"{name.partition(' ')[0]} {count}", count + 1
        by_name[name] = result
    return by_name
