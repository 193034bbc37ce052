"""`levelhead store FOLDER`: what a run has stored, and whether all of it is there and whole."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.shared.exit_codes import ERROR, ExitWith


def store(
    folder: Annotated[str, typer.Argument(help="A run's folder, or any store; a path or URL.")],
) -> None:
    """Check a run's folder: 0 if every file is whole and every job finished, else 3.

    Damaged files are named. Running the job again computes them anew; nothing ever reads them.
    """
    from levelhead.core.files import join
    from levelhead.engine.run_dir import is_own
    from levelhead.engine.scheduler import FINISHED, JOBS
    from levelhead.engine.store import DamagedFile, open_existing

    opened = open_existing(join(folder, "store") if is_own(folder) else folder)
    whole, size, damaged = 0, 0, 0
    for room in ("units", JOBS, FINISHED):
        for key in opened.keys(room=room):
            try:
                length = len(opened.get(key, room=room))
            except DamagedFile as error:
                damaged += 1
                typer.echo(f"levelhead: {error}", err=True)
                continue
            if room == "units":
                whole, size = whole + 1, size + length
    finished = set(opened.keys(room=FINISHED))
    unfinished = [key for key in opened.keys(room=JOBS) if key not in finished]
    for key in unfinished:
        typer.echo(f"levelhead: the job {key[:12]} is not finished: run it again", err=True)
    typer.echo(f"{whole} results, {size:,} bytes, {damaged} damaged, {len(unfinished)} unfinished")
    if damaged or unfinished:
        raise ExitWith(ERROR)
