"""`levelhead plan measure|leaderboard|finetune|mine ...`: what it will cost, before it is run."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import BatchSize, Draws, Dtype, Json, Model, Revision
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from levelhead.study.cost.arithmetic import Estimated
    from levelhead.study.cost.estimate import Foreseen

app = typer.Typer(
    help="What a run will cost, before it is run: a few seconds of it are tried.",
    no_args_is_help=True,
)
PerHour = Annotated[float, typer.Option(help="What an hour of this machine costs you.")]
Threads = Annotated[int, typer.Option(help="Threads of numpy and torch.")]
Measures = Annotated[list[str], typer.Option("--measure", "-m", help="A measure, with options.")]
Permutations = Annotated[int, typer.Option(help="Rearrangements for a p-value.")]


@app.command()
def measure(
    model: Model,
    measures: Measures,
    draws: Draws = 1999,
    permutations: Permutations = 9999,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    dtype: Dtype = "float32",
    store: Annotated[str | None, typer.Option(help="Where readouts are kept, as for it.")] = None,
    edit: Annotated[str | None, typer.Option(help="A folder that save_edits wrote.")] = None,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Foresee `levelhead measure` with the same arguments."""
    foreseen = _measured(
        model,
        revision,
        measures,
        draws,
        permutations,
        threads=threads,
        batch_size=batch_size,
        dtype=dtype,
        kept=True,
        store=store,
        edit=edit,
    )
    _show(foreseen, per_hour, json=json)


@app.command()
def leaderboard(
    measures: Measures,
    models: Annotated[list[str] | None, typer.Argument(help="As for `leaderboard`.")] = None,
    file: Annotated[str | None, typer.Option("--file", help="A file that names more.")] = None,
    draws: Draws = 1999,
    permutations: Permutations = 9999,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    dtype: Dtype = "float32",
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Foresee `levelhead leaderboard`, one model after the other."""
    began = time.perf_counter()
    from levelhead.study.leaderboard import read_models

    starting = time.perf_counter() - began  # of this process, and of one for every model
    named = list(models or ())
    if file is not None:
        named += read_models(file)
    total: Foreseen | None = None
    for name in named:
        model, _, revision = name.partition("@")
        one = _measured(
            model,
            revision or None,
            measures,
            draws,
            permutations,
            threads=threads,
            batch_size=batch_size,
            dtype=dtype,
        )
        one = _and_loading(one, starting)
        total = one if total is None else total + one
    if total is None:
        raise typer.BadParameter("name a model")
    _show(_and_loading(total, starting), per_hour, json=json)


@app.command()
def finetune(
    model: Model,
    task: Annotated[str, typer.Option(help="As for `finetune`.")],
    epochs: Annotated[float | None, typer.Option(help="By default the task's.")] = None,
    batch: Annotated[int, typer.Option(help="Texts in a step.")] = 32,
    train: Annotated[str | None, typer.Option(help="A file of your own.")] = None,
    dev: Annotated[str | None, typer.Option(help="The same, to judge it on.")] = None,
    dropout: Annotated[bool, typer.Option("--dropout/--no-dropout", help="As trained.")] = True,
    threads: Threads = 2,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Foresee `levelhead finetune`."""
    began = time.perf_counter()
    from levelhead.data.tasks import task as row
    from levelhead.models.loading.load import load
    from levelhead.models.training.finetune import Tuning
    from levelhead.study.cost.finetuning import foresee_tuning

    lm = load(model)
    loading = time.perf_counter() - began
    tuning = Tuning(
        epochs=epochs or row(task).epochs, batch=batch, dropout=dropout, threads=threads
    )
    found = foresee_tuning(lm, task, tuning, train=train, dev=dev)
    _show(_and_loading(found, loading), per_hour, json=json)


@app.command()
def mine(
    corpus: Annotated[list[str], typer.Argument(help="Files, globs or URLs, as for `mine`.")],
    lexicon: Annotated[str, typer.Option(help="A lexicon's name or TOML file.")] = "gender-en",
    quota: Annotated[int, typer.Option(help="Contexts kept for each word.")] = 100,
    whole: Annotated[
        str | None, typer.Option("--of", help="This is a sample of so much: 44TB.")
    ] = None,
    workers: Annotated[int, typer.Option(help="With --of: cores that share the work.")] = 1,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Foresee `levelhead mine` in one process, or estimate it for a corpus that is not here.

    FineWeb on 16 nodes of 32 cores: levelhead plan mine sample.parquet --of 44TB --workers 512
    """
    began = time.perf_counter()
    for needed in ("levelhead.data.corpus.mine", "polars", "duckdb"):
        with suppress(ImportError):
            import_module(needed)
    loading = time.perf_counter() - began
    from levelhead.study.cost.arithmetic import number, spread
    from levelhead.study.cost.mining import corpus_bytes, foresee_mining

    found = foresee_mining(corpus, lexicon=lexicon, quota=quota)
    if whole is None:
        _show(_and_loading(found, loading), per_hour, json=json)
        return
    here = corpus_bytes(corpus)
    mining = found.parts["mining"]
    alone = found.seconds - mining
    told = spread(mining, alone, here, number(whole), workers=workers)
    _estimate(told, per_hour, json=json)


@app.command()
def large(
    parameters: Annotated[str, typer.Option(help="Of the model: 70B.")],
    tokens: Annotated[str, typer.Option(help="That are read: 1.44M.")],
    gpus: Annotated[int, typer.Option(help="That share the model.")] = 8,
    teraflops: Annotated[float, typer.Option(help="Of one of them.")] = 990.0,
    used: Annotated[float, typer.Option(help="The part of these that is reached.")] = 0.3,
    dtype: Dtype = "bfloat16",
    heads: Annotated[int, typer.Option(help="How many heads are ablated, too.")] = 0,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Estimate, by arithmetic alone, `levelhead locate --parallel tensor` of a large model."""
    from levelhead.study.cost.arithmetic import large as estimated
    from levelhead.study.cost.arithmetic import number

    found = estimated(
        number(parameters),
        number(tokens),
        devices=gpus,
        teraflops=teraflops,
        used=used,
        dtype=dtype,
        heads=heads,
    )
    _estimate(found, per_hour, json=json)


def _measured(
    model: str,
    revision: str | None,
    measures: list[str],
    draws: int,
    permutations: int,
    *,
    threads: int,
    batch_size: int,
    dtype: str,
    kept: bool = False,
    store: str | None = None,
    edit: str | None = None,
) -> Foreseen:
    began = time.perf_counter()
    typer.echo(f"loading {model}", err=True)
    from levelhead.measures.registry import parsed
    from levelhead.models.loading.load import cache_folder, load
    from levelhead.study.cost.cost import foresee

    lm = load(model, revision=revision, dtype=dtype, batch_size=batch_size, edit=edit)
    loading = time.perf_counter() - began
    inference = Inference(resamples=draws, permutations=permutations)
    wanted = [parsed(one) for one in measures]
    if kept and store is None:
        store = str(cache_folder().parent / "readouts")  # as `measure` has it
    return _and_loading(
        foresee(lm, wanted, inference=inference, context=RunContext(threads=threads, store=store)),
        loading,
    )


def _and_loading(found: Foreseen, seconds: float) -> Foreseen:
    parts = {**found.parts, "loading": found.parts.get("loading", 0.0) + seconds}
    return found.model_copy(update={"seconds": found.seconds + seconds, "parts": parts})


def _show(found: Foreseen, per_hour: float, *, json: bool) -> None:
    if json:
        typer.echo(found.to_json())
        return
    lines = []
    if found.forwards:
        lines.append(f"{found.forwards:,} forwards of {found.tokens:,} tokens")
    split = ", ".join(f"{name} {_time(seconds)}" for name, seconds in found.parts.items())
    lines.append(f"about {_time(found.seconds)}: {split}")
    lines.append(f"about {found.peak_mb:,.0f} MB of memory, {found.disk_mb:,.1f} MB on disk")
    if per_hour:
        lines.append(f"about {found.seconds / 3600 * per_hour:.2f} at {per_hour:g} an hour")
    typer.echo("\n".join([*lines, *found.notes]), file=sys.stdout)


def _estimate(found: Estimated, per_hour: float, *, json: bool) -> None:
    if json:
        typer.echo(found.to_json())
        return
    lines = [
        f"an estimate, not measured: {_time(found.hours * 3600)} on the clock, "
        f"{found.device_hours:.2f} hours of cores or GPUs in all"
    ]
    if found.memory_gb is not None:
        lines.append(f"{found.memory_gb:.1f} GB of weights on each")
    if per_hour:
        lines.append(f"about {found.device_hours * per_hour:.2f} at {per_hour:g} an hour of each")
    typer.echo("\n".join([*lines, *(f"assumes {one}" for one in found.assumes)]))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
