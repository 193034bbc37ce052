"""`levelhead data mine CORPUS... -o FOLDER`: extract counterfactual pairs from a corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.shared.executors import LOCAL, Address, ExecutorName, Workers, make_executor
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import DryRun, LexiconName, Quiet, RunFolder
from levelhead.cli.shared.progress import show_progress
from levelhead.core.run_context import RunContext


def mine_command(
    corpus: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Files, globs or URLs: .txt, .tsv, .jsonl, .parquet."),
    ],
    output: RunFolder,
    lexicon: LexiconName = "gender-en",
    quota: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.DATA,
            help="Maximum number of contexts to keep for each word.",
        ),
    ] = 100,
    workers: Workers = None,
    executor: ExecutorName = LOCAL,
    address: Address = LOCAL,
    quiet: Quiet = False,
    dry_run: DryRun = False,
) -> None:
    """Mine a corpus for counterfactual pairs and contexts.

    Writes pairs.jsonl, contexts.jsonl and manifest.json. A run that was killed at any moment
    resumes where it stopped and ends with the same bytes.
    """
    from levelhead.data.corpus.mine import estimate_mining_cost, mine_corpus

    if dry_run:
        cost = estimate_mining_cost(corpus, lexicon=lexicon, quota=quota)
        typer.echo(f"{cost.pieces:,} pieces in {cost.tasks:,} tasks")
        typer.echo(f"about {cost.seconds:,.1f} s in one process, by the time of the first piece")
        return

    with show_progress("mining", quiet=quiet) as on_event:
        manifest = mine_corpus(
            corpus,
            output,
            lexicon=lexicon,
            quota=quota,
            executor=make_executor(executor, workers=workers, address=address),
            context=RunContext(progress=on_event),
        )
    counts = manifest["counts"]
    typer.echo(
        f"{output}: {manifest['pairs']} pairs and contexts of {len(manifest['contexts'])} words "
        f"from {counts['sentences']:,} sentences with such a word, in {counts['texts']:,} texts"
    )
    # What was left out is counted by reason: a corpus that gives few pairs must show why.
    for reason, count in counts.items():
        if reason not in ("texts", "sentences", "kept") and count:
            typer.echo(f"  not kept as a pair: {count:,} ({reason})")
