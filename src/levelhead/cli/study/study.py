"""`levelhead study run|check`: run or resume the study of a file, check the files of a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.executors import (
    LOCAL,
    Address,
    ExecutorName,
    Gpus,
    StoreUrl,
    Workers,
    make_executor,
)
from levelhead.cli.shared.exit_codes import ERROR, INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Group, Panel, ResumableCommand, add_command
from levelhead.cli.shared.options import DryRun, Json, Quiet, RunFolder
from levelhead.cli.shared.progress import print_line, show_progress
from levelhead.cli.shared.tracking import Log, check_trackers, log_results
from levelhead.core.run_context import RunContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Record
    from levelhead.report.study_page import PaperTables
    from levelhead.study.config import StudyConfig

app = typer.Typer(
    cls=Group,
    help="Run studies, and check the files of a run.",
    epilog="levelhead study run study.toml -o results\nlevelhead study check results",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def run_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="TOML file of a study.")],
    output: RunFolder,
    charts: Annotated[
        bool,
        typer.Option(
            "--charts/--no-charts",
            rich_help_panel=Panel.OUTPUT,
            help="Draw figures, which needs the report extra.",
        ),
    ] = True,
    json: Json = False,
    quiet: Quiet = False,
    log: Log = None,
    store: StoreUrl = None,
    workers: Workers = None,
    executor: ExecutorName = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
    dry_run: DryRun = False,
) -> None:
    """Run a study, or its missing steps.

    Writes table.csv, results/*.json, index.html and, with the report extra, figures/. A run that
    was killed resumes where it stopped and ends with the same bytes. Exit 2 if a step is
    inconclusive.
    """
    from levelhead.core.results import StepFailure
    from levelhead.models.serving.addresses import check_key_hosts
    from levelhead.study.config import read_study_config
    from levelhead.study.run import run_study

    plan = read_study_config(file)
    check_trackers(log)
    # Not the description, which may cite anything.
    addresses = [*(source.path for source in plan.models.values()), *plan.measures.values()]
    check_key_hosts("\n".join(addresses), "the study")
    if dry_run:
        from levelhead.core.files import local_path
        from levelhead.study.cost import estimate_study_cost

        cost = estimate_study_cost(plan, local_path(output), context=RunContext(store=store))
        typer.echo(cost.to_json() if json else str(cost))
        return
    paper = None
    if charts and plan.paper_tables:
        from levelhead.report.study_page import read_paper_tables

        # Before the run: a wrong path of the paper's tables fails at once.
        paper = read_paper_tables(Path(file).parent / plan.paper_tables)

    began = time.monotonic()

    def report_step(name: str, done: int, total: int) -> None:
        if quiet:
            return
        minutes, seconds = divmod(round(time.monotonic() - began), 60)
        print_line(f"[{done}/{total}] {name} (after {minutes}:{seconds:02})")

    with show_progress("queries", quiet=quiet) as on_event:
        results = run_study(
            plan,
            output,
            executor=make_executor(executor, workers=workers, address=address, gpus=gpus),
            context=RunContext(store=store, progress=on_event),
            on_step=report_step,
        )
    failures = {
        name: result.problem for name, result in results.items() if isinstance(result, StepFailure)
    }
    page = None
    if charts:
        page = _write_page(plan, results, paper, output)
    if json:
        from levelhead.core.canonical_json import to_canonical_json

        document = {
            "table": f"{output}/table.csv",
            "page": page,
            "results": len(results) - len(failures),
            "inconclusive": failures,
        }
        typer.echo(to_canonical_json(document).decode(), file=sys.stdout)
    else:
        typer.echo(f"{output}/table.csv: {len(results) - len(failures)} results", file=sys.stdout)
        for name, problem in failures.items():
            typer.echo(f"inconclusive: {name}: {problem}", file=sys.stdout)
        if page is not None:
            typer.echo(f"page: {page}", file=sys.stdout)
    log_results(log, output, name=plan.name)
    if failures:
        raise ExitWithCode(INCONCLUSIVE)


def _write_page(
    plan: StudyConfig, results: Mapping[str, Record], paper: PaperTables | None, output: str
) -> str:
    from levelhead.core.errors import MissingExtraError
    from levelhead.report.study_page import draw_figures, write_study_page

    # Results are worth more than figures: without the extra the run still succeeds.
    try:
        figures = draw_figures(results, output)
    except MissingExtraError as error:
        typer.echo(f"levelhead: no figures: {error}", err=True)
        figures = ()
    title = plan.description or plan.name
    return str(write_study_page(results, paper, output, title=title, figures=figures))


def schema_command() -> None:
    """Print the JSON Schema of study files.

    Editors complete and check files with it.
    """
    from levelhead.study.config import StudyConfig
    from levelhead.study.schema import make_schema

    typer.echo(make_schema(StudyConfig), nl=False, file=sys.stdout)


def check_command(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="Folder of a run, or any store, as a path or URL."),
    ],
    json: Json = False,
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
    if json:
        from levelhead.core.canonical_json import to_canonical_json

        counts = {"results": n_intact, "bytes": size, "damaged": n_damaged}
        document = counts | {"unfinished": len(unfinished)}
        typer.echo(to_canonical_json(document).decode())
    else:
        typer.echo(
            f"{n_intact} results, {size:,} bytes, {n_damaged} damaged, {len(unfinished)} unfinished"
        )
    if n_damaged or unfinished:
        raise ExitWithCode(ERROR)


add_command(
    app,
    "run",
    run_command,
    "levelhead study run study.toml -o results",
    "levelhead study run study.toml -o results --dry-run",
    "levelhead study run study.toml -o results --workers 4",
    command_class=ResumableCommand,
)
add_command(app, "check", check_command, "levelhead study check results")
add_command(app, "schema", schema_command, "levelhead study schema > study.schema.json")
