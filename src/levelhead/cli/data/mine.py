"""`levelhead mine CORPUS... -o FOLDER`: counterfactual pairs and contexts from a corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.shared.executors import LOCAL, Address, Runner, Workers, chosen
from levelhead.cli.shared.progress import progress
from levelhead.core.run_context import RunContext


def mine(
    corpus: Annotated[
        list[str], typer.Argument(help="Files, globs or URLs: .txt, .tsv, .jsonl, .parquet.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A new folder, or one to go on in.")
    ],
    lexicon: Annotated[str, typer.Option(help="A lexicon's name or TOML file.")] = "gender-en",
    quota: Annotated[int, typer.Option(help="Contexts kept for each word.")] = 100,
    workers: Workers = None,
    runner: Runner = LOCAL,
    address: Address = LOCAL,
) -> None:
    """Mine a corpus: pairs.jsonl, contexts.jsonl and manifest.json in a folder.

    Killed at any moment and called again, it goes on where it stopped and ends with the same bytes.
    """
    from levelhead.data.corpus.mine import mine as mined

    who = chosen(runner, workers=workers, address=address)
    with progress("mining") as tell:
        found = mined(
            corpus,
            output,
            lexicon=lexicon,
            quota=quota,
            runner=who,
            context=RunContext(progress=tell),
        )
    counts = found["counts"]
    typer.echo(
        f"{output}: {found['pairs']} pairs and contexts of {len(found['contexts'])} words from "
        f"{counts['sentences']:,} sentences that hold one, in {counts['texts']:,} texts"
    )
    for reason, count in counts.items():
        if reason not in ("texts", "sentences", "kept") and count:
            typer.echo(f"  not kept as a pair: {count:,} ({reason})")
