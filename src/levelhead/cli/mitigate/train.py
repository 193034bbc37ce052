"""`levelhead mitigate cda` and `dropout`: train a model further; and what all trainings share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    AllowPickle,
    LearningRate,
    LexiconName,
    Model,
    Quiet,
    Revision,
    TrainedFolder,
    TrainingBatchSize,
    TrainingSeed,
    TrainingThreads,
)
from levelhead.cli.shared.progress import show_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.mitigate.training.variants import TrainedVariant

Corpus = Annotated[
    list[str],
    typer.Option(
        metavar="PATH",
        rich_help_panel=Panel.DATA,
        help="Training texts: name of a data set, file, glob or URL (.txt, .tsv, .jsonl, "
        ".parquet). Repeat for more.",
    ),
]
Steps = Annotated[
    int,
    typer.Option(metavar="N", rich_help_panel=Panel.TRAINING, help="Number of training steps."),
]
MaxTokens = Annotated[
    int,
    typer.Option(
        "--max-tokens",
        "--max-length",
        metavar="N",
        rich_help_panel=Panel.TRAINING,
        help="Maximum number of tokens of a text; longer texts are left out.",
    ),
]
Placebo = Annotated[
    bool,
    typer.Option(
        "--placebo",
        rich_help_panel=Panel.TRAINING,
        help="Train the method's placebo: the same without its knowledge of groups.",
    ),
]


class TrainingOptions(NamedTuple):
    """Options of the training."""

    steps: int
    batch_size: int
    learning_rate: float
    max_tokens: int
    seed: int
    threads: int


class ModelOptions(NamedTuple):
    """Options of the base."""

    model: str
    revision: str | None
    allow_pickle: bool


def cda_command(
    model: Model,
    corpus: Corpus,
    output: TrainedFolder,
    lexicon: LexiconName = "gender-en",
    steps: Steps = 200,
    batch_size: TrainingBatchSize = 32,
    learning_rate: LearningRate = 5e-5,
    max_tokens: MaxTokens = 64,
    seed: TrainingSeed = 0,
    threads: TrainingThreads = 2,
    placebo: Placebo = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on texts and their counterfactuals.

    The texts name a group; their counterfactuals have its words exchanged (counterfactual data
    augmentation). A training that was killed resumes where it stopped and ends with the same
    weights.
    """
    from levelhead.mitigate.training.cda_and_dropout import cda

    run_training(
        partial(cda, lexicon=lexicon),
        TrainingOptions(steps, batch_size, learning_rate, max_tokens, seed, threads),
        ModelOptions(model, revision, allow_pickle),
        corpus,
        output,
        placebo=placebo,
        quiet=quiet,
    )


def dropout_command(
    model: Model,
    corpus: Corpus,
    output: TrainedFolder,
    # The rates of Webster et al. (2020) for BERT.
    hidden: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=Panel.TRAINING,
            help="Dropout rate of hidden states.",
        ),
    ] = 0.20,
    attention: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=Panel.TRAINING,
            help="Dropout rate of attention weights.",
        ),
    ] = 0.15,
    steps: Steps = 200,
    batch_size: TrainingBatchSize = 32,
    learning_rate: LearningRate = 5e-5,
    max_tokens: MaxTokens = 64,
    seed: TrainingSeed = 0,
    threads: TrainingThreads = 2,
    placebo: Placebo = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    quiet: Quiet = False,
) -> None:
    """Train a model further with more dropout.

    The trained variant has the dropout of the base again. A training that was killed resumes where
    it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training.cda_and_dropout import dropout

    run_training(
        partial(dropout, hidden=hidden, attention=attention),
        TrainingOptions(steps, batch_size, learning_rate, max_tokens, seed, threads),
        ModelOptions(model, revision, allow_pickle),
        corpus,
        output,
        placebo=placebo,
        quiet=quiet,
    )


def run_training(
    train: Callable[..., TrainedVariant],
    training: TrainingOptions,
    base: ModelOptions,
    corpus: list[str],
    output: str,
    *,
    placebo: bool,
    quiet: bool,
) -> None:
    """Train a model and print what it was trained on.

    Args:
        train: Training with the options of its method.
        training: Options of the training.
        base: Options of the base.
        corpus: Training texts.
        output: New folder.
        placebo: Whether to train the placebo.
        quiet: Whether to show no progress.
    """
    from levelhead.models.loading.load import load
    from levelhead.models.training.configs import ContinuedPretrainingConfig

    config = ContinuedPretrainingConfig(**training._asdict())
    lm = load(base.model, revision=base.revision, allow_pickle=base.allow_pickle)
    with show_steps(quiet=quiet) as on_step:
        variant = train(
            lm,
            corpus,
            output,
            config=config,
            placebo=placebo,
            progress=lambda done, total: on_step("training", done, total),
        )
    _print_summary(variant, output)


def _print_summary(variant: TrainedVariant, output: str) -> None:
    method = f"{variant.method} placebo" if variant.placebo else variant.method
    twins = f" and {variant.twins:,} counterfactuals" if variant.twins else ""
    typer.echo(f"{output}: a {method} variant of {variant.base}, SHA-256 {variant.model_hash[:16]}")
    # Too few texts for the steps are shown repeatedly: rows per text say how often.
    typer.echo(
        f"  trained on {variant.texts:,} texts{twins} in {variant.rows_seen:,} rows, from "
        f"{variant.sentences_scanned:,} of {variant.sentences:,} sentences"
    )
    for reason, count in variant.left_out.items():
        typer.echo(f"  left out: {count:,} ({reason})")
    typer.echo("  its bias and utility cost are not known until measured: levelhead measure")
