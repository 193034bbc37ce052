"""`levelhead locate MODEL -m NAME`: score heads by their contribution to a measure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.executors import LOCAL, Address, ExecutorName, Gpus, make_executor
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
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
    Measure,
    Model,
    Output,
    Permutations,
    Quiet,
    Resamples,
    ResponseStore,
    Revision,
    Seed,
    Threads,
    details_option,
)
from levelhead.cli.shared.progress import print_line, show_progress
from levelhead.core.errors import require_option
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.table import Table

    from levelhead.core.results import Estimate
    from levelhead.locate.head_map import ComponentScore, HeadMap
    from levelhead.locate.score_heads import AblateTop

HEAD_COLUMN = "head"


def locate_command(
    model: Model,
    measure: Measure = "seat",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.HEADS,
            help="Method of scoring: gradient, ablation or path.",
        ),
    ] = "gradient",
    components: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            rich_help_panel=Panel.HEADS,
            help="Components to score, separated by commas: heads, mlp, embeddings.",
        ),
    ] = "heads",
    ablation: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.HEADS,
            help="Output of an ablated component: zero or mean.",
        ),
    ] = "zero",
    ablate_top: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.HEADS,
            help="Number of components with the highest scores to ablate, `all` or `none`; chosen "
            "by the method by default.",
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.STATISTICS,
            help="What is split into the half that ranks heads and the half that tests them: auto, "
            "words, contexts or none.",
        ),
    ] = "auto",
    bias_direction: Annotated[
        str,
        typer.Option(
            metavar="SIGN",
            rich_help_panel=Panel.MEASURE,
            help="Sign of the measure's biased side: auto, + or -.",
        ),
    ] = "auto",
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.OUTPUT,
            help="Print only the labels of this many heads; exit 2 if the direction of bias is "
            "unknown.",
        ),
    ] = None,
    output: Output = None,
    chart: Chart = None,
    clip_negative: Annotated[
        bool,
        typer.Option(
            "--clip-negative",
            rich_help_panel=Panel.OUTPUT,
            help="Draw negative heads white in the chart, like the paper.",
        ),
    ] = False,
    json: Json = False,
    details: Annotated[bool, details_option("Show every head.")] = False,
    quiet: Quiet = False,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    permutations: Permutations = 9999,
    level: Level = 0.95,
    store: ResponseStore = None,
    threads: Threads = 1,
    edit: Edit = None,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
    parallel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.EXECUTION,
            help="How to distribute the model under torchrun: tensor (by heads) or rows.",
        ),
    ] = None,
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute",
            rich_help_panel=Panel.EXECUTION,
            help="Save memory: compute layers again in the backward pass.",
        ),
    ] = False,
    executor: ExecutorName = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
) -> None:
    """Score every head by its contribution to a measure.

    The scores (Yang et al. 2025, Eq. 4) rank heads on one half of the items. Effects of ablation,
    intervals and corrected p-values come from the other half. Exit 2 if --top is given and the
    direction of bias is unknown.
    """
    from levelhead.core.files import write_atomic
    from levelhead.locate.distributed import LoadOptions, LocateOptions, locate_distributed
    from levelhead.locate.head_map import Ablation, Component, LocateMethod, SplitBy
    from levelhead.locate.score_heads import locate
    from levelhead.locate.validation.sign import SignOption
    from levelhead.measures.registry import parse_measure
    from levelhead.models.architectures.tensor_parallel import ParallelMode
    from levelhead.models.loading.load import load

    inference = Inference(seed=seed, resamples=resamples, permutations=permutations, level=level)
    source: LoadOptions = {
        "revision": revision,
        "device": device,
        "dtype": dtype,
        "edit": edit,
        "allow_pickle": allow_pickle,
        "batch_size": batch_size,
        "parallel": None
        if parallel is None
        else require_option("way to share a model", parallel, get_args(ParallelMode)),
        "recompute": recompute,
    }
    options: LocateOptions = {
        "method": require_option("way to locate", method, get_args(LocateMethod)),
        "components": [
            require_option("part", component, get_args(Component))
            for component in components.split(",")
        ],
        "ablation": require_option("ablation", ablation, get_args(Ablation)),
        "ablate_top": _parse_ablate_top(ablate_top),
        "split": require_option("split", split, ("auto", *get_args(SplitBy))),
        "bias_direction": require_option("bias direction", bias_direction, get_args(SignOption)),
    }
    cluster = make_executor(executor, workers=1, address=address, gpus=gpus)
    if cluster is not None:
        # No model is loaded here: it may need the memory of a cluster's node.
        if not quiet:
            print_line(f"the heads of {model} are scored on the cluster")
        heads = locate_distributed(
            cluster,
            model,
            measure,
            load_options=source,
            locate_options=options,
            inference=inference,
            context=RunContext(store=store, threads=threads),
        )
    else:
        lm = load(model, **source)
        # Under torchrun each rank reads its own part: there is no common cache.
        if not parallel:
            store = response_store(store, model)
        with show_progress("scoring heads", quiet=quiet) as on_event:
            heads = locate(
                lm,
                parse_measure(measure),
                inference=inference,
                context=RunContext(store=store, threads=threads, progress=on_event),
                **options,
            )
        # All ranks hold the same result: the first one reports it.
        if lm.layout.parallel.rank:
            return
    text = heads.to_json() + "\n"
    if output is not None:
        write_atomic(output, text.encode())
    if chart is not None:
        from levelhead.report.charts.registry import chart as make_chart
        from levelhead.report.charts.registry import save

        save(make_chart(heads, clip_negative=clip_negative), chart)
    if top is not None:
        _print_labels(heads, top)
    elif json:
        typer.echo(text, nl=False)
    else:
        _show(heads, details=details)


def _parse_ablate_top(text: str | None) -> AblateTop | None:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    if text not in ("all", "none"):
        raise typer.BadParameter("--ablate-top is a number, all or none")
    return "all" if text == "all" else "none"


def _print_labels(heads: HeadMap, top: int) -> None:
    from levelhead.locate.head_map import UndeterminedSignError, head_label

    try:
        for site in heads.top(top):
            typer.echo(head_label(site))
    except UndeterminedSignError as error:
        typer.echo(f"levelhead: {error}", err=True)
        raise ExitWithCode(INCONCLUSIVE) from None


def _show(heads: HeadMap, *, details: bool) -> None:
    """Print the first and the last heads, or all, and the notes of the map."""
    from rich.console import Console
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(_table(heads, details=details))
    halves = heads.split
    positive = sum(head.score > 0 for head in heads.heads)
    unit = (
        "exploratory: the same items rank and test" if halves.confirmation is None else "held out"
    )
    lines = [
        "heads: layer-head, counted from 1",
        f"score: by {heads.method}; effect: reduction of {heads.measure} when the head is ablated "
        f"({unit})",
        f"direction of bias: {_sign_text(heads)}: {heads.bias_sign.reason}",
        f"{heads.measure} on the items that rank heads: {_format_estimate(halves.discovery)}",
    ]
    if halves.confirmation is not None:
        lines.append(
            f"{heads.measure} on the items that test heads: {_format_estimate(halves.confirmation)}"
        )
    lines += [
        halves.claim,
        f"{positive} of {len(heads.heads)} heads have a positive score",
        f"verdict: {heads.verdict} (p corrected by Romano-Wolf, familywise error rate 0.05)",
    ]
    lines += [
        str(estimate) for estimate in (heads.agreement, heads.replication) if estimate is not None
    ]
    if failed_calibration_mark(heads.measurement):
        lines.append(f"{heads.measure} {DAGGER_NOTE}")
    for line in (*lines, *heads.notes):
        console.print(Text(line), soft_wrap=True)


def _format_estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.3g} {estimate.interval} (n {estimate.n})"


def _sign_text(heads: HeadMap) -> str:
    return {1: "+", -1: "-", 0: "undetermined"}[heads.bias_sign.sign]


def _table(heads: HeadMap, *, details: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", HEAD_COLUMN, "score", "effect", "interval", "adjusted p", "detectable"):
        is_left = name in (HEAD_COLUMN, "interval")
        table.add_column(name, justify="left" if is_left else "right")
    ranked = sorted(heads.scores, key=lambda component: -component.score)
    # Both ends matter: the last heads reduce the measure. 15 of up to 144 rows fit a screen.
    show_all = details or len(ranked) <= 20
    for rank, component in enumerate(ranked, 1):
        if show_all or rank <= 10 or rank > len(ranked) - 5:
            table.add_row(
                str(rank), component.label, f"{component.score:.4g}", *_effect_cells(component)
            )
        elif rank == 11:
            table.add_row("...", *[""] * 6)
    return table


def _effect_cells(component: ComponentScore) -> tuple[str, ...]:
    if component.effect is None or component.p is None:
        return "", "", "", ""
    adjusted = component.p.value if component.p.adjusted is None else component.p.adjusted
    return (
        f"{component.effect:.4g}",
        str(component.interval),
        f"{adjusted:.3f}",
        "" if component.detectable is None else f"{component.detectable:.3g}",
    )
