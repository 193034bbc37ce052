"""`levelhead mitigate context-debias`, `auto-debias`, `dpo`, `npo`: train with another loss."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from levelhead.cli.mitigate.train import (
    Corpus,
    MaxTokens,
    ModelOptions,
    Placebo,
    Steps,
    TrainingOptions,
    run_training,
)
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

Beta = Annotated[
    float,
    typer.Option(
        metavar="BETA",
        rich_help_panel=Panel.TRAINING,
        help="How far the model may go from the base: a smaller beta goes further.",
    ),
]
Rank = Annotated[
    int,
    typer.Option(metavar="N", rich_help_panel=Panel.TRAINING, help="Rank of the adapter."),
]


def context_debias_command(
    model: Model,
    corpus: Corpus,
    output: TrainedFolder,
    lexicon: LexiconName = "gender-en",
    alpha: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=Panel.TRAINING,
            help="Weight of orthogonality; the rest is that of the original states.",
        ),
    ] = 0.2,
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
    """Train with a loss of orthogonality (Context-Debias).

    States of stereotyped words become orthogonal to those of group words, whose own states are held
    (Kaneko and Bollegala 2021). A row of a batch is a sentence of a stereotyped word and one of a
    group's word.
    A training that was killed resumes where it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training.context_debias import ContextDebiasSettings, context_debias

    settings = ContextDebiasSettings(lexicon, alpha=alpha)
    run_training(
        partial(context_debias, settings=settings),
        TrainingOptions(steps, batch_size, learning_rate, max_tokens, seed, threads),
        ModelOptions(model, revision, allow_pickle),
        corpus,
        output,
        placebo=placebo,
        quiet=quiet,
    )


def auto_debias_command(
    model: Model,
    corpus: Corpus,
    output: TrainedFolder,
    lexicon: LexiconName = "gender-en",
    candidates: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.TRAINING,
            help="Number of frequent words of the corpus that prompts are made of.",
        ),
    ] = 100,
    beam: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.TRAINING,
            help="Number of prompts that each round of the search keeps.",
        ),
    ] = 10,
    length: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.TRAINING,
            help="Largest number of words of a prompt.",
        ),
    ] = 5,
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
    """Train blanks after biased prompts to be equal.

    Auto-Debias of masked models (Guo et al. 2022, who search with 5000 candidates and a beam of
    100).
    A training that was killed resumes where it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training.auto_debias import AutoDebiasSettings, auto_debias

    settings = AutoDebiasSettings(lexicon, candidates=candidates, beam=beam, length=length)
    run_training(
        partial(auto_debias, settings=settings),
        TrainingOptions(steps, batch_size, learning_rate, max_tokens, seed, threads),
        ModelOptions(model, revision, allow_pickle),
        corpus,
        output,
        placebo=placebo,
        quiet=quiet,
    )


def dpo_command(
    model: Model,
    corpus: Corpus,
    output: TrainedFolder,
    lexicon: LexiconName = "gender-en",
    beta: Beta = 0.1,
    rank: Rank = 8,
    steps: Steps = 200,
    batch_size: TrainingBatchSize = 32,
    learning_rate: LearningRate = 5e-4,
    max_tokens: MaxTokens = 64,
    seed: TrainingSeed = 0,
    threads: TrainingThreads = 2,
    placebo: Placebo = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    quiet: Quiet = False,
) -> None:
    """Train a causal model to prefer counterfactuals.

    DPO (Rafailov et al. 2023) on stereotyped texts and their counterfactuals. Only a low-rank
    adapter is trained; the folder has the merged weights, and the adapter. Needs the extra "lora".
    A training that was killed resumes where it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training.preferences import PreferenceSettings, dpo
    from levelhead.models.training.configs import LowRankConfig

    settings = PreferenceSettings(lexicon, beta=beta, adapter=LowRankConfig(rank, 2 * rank))
    run_training(
        partial(dpo, settings=settings),
        TrainingOptions(steps, batch_size, learning_rate, max_tokens, seed, threads),
        ModelOptions(model, revision, allow_pickle),
        corpus,
        output,
        placebo=placebo,
        quiet=quiet,
    )


def npo_command(
    model: Model,
    corpus: Corpus,
    output: TrainedFolder,
    lexicon: LexiconName = "gender-en",
    beta: Beta = 0.1,
    rank: Rank = 8,
    retain: Annotated[
        float,
        typer.Option(
            metavar="WEIGHT",
            rich_help_panel=Panel.TRAINING,
            help="Weight of the counterfactuals' likelihood.",
        ),
    ] = 1.0,
    steps: Steps = 200,
    batch_size: TrainingBatchSize = 32,
    learning_rate: LearningRate = 5e-4,
    max_tokens: MaxTokens = 64,
    seed: TrainingSeed = 0,
    threads: TrainingThreads = 2,
    placebo: Placebo = False,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    quiet: Quiet = False,
) -> None:
    """Train a causal model to forget stereotyped texts.

    NPO (Zhang et al. 2024), which retains their counterfactuals. Only a low-rank adapter is
    trained; the folder has the merged weights, and the adapter. Needs the extra "lora". A training
    that was killed resumes where it stopped and ends with the same weights.
    """
    from levelhead.mitigate.training.preferences import PreferenceSettings, npo
    from levelhead.models.training.configs import LowRankConfig

    settings = PreferenceSettings(
        lexicon, beta=beta, retain=retain, adapter=LowRankConfig(rank, 2 * rank)
    )
    run_training(
        partial(npo, settings=settings),
        TrainingOptions(steps, batch_size, learning_rate, max_tokens, seed, threads),
        ModelOptions(model, revision, allow_pickle),
        corpus,
        output,
        placebo=placebo,
        quiet=quiet,
    )
