"""`levelhead store FOLDER`: check that the stored results of a run are complete and intact."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.shared.exit_codes import ERROR, ExitWithCode


def store_command(
    folder: Annotated[str, typer.Argument(help="Folder of a run, or any store, as a path or URL.")],
) -> None:
    """Check that a run's files are intact and its jobs finished.

    Damaged files are named. Running the job again computes them anew; they are never read. Exit 0
    if every file is intact and every job finished, 3 if not.
    """
    from levelhead.core.files import join_url
    from levelhead.engine.run_dir import is_owned
    from levelhead.engine.scheduler import FINISHED, JOBS
    from levelhead.engine.store import DamagedFileError, open_existing_store

    result_store = open_existing_store(join_url(folder, "store") if is_owned(folder) else folder)
    n_intact, size, n_damaged = 0, 0, 0
    for namespace in ("units", JOBS, FINISHED):
        for key in result_store.keys(namespace=namespace):
            try:
                length = len(result_store.get(key, namespace=namespace))
            # Every damaged file is named, not only the first one: the check reads on.
            except DamagedFileError as error:
                n_damaged += 1
                typer.echo(f"levelhead: {error}", err=True)
                continue
            if namespace == "units":
                n_intact, size = n_intact + 1, size + length
    finished = set(result_store.keys(namespace=FINISHED))
    unfinished = [key for key in result_store.keys(namespace=JOBS) if key not in finished]
    for key in unfinished:
        typer.echo(f"levelhead: the job {key[:12]} is not finished: run it again", err=True)
    typer.echo(
        f"{n_intact} results, {size:,} bytes, {n_damaged} damaged, {len(unfinished)} unfinished"
    )
    if n_damaged or unfinished:
        raise ExitWithCode(ERROR)
