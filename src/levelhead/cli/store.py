"""`levelhead store FOLDER`: what a run has stored, and whether every file of it is whole."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.exits import ERROR, ExitWith


def store(
    folder: Annotated[str, typer.Argument(help="A run's folder, or any store; a path or URL.")],
) -> None:
    """Check every file of a run's folder: 0 if all are whole, 3 if any is damaged.

    Damaged files are named. Running the job again computes them anew; nothing ever reads them.
    """
    from levelhead.engine.store import DamagedFile, open_existing

    opened = open_existing(folder)
    whole, size, damaged = 0, 0, 0
    for key in opened:
        try:
            size += len(opened.get(key))
            whole += 1
        except DamagedFile as error:
            damaged += 1
            typer.echo(f"levelhead: {error}", err=True)
    typer.echo(f"{whole} results, {size:,} bytes, {damaged} damaged files")
    if damaged:
        raise ExitWith(ERROR)
