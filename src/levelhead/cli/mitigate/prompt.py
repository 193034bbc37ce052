"""`levelhead mitigate prompt MODEL`: a prefix of counterexamples that is measured to help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.measure import cells
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWith
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Draws,
    Dtype,
    Json,
    Level,
    Model,
    Output,
    Revision,
)
from levelhead.cli.shared.output import told
from levelhead.cli.shared.progress import progress
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from levelhead.mitigate.prompting.choose_prefix import PromptChoice


def prompt(
    model: Model,
    output: Output = None,
    prompts: Annotated[
        str, typer.Option(help="Whose occupations: winobias40 or table1.")
    ] = "winobias40",
    form: Annotated[
        str, typer.Option(help="How prompts are put: auto, blank, paper, natural, chat.")
    ] = "auto",
    lexicon: Annotated[
        str, typer.Option(help="A lexicon's name or TOML file: the verbalizer's words.")
    ] = "gender-en",
    sizes: Annotated[
        list[int] | None, typer.Option(help="Sentences in a prefix; 2 and 4 by default.")
    ] = None,
    each: Annotated[int, typer.Option(help="Candidates of each kind and size.")] = 3,
    limit: Annotated[
        float,
        typer.Option(
            help="What a candidate may take off plain sentences beyond as many unrelated ones, in "
            "log-probability a token."
        ),
    ] = 0.1,
    samples: Annotated[
        int, typer.Option(help="Continuations of each held-out occupation; 0: none.")
    ] = 10,
    seed: Annotated[int, typer.Option(help="Of the halves, candidates and resamples.")] = 0,
    draws: Draws = 1999,
    level: Level = 0.95,
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
    """Choose counterexamples to put before a prompt, and report what they do elsewhere.

    Chosen on half of the occupations, reported once on the others. Exit 2 if nothing is
    recommended.
    """
    from levelhead.measures.cloze.cloze import Cloze
    from levelhead.mitigate.prompting.choose_prefix import prompt as choose
    from levelhead.models.loading.load import load

    cloze = Cloze(form=form, lexicon=lexicon)  # type: ignore[arg-type]  # Cloze checks it
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with progress("prompts") as on_event:
        found = choose(
            lm,
            prompts,  # type: ignore[arg-type]
            cloze=cloze,
            sizes=tuple(sizes or (2, 4)),
            each=each,
            limit=limit,
            samples=samples,
            inference=Inference(seed=seed, resamples=draws, level=level),
            context=RunContext(store=store, threads=threads, progress=on_event),
        )
    told(found, lambda: _show(found), output=output, json=json)
    if not found.recommended:
        raise ExitWith(INCONCLUSIVE)


def _show(found: PromptChoice) -> None:
    """The prefix, what it does where it was not chosen, and what it costs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    told = "recommended" if found.recommended else "NOT recommended"
    console.print(Text(f"{told}: {found.why}"), soft_wrap=True)
    console.print(Text(f"prefix ({found.name}): {found.prefix}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    title = f"{found.held} held-out occupations"
    for name in (title, "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in (title, "interval") else "right")
    rows = [
        ("margin without a prefix", found.base),
        ("margin with it", found.margin),
        ("gain towards parity", found.gain),
        ("gain by as many unrelated sentences", found.control),
        ("gain beyond that", found.net),
        ("gain in another sentence", found.elsewhere),
        ("gain in continuations", found.sampled),
        ("loss of plain sentences, log-probability a token", found.loss),
        ("loss beyond that by unrelated sentences", found.loss_beyond),
    ]
    for name, one in rows:
        if one is not None:
            table.add_row(name, *cells(one))
    console.print(table)
    viable = sum(one.viable for one in found.candidates)
    notes = [f"chosen among {len(found.candidates)} prefixes ({viable} cheap enough) on "
             f"{found.train} other occupations"]  # fmt: skip
    for note in (*notes, *found.notes):
        console.print(Text(note), soft_wrap=True)
