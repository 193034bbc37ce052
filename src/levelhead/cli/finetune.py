"""`levelhead finetune MODEL --task TASK -o FOLDER`: a classifier, and how well it does its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import AllowPickle, Model, Revision
from levelhead.cli.shared.progress import progress, steps
from levelhead.core.run_context import RunContext

if TYPE_CHECKING:
    from levelhead.core.results import Measurement


def finetune(
    model: Model,
    task: Annotated[
        str,
        typer.Option(help="nli, mnli, rte, mrpc, cola, stsb, wnli, sst2, qnli or qqp."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A new folder, or one to go on with.")
    ],
    seed: Annotated[int, typer.Option(help="Of the new head, the texts' order, the dropout.")] = 0,
    epochs: Annotated[
        float | None, typer.Option(help="How often all texts are shown; by default by the task.")
    ] = None,
    rate: Annotated[float, typer.Option(help="The highest rate of learning.")] = 1e-4,
    batch: Annotated[int, typer.Option(help="Texts in a step.")] = 32,
    dropout: Annotated[
        bool,
        typer.Option(help="The model's own dropout while training; without it: a quarter faster."),
    ] = True,
    longest: Annotated[int, typer.Option(help="Tokens of a text; what is longer is cut.")] = 128,
    train: Annotated[
        str | None,
        typer.Option(help="Your own training texts: a .csv, .tsv or .jsonl with GLUE's columns."),
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Your own texts to judge it on, in the same form.")
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(help="A folder of masked heads, kept masked while all else is trained."),
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Threads; another number may move the last bits.")
    ] = 2,
    revision: Revision = None,
    allow_pickle: AllowPickle = False,
) -> None:
    """Make a pretrained encoder a classifier of a task; all its weights are trained.

    Killed and called again, it goes on where it stopped and ends with the same weights. It ends
    with the task's own metric on its dev part.
    """
    from levelhead.data.tasks import seen_before
    from levelhead.data.tasks import task as task_of
    from levelhead.measures.utility.glue_task import Tasked, finetune_on
    from levelhead.models.edits.files import load_edits
    from levelhead.models.loading.load import load
    from levelhead.models.training.finetune import Tuning

    row = task_of(task)
    tuning = Tuning(
        epochs=row.epochs if epochs is None else epochs,
        batch=batch,
        rate=rate,
        longest=longest,
        dropout=dropout,
        seed=seed,
        threads=threads,
    )
    measure = Tasked(task=task, file=dev)
    known = seen_before(row.examples("train", train), measure.items)  # both are here, or it is said
    lm = load(model, revision=revision, allow_pickle=allow_pickle)
    with steps() as tell:
        folder = finetune_on(
            lm,
            task,
            output,
            train=train,
            tuning=tuning,
            edits=load_edits(edit) if edit else (),
            progress=lambda done, total: tell("training", done, total),
        )
    with progress("questions") as on_event:
        found = measure(load(folder), context=RunContext(threads=threads, progress=on_event))
    _say(output, found, row.metrics[0], known)


def _say(output: str, found: Measurement, metric: str, known: int) -> None:
    from levelhead.models.training.finetune import finetuned

    told = finetuned(output)
    typer.echo(f"{output}: {told['base']} fine-tuned on {told['told']['task']}")
    cut = f", {told['cut']:,} of them cut" if told["cut"] else ""
    tuning = told["tuning"]
    typer.echo(
        f"  {told['rows']:,} texts{cut}; {tuning['epochs']:g} epochs, {tuning['batch']} a step, "
        f"rate {tuning['rate']:g}, seed {tuning['seed']}"
        f"{'' if tuning['dropout'] else ', no dropout'}"
    )
    if told["masked"]:
        typer.echo(f"  masked while training: {', '.join(told['masked'])}")
    dropped = f", {len(found.dropped)} dropped" if found.dropped else ""
    typer.echo(
        f"  dev: {metric} {found.value:.4g} {found.interval} ({found.unit}; n {found.n}{dropped})"
    )
    for one in found.beside:
        typer.echo(f"  dev: {one}")
    for item, reason in found.dropped[:3]:
        typer.echo(f"  dropped: {item} ({reason})")
    for note in found.notes:
        typer.echo(f"  {note}")
    if known:
        typer.echo(f"  {known} of the dev texts stand in the training part, too")
