"""`levelhead leaderboard MODELS -m MEASURE -o FOLDER`: many models by the same rulers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.executors import LOCAL, Address, Gpus, Runner, Store, Workers, chosen
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWith
from levelhead.cli.shared.options import BatchSize, Device, Draws, Dtype
from levelhead.cli.shared.progress import line
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.study.leaderboard import Cost, Leaderboard


def leaderboard(
    measures: Annotated[
        list[str], typer.Option("--measure", "-m", help="A measure; the first one orders models.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A folder for results, kept to resume from.")
    ],
    models: Annotated[
        list[str] | None, typer.Argument(help="Hub ids, folders, .gguf files; id@revision.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="A file that names more, one a line.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 0,
    draws: Draws = 1999,
    permutations: Annotated[int, typer.Option(help="Rearrangements for a p-value.")] = 9999,
    threads: Annotated[int, typer.Option(help="Threads of numpy and torch.")] = 1,
    batch_size: BatchSize = 32,
    device: Device = None,
    dtype: Dtype = "float32",
    store: Store = None,
    workers: Workers = None,
    runner: Runner = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
) -> None:
    """Measure many models and order them, nearest to parity first.

    Writes leaderboard.csv, leaderboard.json and costs.csv. Ranks are ranges: models whose intervals
    overlap are not told apart. What fails with one model is told, and the others go on. Killed and
    called again, it goes on where it stopped. Exit 2 if a number is missing.
    """
    from levelhead.engine.executors.processes import LocalProcesses
    from levelhead.study.leaderboard import leaderboard as measured
    from levelhead.study.leaderboard import read_models

    named = list(models or ())
    if file is not None:
        named += read_models(file)
    board, costs = measured(
        named,
        measures,
        output,
        # Always another process: one that runs out of memory takes no other model with it.
        runner=chosen(runner, workers=workers, address=address, gpus=gpus) or LocalProcesses(1),
        source={"dtype": dtype, "batch_size": batch_size, "device": device},
        inference=Inference(seed=seed, resamples=draws, permutations=permutations),
        context=RunContext(threads=threads, store=store),
        on_model=lambda name, done, of: line(f"[{done}/{of}] {name}"),
    )
    _show(board, costs)
    if any(one.missing for one in board.entrants):
        raise ExitWith(INCONCLUSIVE)


def _show(board: Leaderboard, costs: Mapping[str, Cost]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import MISSED, mark_of, marked
    from levelhead.core.verdicts import measure_verdict

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    missed, said = False, list[str]()
    for measure in board.measures:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("rank", "model", measure, "interval", "parity", "n", "CPU", "kept", "verdict"):
            left = name in ("model", "interval", "verdict")
            table.add_column(name, justify="left" if left else "right")
        ranks = board.ranks(measure)
        for one in board.entrants:
            own = one.measured.get(measure)
            if own is None:
                table.add_row("", one.name, "none", *[""] * 5, "not measured")
                continue
            first, last = ranks.get(one.name, ("", ""))
            rank = f"{first}" if first == last else f"{first}-{last}"
            parity = "" if own.parity is None else f"{own.parity:g}"
            spent = _spent(costs.get(one.name))
            missed |= bool(mark_of(own))
            value = marked(f"{own.value:.4g}", own)
            numbers = (value, str(own.interval), parity, str(own.n), *spent)
            verdict = measure_verdict(own)
            table.add_row(rank, one.name, *numbers, verdict.status)
            said.append(f"{one.name}: {measure}: {verdict}")
        console.print(table)
        if not ranks:
            console.print(
                Text(
                    "no ranks: it has no parity, values may not be compared, or none is conclusive"
                )
            )
    for text in said:
        console.print(Text(text), soft_wrap=True)
    for one in board.entrants:
        for measure, why in one.missing.items():
            console.print(Text(f"{one.name}: no {measure}: {why}"), soft_wrap=True)
    if missed:
        console.print(Text(MISSED))


def _spent(cost: Cost | None) -> tuple[str, str]:
    return ("", "") if cost is None else (_time(cost.cpu_seconds), _size(cost.kept_bytes))


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MB"
