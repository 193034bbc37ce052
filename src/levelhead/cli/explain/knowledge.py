"""`levelhead explain knowledge MODEL`: effect of counterexamples in a prompt (Zhang 2023)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.measurement_tables import format_cells
from levelhead.cli.shared.model_options import response_store
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Chart,
    Device,
    Dtype,
    Edit,
    Json,
    Level,
    LexiconName,
    ModelOrServer,
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
from levelhead.models.loading.open_model import open_model

if TYPE_CHECKING:
    from rich.console import Console

    from levelhead.core.results import Estimate
    from levelhead.explain.prompting.knowledge import KnowledgeResult


def knowledge_command(
    model: ModelOrServer,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Set of prompts: winobias40 (2,680 prompts) or table1 (5,452).",
        ),
    ] = "winobias40",
    backgrounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.DATA,
            help="Number of background occupations sampled for each occupation; all by default.",
        ),
    ] = None,
    lexicon: LexiconName = "gender-en",
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Kind of the lexicon's words that count as answers: pronoun, person (both by "
            "default), kinship or another. Repeat for more.",
        ),
    ] = None,
    verbalizer: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MEASURE,
            help="Words that count as answers: lexicon, or prevalence (words of the model's "
            "output, too).",
        ),
    ] = "lexicon",
    form: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MEASURE,
            help="Form of the prompts: auto, blank, paper, natural or chat.",
        ),
    ] = "auto",
    separator: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MEASURE,
            help="Separator between prefix and prompt: native, or as_paper ([SEP], <s>).",
        ),
    ] = "native",
    with_factorial: Annotated[
        bool,
        typer.Option(
            "--factorial/--no-factorial",
            rich_help_panel=Panel.MEASURE,
            help="Query the 2 x 2 x 2 combinations of parts of a counterexample, too.",
        ),
    ] = True,
    edit: Edit = None,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    level: Level = 0.95,
    output: Output = None,
    chart: Chart = None,
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
    """Test how a counterexample prefix changes answers.

    Compares which group a model puts into a prompt with and without a prefix, for nine kinds of
    prefix (Zhang 2023); each difference has an interval, a corrected p-value and a verdict.
    """
    from levelhead.data.prompts.counteracts import OccupationSet
    from levelhead.explain.prompting.knowledge import Verbalizer, knowledge
    from levelhead.measures.cloze.cloze import Cloze
    from levelhead.measures.cloze.formatting import Form, Separator
    from levelhead.measures.cloze.prompt_measure import KINDS

    cloze = Cloze(
        prompts=require_option("set of prompts", prompts, get_args(OccupationSet)),
        backgrounds=backgrounds,
        lexicon=lexicon,
        kinds=tuple(kinds or KINDS),
        form=require_option("form", form, get_args(Form)),
        separator=require_option("separator", separator, get_args(Separator)),
    )
    inference = Inference(seed=seed, resamples=resamples, level=level)
    lm = open_model(
        model,
        revision=revision,
        edit=edit,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with show_progress("prompts", quiet=quiet) as on_event:
        result = knowledge(
            lm,
            cloze,
            verbalizer=require_option("verbalizer", verbalizer, get_args(Verbalizer)),
            with_factorial=with_factorial,
            inference=inference,
            context=RunContext(
                store=response_store(store, model), threads=threads, progress=on_event
            ),
        )
    write_result(result, lambda: _show(result), output=output, json=json, chart=chart)


def _show(result: KnowledgeResult) -> None:
    """Print tables: the base, a row for each kind of knowledge, its parts, the paper's claims."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    first, second = result.groups
    base = [
        (f"base margin, {first} over {second}", result.base),
        (f"preference for {first} everywhere", result.preference),
        # A margin of words with little probability says little about what the model would write.
        ("probability that the words cover", result.mass),
    ]
    if result.labour is not None:
        base.append((f"slope on labour shares: {result.labour.verdict}", result.labour.slope))
    _table(console, "without a prefix", base)
    kinds = [
        (
            f"{contrast.kind}: {contrast.verdict}, "
            f"{contrast.share_flipped.value:.0%} of occupations flip",
            contrast.change,
        )
        for contrast in result.contrasts
    ]
    # Nine kinds are tested at once: Holm keeps their familywise error rate.
    _table(console, "change of the margin by a prefix (p by Holm)", kinds)
    if result.factorial is not None:
        effects = [(effect.name, effect) for effect in result.factorial.effects]
        _table(console, "effect of each part of a counterexample", effects)
    claims = [(f"{finding.holds}: {finding.claim}", finding.estimate) for finding in result.claims]
    _table(console, "claims of the paper", claims)
    summary = (
        f"{result.n} prompts of {result.occupations} occupations, {len(result.dropped)} dropped"
    )
    for note in (summary, *result.notes):
        console.print(Text(note), soft_wrap=True)


def _table(console: Console, title: str, rows: list[tuple[str, Estimate]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (title, "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in (title, "interval") else "right")
    for name, estimate in rows:
        table.add_row(name, *format_cells(estimate))
    console.print(table)
    console.print()
