"""`levelhead plan measure|leaderboard|finetune|mine ...`: estimate the cost of a run."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import BatchSize, Dtype, Json, Model, Resamples, Revision
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from levelhead.study.cost.arithmetic import LargeScaleEstimate
    from levelhead.study.cost.estimate import CostEstimate

app = typer.Typer(
    help="Estimate the cost of a run by trying a few seconds of it.",
    no_args_is_help=True,
)
PerHour = Annotated[float, typer.Option(help="Price of an hour of this machine.")]
Threads = Annotated[int, typer.Option(help="Number of threads of NumPy and PyTorch.")]
Measures = Annotated[
    list[str], typer.Option("--measure", "-m", help="Name of a measure, with options.")
]
Permutations = Annotated[int, typer.Option(help="Number of permutations for a p-value.")]


@app.command("measure")
def plan_measure(
    model: Model,
    measures: Measures,
    resamples: Resamples = 1999,
    permutations: Permutations = 9999,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    dtype: Dtype = "float32",
    store: Annotated[
        str | None,
        typer.Option(help="Folder that stores responses, as in `measure`; the cache by default."),
    ] = None,
    edit: Annotated[
        str | None, typer.Option(help="Folder of an edit that save_edits wrote.")
    ] = None,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Estimate the cost of `levelhead measure`.

    Takes the same arguments.
    """
    cost = _measure_cost(
        model,
        revision,
        measures,
        resamples,
        permutations,
        threads=threads,
        batch_size=batch_size,
        dtype=dtype,
        use_cache=True,
        store=store,
        edit=edit,
    )
    _show(cost, per_hour, json=json)


@app.command("leaderboard")
def plan_leaderboard(
    measures: Measures,
    models: Annotated[
        list[str] | None, typer.Argument(help="Hub ids (id@revision), folders or .gguf files.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="File with further models, one per line.")
    ] = None,
    resamples: Resamples = 1999,
    permutations: Permutations = 9999,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    dtype: Dtype = "float32",
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Estimate the cost of `levelhead leaderboard`.

    The models are taken to run one after the other.
    """
    began = time.perf_counter()
    from levelhead.study.leaderboard import read_models

    # Paid once here and once in the process of every model.
    starting = time.perf_counter() - began
    model_names = list(models or ())
    if file is not None:
        model_names += read_models(file)
    total: CostEstimate | None = None
    for name in model_names:
        model, _, revision = name.partition("@")
        model_cost = _measure_cost(
            model,
            revision or None,
            measures,
            resamples,
            permutations,
            threads=threads,
            batch_size=batch_size,
            dtype=dtype,
        )
        model_cost = _add_loading(model_cost, starting)
        total = model_cost if total is None else total + model_cost
    if total is None:
        raise typer.BadParameter("name a model")
    _show(_add_loading(total, starting), per_hour, json=json)


@app.command("finetune")
def plan_finetune(
    model: Model,
    task: Annotated[str, typer.Option(help="Task of the classifier, as in `finetune`.")],
    epochs: Annotated[
        float | None,
        typer.Option(help="Number of training epochs; depends on the task by default."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Number of texts in a training step.")] = 32,
    train: Annotated[str | None, typer.Option(help="File of the user's training texts.")] = None,
    dev: Annotated[str | None, typer.Option(help="File of texts to evaluate on.")] = None,
    dropout: Annotated[
        bool, typer.Option("--dropout/--no-dropout", help="Use the model's dropout in training.")
    ] = True,
    threads: Threads = 2,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Estimate the cost of `levelhead finetune`."""
    began = time.perf_counter()
    from levelhead.data.tasks import get_task_spec
    from levelhead.models.loading.load import load
    from levelhead.models.training.configs import FinetuneConfig
    from levelhead.study.cost.finetuning import estimate_finetuning_cost

    lm = load(model)
    loading = time.perf_counter() - began
    config = FinetuneConfig(
        epochs=epochs or get_task_spec(task).epochs,
        batch_size=batch_size,
        dropout=dropout,
        threads=threads,
    )
    cost = estimate_finetuning_cost(lm, task, config, train=train, dev=dev)
    _show(_add_loading(cost, loading), per_hour, json=json)


@app.command("mine")
def plan_mine(
    corpus: Annotated[
        list[str], typer.Argument(help="Files, globs or URLs: .txt, .tsv, .jsonl, .parquet.")
    ],
    lexicon: Annotated[str, typer.Option(help="Name or TOML file of a lexicon.")] = "gender-en",
    quota: Annotated[int, typer.Option(help="Number of contexts to keep for each word.")] = 100,
    full_size: Annotated[
        str | None,
        typer.Option("--of", help="Size of the corpus that these are a sample of: 44TB."),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Number of cores that share the work, with --of.")
    ] = 1,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Estimate the cost of `levelhead data mine`.

    The estimate is for one process, or with --of for a larger corpus that is not on this machine.

    FineWeb on 16 nodes of 32 cores: levelhead plan mine sample.parquet --of 44TB --workers 512
    """
    began = time.perf_counter()
    # Imports are loading time: they must not count as mining, which is scaled to the full corpus.
    for module in ("levelhead.data.corpus.mine", "polars", "duckdb"):
        with suppress(ImportError):
            import_module(module)
    loading = time.perf_counter() - began
    from levelhead.study.cost.arithmetic import estimate_distributed_mining, parse_number
    from levelhead.study.cost.mining import corpus_bytes, estimate_mining_cost

    cost = estimate_mining_cost(corpus, lexicon=lexicon, quota=quota)
    if full_size is None:
        _show(_add_loading(cost, loading), per_hour, json=json)
        return
    sample_bytes = corpus_bytes(corpus)
    mining = cost.seconds_by_part["mining"]
    fixed_seconds = cost.seconds - mining
    estimate = estimate_distributed_mining(
        mining, fixed_seconds, sample_bytes, parse_number(full_size), workers=workers
    )
    _show_estimate(estimate, per_hour, json=json)


@app.command("large")
def plan_large(
    parameters: Annotated[str, typer.Option(help="Number of parameters of the model: 70B.")],
    tokens: Annotated[str, typer.Option(help="Number of tokens to read: 1.44M.")],
    gpus: Annotated[int, typer.Option(help="Number of GPUs that share the model.")] = 8,
    # Dense bfloat16 peak of an H100; 0.3 of it is what large models commonly reach.
    teraflops: Annotated[float, typer.Option(help="Peak teraflops of one GPU.")] = 990.0,
    used: Annotated[
        float, typer.Option(help="Share of the peak that is reached (model FLOPs utilization).")
    ] = 0.3,
    dtype: Dtype = "bfloat16",
    heads: Annotated[int, typer.Option(help="Number of heads that are also ablated.")] = 0,
    per_hour: PerHour = 0.0,
    json: Json = False,
) -> None:
    """Estimate the cost of locating heads in a large model.

    Computes, without running anything, `levelhead locate --parallel tensor`.
    """
    from levelhead.study.cost.arithmetic import estimate_large_model, parse_number

    estimate = estimate_large_model(
        parse_number(parameters),
        parse_number(tokens),
        devices=gpus,
        teraflops=teraflops,
        utilization=used,
        dtype=dtype,
        heads=heads,
    )
    _show_estimate(estimate, per_hour, json=json)


def _measure_cost(
    model: str,
    revision: str | None,
    measures: list[str],
    resamples: int,
    permutations: int,
    *,
    threads: int,
    batch_size: int,
    dtype: str,
    use_cache: bool = False,
    store: str | None = None,
    edit: str | None = None,
) -> CostEstimate:
    began = time.perf_counter()
    typer.echo(f"loading {model}", err=True)
    from levelhead.measures.registry import parse_measure
    from levelhead.models.loading.load import load, model_cache_folder
    from levelhead.study.cost.cost import estimate_cost

    lm = load(model, revision=revision, dtype=dtype, batch_size=batch_size, edit=edit)
    loading = time.perf_counter() - began
    inference = Inference(resamples=resamples, permutations=permutations)
    parsed_measures = [parse_measure(spec) for spec in measures]
    if use_cache and store is None:
        # The default of `measure`: what is stored there needs no forward pass.
        store = str(model_cache_folder().parent / "readouts")
    return _add_loading(
        estimate_cost(
            lm,
            parsed_measures,
            inference=inference,
            context=RunContext(threads=threads, store=store),
        ),
        loading,
    )


def _add_loading(cost: CostEstimate, seconds: float) -> CostEstimate:
    parts = {**cost.seconds_by_part, "loading": cost.seconds_by_part.get("loading", 0.0) + seconds}
    return cost.model_copy(update={"seconds": cost.seconds + seconds, "seconds_by_part": parts})


def _show(cost: CostEstimate, per_hour: float, *, json: bool) -> None:
    if json:
        typer.echo(cost.to_json())
        return
    lines = []
    if cost.forwards:
        lines.append(f"{cost.forwards:,} forward passes of {cost.tokens:,} tokens")
    split = ", ".join(
        f"{name} {_format_time(seconds)}" for name, seconds in cost.seconds_by_part.items()
    )
    lines.append(f"about {_format_time(cost.seconds)}: {split}")
    lines.append(f"about {cost.peak_mb:,.0f} MB of memory, {cost.disk_mb:,.1f} MB on disk")
    if per_hour:
        lines.append(f"about {cost.seconds / 3600 * per_hour:.2f} at {per_hour:g} per hour")
    typer.echo("\n".join([*lines, *cost.notes]), file=sys.stdout)


def _show_estimate(estimate: LargeScaleEstimate, per_hour: float, *, json: bool) -> None:
    if json:
        typer.echo(estimate.to_json())
        return
    lines = [
        f"an estimate, not measured: {_format_time(estimate.hours * 3600)} of wall-clock time, "
        f"{estimate.device_hours:.2f} core or GPU hours in total"
    ]
    if estimate.memory_gb is not None:
        lines.append(f"{estimate.memory_gb:.1f} GB of weights on each")
    if per_hour:
        lines.append(
            f"about {estimate.device_hours * per_hour:.2f} at {per_hour:g} per core or GPU hour"
        )
    typer.echo(
        "\n".join([*lines, *(f"assumes {assumption}" for assumption in estimate.assumptions)])
    )


def _format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
