"""`levelhead explain knowledge MODEL`: what counterexamples before a prompt do (Zhang 2023)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.measure import cells
from levelhead.cli.shared.model_options import opened
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Chart,
    Device,
    Draws,
    Dtype,
    Json,
    Level,
    ModelOrServer,
    Output,
    Revision,
)
from levelhead.cli.shared.output import told
from levelhead.cli.shared.progress import progress
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.console import Console

    from levelhead.core.results import Estimate
    from levelhead.explain.prompting.knowledge import Knowledge


def knowledge(
    model: ModelOrServer,
    prompts: Annotated[
        str, typer.Option(help="winobias40 (2,680 prompts) or table1 (5,452).")
    ] = "winobias40",
    backgrounds: Annotated[
        int | None, typer.Option(help="Background occupations drawn for each; all by default.")
    ] = None,
    lexicon: Annotated[
        str, typer.Option(help="A lexicon's name or TOML file: the verbalizer's words.")
    ] = "gender-en",
    kinds: Annotated[
        list[str] | None,
        typer.Option(help="Kinds of its words: pronoun, person (both by default), kinship ..."),
    ] = None,
    verbalizer: Annotated[
        str,
        typer.Option(help="lexicon; or prevalence: words of the model's own output as well."),
    ] = "lexicon",
    form: Annotated[
        str, typer.Option(help="How prompts are put: auto, blank, paper, natural, chat.")
    ] = "auto",
    separator: Annotated[
        str, typer.Option(help="Before the base: native, or as_paper ([SEP], <s>).")
    ] = "native",
    parts: Annotated[bool, typer.Option(help="Ask the 2 x 2 x 2 counterexamples as well.")] = True,
    edit: Annotated[str | None, typer.Option(help="A folder that save_edits wrote.")] = None,
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 0,
    draws: Draws = 1999,
    level: Level = 0.95,
    output: Output = None,
    chart: Chart = None,
    json: Json = False,
    store: Annotated[
        str | None, typer.Option(help="A folder that keeps what the model said.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Test what knowledge before a prompt does to whom a model puts into it.

    Zhang 2023: a base and nine kinds of knowledge, each with interval, corrected p and verdict.
    """
    from levelhead.explain.prompting.knowledge import knowledge as explained
    from levelhead.measures.cloze.cloze import Cloze
    from levelhead.measures.cloze.prompts_base import KINDS

    cloze = Cloze(
        prompts=prompts,  # type: ignore[arg-type]  # Cloze checks these
        backgrounds=backgrounds,
        lexicon=lexicon,
        kinds=tuple(kinds or KINDS),
        form=form,  # type: ignore[arg-type]
        separator=separator,  # type: ignore[arg-type]
    )
    inference = Inference(seed=seed, resamples=draws, level=level)
    lm = opened(
        model,
        revision=revision,
        edit=edit,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with progress("prompts") as on_event:
        found = explained(
            lm,
            cloze,
            verbalizer=verbalizer,  # type: ignore[arg-type]
            parts=parts,
            inference=inference,
            context=RunContext(store=store, threads=threads, progress=on_event),
        )
    told(found, lambda: _show(found), output=output, json=json, chart=chart)


def _show(found: Knowledge) -> None:
    """Tables: the base, a row for each kind of knowledge, its parts, and the paper's claims."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    first, second = found.groups
    base = [
        (f"base margin, {first} over {second}", found.base),
        (f"preference for {first} everywhere", found.preference),
        ("probability that the words cover", found.mass),
    ]
    if found.labour is not None:
        base.append((f"slope on labour shares: {found.labour.verdict}", found.labour.slope))
    _table(console, "without knowledge", base)
    kinds = [
        (f"{one.kind}: {one.verdict}, {one.flipped.value:.0%} of occupations flip", one.change)
        for one in found.contrasts
    ]
    _table(console, "change of the margin by knowledge (p by Holm)", kinds)
    if found.factorial is not None:
        effects = [(one.name, one) for one in found.factorial.effects]
        _table(console, "what a counterexample owes to", effects)
    claims = [(f"{one.holds}: {one.claim}", one.number) for one in found.findings]
    _table(console, "what the paper says", claims)
    told = f"{found.n} prompts of {found.occupations} occupations, {len(found.dropped)} dropped"
    for note in (told, *found.notes):
        console.print(Text(note), soft_wrap=True)


def _table(console: Console, title: str, rows: list[tuple[str, Estimate]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (title, "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in (title, "interval") else "right")
    for name, estimate in rows:
        table.add_row(name, *cells(estimate))
    console.print(table)
    console.print()
