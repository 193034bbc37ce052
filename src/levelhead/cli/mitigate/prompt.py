"""`levelhead mitigate prompt MODEL`: choose a prefix of counterexamples by measurement."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.measurement_tables import format_cells
from levelhead.cli.shared.model_options import response_store
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Json,
    Level,
    LexiconName,
    Model,
    Output,
    Quiet,
    Resamples,
    ResponseStore,
    Revision,
    Seed,
    Threads,
)
from levelhead.cli.shared.output import write_result
from levelhead.cli.shared.progress import show_progress
from levelhead.core.errors import require_option
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from levelhead.mitigate.prompting.choose_prefix import PrefixSelection


def prompt_command(
    model: Model,
    output: Output = None,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Set of prompts with the occupations: winobias40 or table1.",
        ),
    ] = "winobias40",
    form: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MEASURE,
            help="Form of the prompts: auto, blank, paper, natural or chat.",
        ),
    ] = "auto",
    lexicon: LexiconName = "gender-en",
    prefix_sizes: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.EDIT,
            help="Number of sentences in a prefix; 2 and 4 by default. Repeat for more sizes.",
        ),
    ] = None,
    candidates_per_size: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.EDIT,
            help="Number of candidate prefixes of each kind and size.",
        ),
    ] = 3,
    max_loss: Annotated[
        float,
        typer.Option(
            metavar="NATS",
            rich_help_panel=Panel.EDIT,
            help="Maximum utility cost of a prefix: loss on plain sentences in nats per token, "
            "beyond that of as many unrelated sentences.",
        ),
    ] = 0.1,
    samples: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.MEASURE,
            help="Number of continuations sampled for each held-out occupation; 0 for none.",
        ),
    ] = 10,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    level: Level = 0.95,
    json: Json = False,
    quiet: Quiet = False,
    store: ResponseStore = None,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Choose counterexamples to put before a prompt.

    The prefix is chosen on half of the occupations, and its effect is reported once on the other
    half. Exit 2 if no prefix is recommended.
    """
    from levelhead.data.prompts.counteracts import OccupationSet
    from levelhead.measures.cloze.cloze import Cloze
    from levelhead.measures.cloze.formatting import Form
    from levelhead.mitigate.prompting.choose_prefix import select_prompt_prefix
    from levelhead.mitigate.prompting.prefixes import PrefixGrid
    from levelhead.models.loading.load import load

    cloze = Cloze(form=require_option("form", form, get_args(Form)), lexicon=lexicon)
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with show_progress("prompts", quiet=quiet) as on_event:
        selection = select_prompt_prefix(
            lm,
            require_option("set of prompts", prompts, get_args(OccupationSet)),
            cloze=cloze,
            grid=PrefixGrid(tuple(prefix_sizes or (2, 4)), candidates_per_size),
            max_loss=max_loss,
            samples=samples,
            inference=Inference(seed=seed, resamples=resamples, level=level),
            context=RunContext(
                store=response_store(store, model), threads=threads, progress=on_event
            ),
        )
    # The result comes before the exit code: it is written also if no prefix is recommended.
    write_result(selection, lambda: _show(selection), output=output, json=json)
    if not selection.is_recommended:
        raise ExitWithCode(INCONCLUSIVE)


def _show(selection: PrefixSelection) -> None:
    """Print the prefix, its effect on held-out occupations, and its utility cost."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    heading = "recommended" if selection.is_recommended else "NOT recommended"
    console.print(Text(f"{heading}: {selection.reason}"), soft_wrap=True)
    console.print(Text(f"prefix ({selection.name}): {selection.prefix}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    title = f"{selection.n_held_out} held-out occupations"
    for name in (title, "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in (title, "interval") else "right")
    rows = [
        ("margin without a prefix", selection.base),
        ("margin with it", selection.margin),
        ("gain towards parity", selection.gain),
        # Any longer prompt moves a margin: only what exceeds unrelated text is the prefix's own.
        ("gain by as many unrelated sentences", selection.control_gain),
        ("gain beyond that", selection.gain_over_unrelated),
        ("gain in another sentence", selection.gain_in_other_wording),
        ("gain in continuations", selection.gain_in_continuations),
        ("loss on plain sentences, nats per token", selection.loss),
        ("loss beyond that of unrelated sentences", selection.loss_over_unrelated),
    ]
    for name, estimate in rows:
        if estimate is not None:
            table.add_row(name, *format_cells(estimate))
    console.print(table)
    n_viable = sum(candidate.is_viable for candidate in selection.candidates)
    notes = [f"chosen among {len(selection.candidates)} prefixes ({n_viable} within the utility "
             f"cost) on {selection.n_train} other occupations"]  # fmt: skip
    for note in (*notes, *selection.notes):
        console.print(Text(note), soft_wrap=True)
