"""`levelhead mine CORPUS... -o FOLDER`: counterfactual pairs and contexts from a corpus."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.engine.events import Event


def mine(
    corpus: Annotated[
        list[str], typer.Argument(help="Files, globs or URLs: .txt, .tsv, .jsonl, .parquet.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A new folder, or one to go on in.")
    ],
    lexicon: Annotated[str, typer.Option(help="A lexicon's name or TOML file.")] = "gender-en",
    quota: Annotated[int, typer.Option(help="Contexts kept for each word.")] = 100,
    workers: Annotated[int, typer.Option(help="Processes; 1 works in this one.")] = 1,
) -> None:
    """Mine a corpus: pairs.jsonl, contexts.jsonl and manifest.json in a folder.

    Killed at any moment and called again, it goes on where it stopped and ends with the same bytes.
    """
    from levelhead.data.mine import mine as mined
    from levelhead.engine.processes import LocalProcesses
    from levelhead.engine.runners import InProcess

    runner = InProcess() if workers == 1 else LocalProcesses(workers=workers)
    found = mined(corpus, output, lexicon=lexicon, quota=quota, runner=runner, on_event=_telling())
    counts = found["counts"]
    typer.echo(
        f"{output}: {found['pairs']} pairs and contexts of {len(found['contexts'])} words from "
        f"{counts.get('sentences', 0):,} sentences"
    )
    for reason, count in counts.items():
        if reason not in ("sentences", "kept") and count:
            typer.echo(f"  not kept as a pair: {count:,} ({reason})")


def _telling() -> Callable[[Event], None]:
    from levelhead.engine.events import Stored

    def tell(event: Event) -> None:
        if isinstance(event, Stored) and sys.stderr.isatty():
            left = "" if event.seconds_left is None else f", {event.seconds_left:.0f} s left"
            end = "\n" if event.done == event.units else ""
            typer.echo(f"\r{event.done} of {event.units} pieces{left}   {end}", nl=False, err=True)

    return tell
