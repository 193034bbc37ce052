"""`levelhead leaderboard MODELS -m MEASURE -o FOLDER`: compare models by the same measures."""

from __future__ import annotations

import sys
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
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    BatchSize,
    Device,
    DryRun,
    Dtype,
    Json,
    Measures,
    Permutations,
    Quiet,
    Resamples,
    RunFolder,
    Seed,
    Threads,
)
from levelhead.cli.shared.progress import print_line
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.study.leaderboard import ModelCost
    from levelhead.study.leaderboard_ranks import Leaderboard


def leaderboard_command(
    measures: Measures,
    output: RunFolder,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Hub ids (id@revision), folders or .gguf files."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            rich_help_panel=Panel.MODEL,
            help="File with the names of further models, one per line.",
        ),
    ] = None,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    permutations: Permutations = 9999,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    device: Device = None,
    dtype: Dtype = "float32",
    store: StoreUrl = None,
    workers: Workers = None,
    executor: ExecutorName = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
    json: Json = False,
    quiet: Quiet = False,
    dry_run: DryRun = False,
) -> None:
    """Measure many models and order them, nearest to parity first.

    Writes leaderboard.csv, leaderboard.json and costs.csv. Ranks are ranges: models with
    overlapping intervals share them. A failure of one model is reported, and the others continue. A
    run that was killed resumes where it stopped. Exit 2 if a number is missing.
    """
    from levelhead.engine.executors.processes import LocalProcesses
    from levelhead.study.leaderboard import estimate_leaderboard_cost, read_models, run_leaderboard

    model_names = list(models or ())
    if file is not None:
        model_names += read_models(file)
    load_options = {"dtype": dtype, "batch_size": batch_size, "device": device}
    context = RunContext(threads=threads, store=store)
    if dry_run:
        if not model_names:
            raise typer.BadParameter("name a model")
        cost = estimate_leaderboard_cost(
            model_names, measures, output, load_options=load_options, context=context
        )
        typer.echo(cost.to_json() if json else str(cost))
        return
    board, costs = run_leaderboard(
        model_names,
        measures,
        output,
        # Always another process: one that runs out of memory does not end the other models.
        executor=make_executor(executor, workers=workers, address=address, gpus=gpus)
        or LocalProcesses(1),
        load_options=load_options,
        inference=Inference(seed=seed, resamples=resamples, permutations=permutations),
        context=context,
        on_model=lambda name, done, total: (
            None if quiet else print_line(f"[{done}/{total}] {name}")
        ),
    )
    if json:
        typer.echo(board.to_json())
    else:
        _show(board, costs)
    if any(entry.missing for entry in board.entries):
        raise ExitWithCode(INCONCLUSIVE)


def _show(board: Leaderboard, costs: Mapping[str, ModelCost]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark
    from levelhead.core.verdicts import decide_measure_verdict

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    has_failed_measure, verdict_lines = False, list[str]()
    for measure in board.measures:
        table = Table(box=None, pad_edge=False, header_style="bold")
        columns = ("rank", "model", measure, "interval", "parity", "n", "CPU", "stored", "verdict")
        for name in columns:
            is_left = name in ("model", "interval", "verdict")
            table.add_column(name, justify="left" if is_left else "right")
        ranks = board.rank_ranges(measure)
        for entry in board.entries:
            measurement = entry.measurements.get(measure)
            if measurement is None:
                table.add_row("", entry.name, "", *[""] * 5, "not measured")
                continue
            first, last = ranks.get(entry.name, ("", ""))
            rank = f"{first}" if first == last else f"{first}-{last}"
            parity = "" if measurement.parity is None else f"{measurement.parity:g}"
            cost_texts = _cost_texts(costs.get(entry.name))
            has_failed_measure |= bool(failed_calibration_mark(measurement))
            value = with_mark(f"{measurement.value:.4g}", measurement)
            numbers = (value, str(measurement.interval), parity, str(measurement.n), *cost_texts)
            verdict = decide_measure_verdict(measurement)
            table.add_row(rank, entry.name, *numbers, verdict.status)
            verdict_lines.append(f"{entry.name}: {measure}: {verdict}")
        console.print(table)
        if not ranks:
            console.print(
                Text(
                    "no ranks: the measure has no parity value, its values are not comparable "
                    "between these models, or no result is conclusive"
                )
            )
    for text in verdict_lines:
        console.print(Text(text), soft_wrap=True)
    for entry in board.entries:
        for measure, reason in entry.missing.items():
            console.print(Text(f"{entry.name}: {measure} not measured: {reason}"), soft_wrap=True)
    if has_failed_measure:
        console.print(Text(DAGGER_NOTE))


def _cost_texts(cost: ModelCost | None) -> tuple[str, str]:
    return (
        ("", "")
        if cost is None
        else (_format_time(cost.cpu_seconds), _format_size(cost.stored_bytes))
    )


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _format_size(count: int) -> str:
    return f"{count / 2**20:.1f} MB"
