"""`levelhead finetune MODEL --task TASK -o FOLDER`: train a classifier and score it on dev."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    AllowPickle,
    DryRun,
    LearningRate,
    Model,
    Quiet,
    Revision,
    TrainedFolder,
    TrainingBatchSize,
    TrainingSeed,
    TrainingThreads,
)
from levelhead.cli.shared.progress import show_progress, show_steps
from levelhead.core.run_context import RunContext

if TYPE_CHECKING:
    from levelhead.core.results import Measurement


def finetune_command(
    model: Model,
    task: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Task of the classifier: nli, mnli, rte, mrpc, cola, stsb, wnli, sst2, qnli or "
            "qqp.",
        ),
    ],
    output: TrainedFolder,
    seed: TrainingSeed = 0,
    epochs: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.TRAINING,
            help="Number of training epochs; depends on the task by default.",
        ),
    ] = None,
    learning_rate: LearningRate = 1e-4,
    batch_size: TrainingBatchSize = 32,
    dropout: Annotated[
        bool,
        typer.Option(
            rich_help_panel=Panel.TRAINING,
            help="Use the model's dropout in training; training without it is a quarter faster.",
        ),
    ] = True,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            "--max-length",
            metavar="N",
            rich_help_panel=Panel.TRAINING,
            help="Maximum number of tokens of a text; longer texts are truncated.",
        ),
    ] = 128,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.DATA,
            help="File of training texts: .csv, .tsv or .jsonl with GLUE's columns; the task's "
            "training part by default.",
        ),
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.DATA,
            help="File of texts to evaluate on, in the same format; the task's dev part by "
            "default.",
        ),
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=Panel.MODEL,
            help="Folder of an edit that masks heads, which stay masked in training.",
        ),
    ] = None,
    threads: TrainingThreads = 2,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
    quiet: Quiet = False,
    dry_run: DryRun = False,
) -> None:
    """Fine-tune a pretrained encoder as a classifier of a task.

    All weights are trained. A training that was killed resumes where it stopped and ends with the
    same weights. The last lines are the task's metric on its dev part.
    """
    from levelhead.data.tasks import count_train_overlap, get_task_spec
    from levelhead.measures.utility.glue_task import GlueTask, finetune_on_task
    from levelhead.models.edits.files import load_edits
    from levelhead.models.loading.load import load
    from levelhead.models.training.configs import FinetuneConfig

    row = get_task_spec(task)
    config = FinetuneConfig(
        epochs=row.epochs if epochs is None else epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_tokens=max_tokens,
        dropout=dropout,
        seed=seed,
        threads=threads,
    )
    measure = GlueTask(task=task, file=dev)
    # Before the training: missing data end the command here. Texts in both parts make the dev
    # metric too good, so they are counted and reported.
    n_overlapping = count_train_overlap(row.examples("train", train), measure.items)
    lm = load(model, revision=revision, allow_pickle=allow_pickle)
    if dry_run:
        from levelhead.study.cost import estimate_finetuning_cost

        typer.echo(str(estimate_finetuning_cost(lm, task, config, train=train, dev=dev)))
        return
    with show_steps(quiet=quiet) as on_step:
        folder = finetune_on_task(
            lm,
            task,
            output,
            train=train,
            config=config,
            edits=load_edits(edit) if edit else (),
            progress=lambda done, total: on_step("training", done, total),
        )
    # Evaluated from the folder: what is measured is what was written, not what is in memory.
    with show_progress("queries", quiet=quiet) as on_event:
        measurement = measure(load(folder), context=RunContext(threads=threads, progress=on_event))
    _print_summary(output, measurement, row.metrics[0], n_overlapping)


def _print_summary(output: str, measurement: Measurement, metric: str, n_overlapping: int) -> None:
    from levelhead.models.training.finetune import read_finetune_record

    metadata = read_finetune_record(output)
    typer.echo(f"{output}: {metadata['base']} fine-tuned on {metadata['metadata']['task']}")
    cut_text = f", {metadata['cut']:,} of them truncated" if metadata["cut"] else ""
    config = metadata["tuning"]
    typer.echo(
        f"  {metadata['rows']:,} texts{cut_text}; {config['epochs']:g} epochs, "
        f"{config['batch_size']} texts per step, learning rate "
        f"{config['learning_rate']:g}, seed {config['seed']}"
        f"{'' if config['dropout'] else ', no dropout'}"
    )
    if metadata["masked"]:
        typer.echo(f"  masked while training: {', '.join(metadata['masked'])}")
    dropped = f", {len(measurement.dropped)} dropped" if measurement.dropped else ""
    typer.echo(
        f"  dev: {metric} {measurement.value:.4g} {measurement.interval} "
        f"({measurement.unit}; n {measurement.n}{dropped})"
    )
    for extra in measurement.extras:
        typer.echo(f"  dev: {extra}")
    # Three examples show the kind of problem; the full list is in the measurement.
    for item, reason in measurement.dropped[:3]:
        typer.echo(f"  dropped: {item} ({reason})")
    for note in measurement.notes:
        typer.echo(f"  {note}")
    if n_overlapping:
        typer.echo(f"  {n_overlapping} of the dev texts are also in the training part")
