"""`levelhead mitigate`: mask or scale heads (an edit file), or train a model further."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.mitigate.project import project_command
from levelhead.cli.mitigate.prompt import prompt_command
from levelhead.cli.mitigate.select_edit import select_edit_command
from levelhead.cli.shared.options import AllowPickle, Model, Revision
from levelhead.cli.shared.progress import show_steps

if TYPE_CHECKING:
    from levelhead.mitigate.training.cda_and_dropout import TrainedVariant

app = typer.Typer(
    help="Mitigate bias: edit heads or subspaces, train, or prompt.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("project")(project_command)
app.command("prompt")(prompt_command)
app.command("select")(select_edit_command)

Corpus = Annotated[
    list[str],
    typer.Option(
        help="Name of a data set, file, glob or URL (.txt, .tsv, .jsonl, .parquet); may be given "
        "several times."
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", help="New folder, or one of a training to resume.")
]
Steps = Annotated[int, typer.Option(help="Number of training steps.")]
Batch = Annotated[int, typer.Option(help="Number of texts in a training step.")]
Rate = Annotated[float, typer.Option(help="Peak learning rate.")]
MaxTokens = Annotated[
    int, typer.Option(help="Maximum number of tokens; longer texts are left out.")
]
Seed = Annotated[
    int, typer.Option(help="Random seed of the order of texts, the masked tokens and the dropout.")
]
# Sums of floats depend on how threads share them, so the number of threads is part of a recipe.
Threads = Annotated[
    int, typer.Option(help="Number of threads; another number may change the last bits.")
]


Heads = Annotated[str, typer.Argument(help="Head map that `levelhead locate -o` wrote.")]
Top = Annotated[int | None, typer.Option(help="Number of heads with the largest scores.")]
Bottom = Annotated[int | None, typer.Option(help="Number of heads with the most negative scores.")]
Positive = Annotated[
    bool, typer.Option("--positive", help="Select all heads with a positive score.")
]
README = "README.md"
EditFolder = Annotated[str, typer.Option("--output", "-o", help="New folder for the edit.")]


@app.command("mask")
def mask_command(
    heads: Heads,
    output: EditFolder,
    top: Top = None,
    bottom: Bottom = None,
    positive: Positive = False,
) -> None:
    """Write an edit that masks heads of a map (Targeted-Debias).

    Measure it with `levelhead measure MODEL -m NAME --edit FOLDER --against base`. `levelhead
    export` writes plain weights of it. Exit 2 if the map's sign is undetermined. Warns unless all
    chosen heads are confirmed by ablation on held-out items.
    """
    _write_head_edit(heads, output, 0.0, top=top, bottom=bottom, positive=positive)


@app.command("scale")
def scale_command(
    heads: Heads,
    output: EditFolder,
    factor: Annotated[
        float, typer.Option(help="Factor of the heads' outputs: 0 masks, 1 changes nothing.")
    ],
    top: Top = None,
    bottom: Bottom = None,
    positive: Positive = False,
) -> None:
    """Write an edit that scales heads of a map.

    A factor above 1 amplifies, 2 doubles. Everything else is as in `mask`.
    """
    _write_head_edit(heads, output, factor, top=top, bottom=bottom, positive=positive)


def _write_head_edit(
    heads: str,
    output: str,
    factor: float,
    *,
    top: int | None,
    bottom: int | None,
    positive: bool,
) -> None:
    from pathlib import Path

    from levelhead.cli.explain.explain import read_head_map, split_by_sign
    from levelhead.core.errors import LevelheadError
    from levelhead.core.files import write_atomic
    from levelhead.locate.head_map import head_label
    from levelhead.mitigate.heads.mask import confirm_heads, scale_heads
    from levelhead.models.edits.files import save_edits
    from levelhead.models.export.save import prepare_new_folder

    if sum([top is not None, bottom is not None, positive]) != 1:
        raise typer.BadParameter("say which heads: --top K, --bottom K or --positive")
    loaded_map = read_head_map(heads)
    # Without a known sign nobody can say whether masking lowers or raises the bias: exit 2.
    sites, _ = split_by_sign(loaded_map)
    if top is not None:
        sites = loaded_map.top(top)
    elif bottom is not None:
        sites = loaded_map.bottom(bottom)
    if not sites:
        raise LevelheadError(
            "no head of the map fits that choice",
            hint="choose other heads, or leave the model unchanged",
        )
    prepare_new_folder(Path(output))
    confirmation = confirm_heads(loaded_map, sites)
    head_names = ", ".join(map(head_label, sites))
    model = loaded_map.provenance.model
    # The edit comes last: a folder without it is never read as one.
    page = _render_readme(
        f"{len(sites)} heads of {model} times {factor:g}", head_names, str(confirmation)
    )
    write_atomic(str(Path(output, README)), page.encode())
    save_edits([scale_heads(sites, factor)], output)
    # Scores only rank heads; the effect of ablation on held-out items is the evidence
    # (decision 0009). Hence a warning without it, but no refusal.
    if confirmation.is_complete:
        typer.echo(f"{confirmation}")
    else:
        typer.echo(f"levelhead: warning: {confirmation}", err=True)
    typer.echo(f"{output}: {len(sites)} heads of {loaded_map.provenance.model} times {factor:g}")
    typer.echo(f"  <layer>-<head>, counted from 1: {head_names}")
    typer.echo(
        "  its bias reduction and utility cost are not known until measured: levelhead measure "
        "--edit"
    )


def _render_readme(title: str, head_names: str, confirmation: str) -> str:
    """Render the README of an edit of heads."""
    return (
        f"# {title}\n\n"
        f"<layer>-<head>, counted from 1: {head_names}.\n\n"
        f"**{confirmation}.**\n\n"
        "Its bias reduction and utility cost are not known until measured: levelhead measure "
        "--edit.\n"
    )


@app.command("cda")
def cda_command(
    model: Model,
    corpus: Corpus,
    output: Output,
    lexicon: Annotated[str, typer.Option(help="Name or TOML file of a lexicon.")] = "gender-en",
    steps: Steps = 200,
    batch_size: Batch = 32,
    learning_rate: Rate = 5e-5,
    max_tokens: MaxTokens = 64,
    seed: Seed = 0,
    threads: Threads = 2,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Train a model further on texts and their counterfactuals.

    The texts name a group; their counterfactuals have its words exchanged (counterfactual data
    augmentation). A training that was killed resumes where it stopped and ends with the same
    weights.
    """
    from levelhead.mitigate.training import cda_and_dropout
    from levelhead.models.loading.load import load
    from levelhead.models.training.configs import ContinuedPretrainingConfig

    config = ContinuedPretrainingConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_tokens=max_tokens,
        seed=seed,
        threads=threads,
    )
    lm = load(model, revision=revision, allow_pickle=allow_pickle)
    with show_steps() as on_step:
        variant = cda_and_dropout.cda(
            lm,
            corpus,
            output,
            lexicon=lexicon,
            config=config,
            progress=lambda done, total: on_step("training", done, total),
        )
    _print_summary(variant, output)


@app.command("dropout")
def dropout_command(
    model: Model,
    corpus: Corpus,
    output: Output,
    # The rates of Webster et al. (2020) for BERT.
    hidden: Annotated[float, typer.Option(help="Dropout rate of hidden states.")] = 0.20,
    attention: Annotated[float, typer.Option(help="Dropout rate of attention weights.")] = 0.15,
    steps: Steps = 200,
    batch_size: Batch = 32,
    learning_rate: Rate = 5e-5,
    max_tokens: MaxTokens = 64,
    seed: Seed = 0,
    threads: Threads = 2,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Train a model further with more dropout.

    The trained variant has the dropout of the base again. A training that was killed resumes where
    it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training import cda_and_dropout
    from levelhead.models.loading.load import load
    from levelhead.models.training.configs import ContinuedPretrainingConfig

    config = ContinuedPretrainingConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_tokens=max_tokens,
        seed=seed,
        threads=threads,
    )
    lm = load(model, revision=revision, allow_pickle=allow_pickle)
    with show_steps() as on_step:
        variant = cda_and_dropout.dropout(
            lm,
            corpus,
            output,
            hidden=hidden,
            attention=attention,
            config=config,
            progress=lambda done, total: on_step("training", done, total),
        )
    _print_summary(variant, output)


def _print_summary(variant: TrainedVariant, output: str) -> None:
    twins = f" and {variant.twins:,} counterfactuals" if variant.twins else ""
    typer.echo(
        f"{output}: a {variant.method} variant of {variant.base}, SHA-256 {variant.model_hash[:16]}"
    )
    # Too few texts for the steps are shown repeatedly: rows per text say how often.
    typer.echo(
        f"  trained on {variant.texts:,} texts{twins} in {variant.rows_seen:,} rows, from "
        f"{variant.sentences_scanned:,} of {variant.sentences:,} sentences"
    )
    for reason, count in variant.left_out.items():
        typer.echo(f"  left out: {count:,} ({reason})")
    typer.echo("  its bias and utility cost are not known until measured: levelhead measure")
