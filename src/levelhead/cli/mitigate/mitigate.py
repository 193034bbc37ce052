"""`levelhead mitigate`: heads masked or scaled (an edit file), or a model trained further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.mitigate.project import project
from levelhead.cli.mitigate.prompt import prompt
from levelhead.cli.shared.options import AllowPickle, Model, Revision
from levelhead.cli.shared.progress import steps as steps_told

if TYPE_CHECKING:
    from levelhead.mitigate.training.cda_and_dropout import Child

app = typer.Typer(
    help="Mitigate what was measured; measure again what it bought and what it cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("project")(project)
app.command("prompt")(prompt)

Corpus = Annotated[
    list[str],
    typer.Option(
        help="A data set's name, a file, glob or URL (.txt, .tsv, .jsonl, .parquet); may be given "
        "several times."
    ),
]
Output = Annotated[str, typer.Option("--output", "-o", help="A new folder, or one to go on with.")]
Steps = Annotated[int, typer.Option(help="Steps of training.")]
Batch = Annotated[int, typer.Option(help="Texts in a step.")]
Rate = Annotated[float, typer.Option(help="The highest rate of learning.")]
MaxTokens = Annotated[int, typer.Option(help="Texts with more tokens are left out.")]
Seed = Annotated[int, typer.Option(help="Of the texts' order, the blanks and the dropout.")]
Threads = Annotated[int, typer.Option(help="Threads; another number may move the last bits.")]


Heads = Annotated[str, typer.Argument(help="A head map that `levelhead locate -o` wrote.")]
Top = Annotated[int | None, typer.Option(help="The k heads with the largest scores.")]
Bottom = Annotated[int | None, typer.Option(help="The k heads with the most negative scores.")]
Positive = Annotated[bool, typer.Option("--positive", help="All heads with a positive score.")]
README = "README.md"
EditFolder = Annotated[str, typer.Option("--output", "-o", help="A new folder for the edit.")]


@app.command("mask")
def mask(
    heads: Heads,
    output: EditFolder,
    top: Top = None,
    bottom: Bottom = None,
    positive: Positive = False,
) -> None:
    """Write an edit that masks heads of a map (Targeted-Debias).

    Measure it with `levelhead measure MODEL -m NAME --edit FOLDER --against base`, make plain
    weights of it with `levelhead bake`. Exit 2 if the map's sign is undetermined. Warns unless all
    chosen heads are confirmed by ablation on held-out items.
    """
    _write(heads, output, 0.0, top=top, bottom=bottom, positive=positive)


@app.command("scale")
def scale(
    heads: Heads,
    output: EditFolder,
    factor: Annotated[float, typer.Option(help="0 masks, 1 changes nothing, 2 doubles.")],
    top: Top = None,
    bottom: Bottom = None,
    positive: Positive = False,
) -> None:
    """Write an edit that scales heads of a map: above 1 amplifies. As `mask` in all else."""
    _write(heads, output, factor, top=top, bottom=bottom, positive=positive)


def _write(
    heads: str,
    output: str,
    factor: float,
    *,
    top: int | None,
    bottom: int | None,
    positive: bool,
) -> None:
    from pathlib import Path

    from levelhead.cli.explain.explain import head_map, signs
    from levelhead.core.errors import LevelheadError
    from levelhead.core.files import write_atomic
    from levelhead.locate.head_map import label
    from levelhead.mitigate.heads.mask import confirm_heads, scale
    from levelhead.models.edits.files import save_edits
    from levelhead.models.export.save import new_folder

    if sum([top is not None, bottom is not None, positive]) != 1:
        raise typer.BadParameter("say which heads: --top K, --bottom K or --positive")
    located = head_map(heads)
    sites, _ = signs(located)
    if top is not None:
        sites = located.top(top)
    elif bottom is not None:
        sites = located.bottom(bottom)
    if not sites:
        raise LevelheadError(
            "no head of the map is of that kind", mend="choose others, or leave the model alone"
        )
    new_folder(Path(output))
    confirmation = confirm_heads(located, sites)
    named = ", ".join(map(label, sites))
    model = located.provenance.model
    # The edit comes last: a folder without it is never read as one.
    page = _readme(f"{len(sites)} heads of {model} times {factor:g}", named, str(confirmation))
    write_atomic(str(Path(output, README)), page.encode())
    save_edits([scale(sites, factor)], output)
    if confirmation.is_complete:
        typer.echo(f"{confirmation}")
    else:
        typer.echo(f"levelhead: warning: {confirmation}", err=True)
    typer.echo(f"{output}: {len(sites)} heads of {located.provenance.model} times {factor:g}")
    typer.echo(f"  <layer>-<head>, counted from 1: {named}")
    typer.echo("  what it buys and costs is not known until measured: levelhead measure --edit")


def _readme(title: str, named: str, confirmation: str) -> str:
    """The page that goes along with an edit of heads."""
    return (
        f"# {title}\n\n"
        f"<layer>-<head>, counted from 1: {named}.\n\n"
        f"**{confirmation}.**\n\n"
        "What it buys and costs is not known until measured: levelhead measure --edit.\n"
    )


@app.command("cda")
def cda(
    model: Model,
    corpus: Corpus,
    output: Output,
    lexicon: Annotated[str, typer.Option(help="A lexicon's name or TOML file.")] = "gender-en",
    steps: Steps = 200,
    batch: Batch = 32,
    rate: Rate = 5e-5,
    max_tokens: MaxTokens = 64,
    seed: Seed = 0,
    threads: Threads = 2,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Train a model further on texts that name a group, and on their swapped twins.

    Killed and called again, it goes on where it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training import cda_and_dropout as children
    from levelhead.models.loading.load import load
    from levelhead.models.training.continued_pretraining import Schooling

    schooling = Schooling(
        steps=steps, batch=batch, rate=rate, max_tokens=max_tokens, seed=seed, threads=threads
    )
    lm = load(model, revision=revision, allow_pickle=allow_pickle)
    with steps_told() as tell:
        child = children.cda(
            lm,
            corpus,
            output,
            lexicon=lexicon,
            schooling=schooling,
            progress=lambda done, total: tell("training", done, total),
        )
    _say(child, output)


@app.command("dropout")
def dropout(
    model: Model,
    corpus: Corpus,
    output: Output,
    hidden: Annotated[float, typer.Option(help="Share of hidden states dropped.")] = 0.20,
    attention: Annotated[float, typer.Option(help="Share of attention dropped.")] = 0.15,
    steps: Steps = 200,
    batch: Batch = 32,
    rate: Rate = 5e-5,
    max_tokens: MaxTokens = 64,
    seed: Seed = 0,
    threads: Threads = 2,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Train a model further with more dropout; the child itself has the base's own again.

    Killed and called again, it goes on where it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training import cda_and_dropout as children
    from levelhead.models.loading.load import load
    from levelhead.models.training.continued_pretraining import Schooling

    schooling = Schooling(
        steps=steps, batch=batch, rate=rate, max_tokens=max_tokens, seed=seed, threads=threads
    )
    lm = load(model, revision=revision, allow_pickle=allow_pickle)
    with steps_told() as tell:
        child = children.dropout(
            lm,
            corpus,
            output,
            hidden=hidden,
            attention=attention,
            schooling=schooling,
            progress=lambda done, total: tell("training", done, total),
        )
    _say(child, output)


def _say(child: Child, output: str) -> None:
    twins = f" and {child.twins:,} twins" if child.twins else ""
    typer.echo(f"{output}: a {child.how} child of {child.base}, SHA-256 {child.model_hash[:16]}")
    typer.echo(
        f"  {child.texts:,} texts{twins}, {child.shown:,} rows shown; looked at "
        f"{child.looked_at:,} of {child.sentences:,} sentences"
    )
    for reason, count in child.left_out.items():
        typer.echo(f"  left out: {count:,} ({reason})")
    typer.echo("  its bias and its price are not known until measured: levelhead measure")
