"""`levelhead locate MODEL -m NAME`: which heads carry what a measure sees."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.executors import LOCAL, Address, Gpus, Runner, chosen
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWith
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Chart,
    Device,
    Draws,
    Dtype,
    Json,
    Level,
    Model,
    Output,
    Revision,
)
from levelhead.cli.shared.progress import line, progress
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.table import Table

    from levelhead.locate.head_map import HeadMap, PartScore
    from levelhead.locate.score_heads import Exact


def locate(
    model: Model,
    measure: Annotated[
        str,
        typer.Option("--measure", "-m", help="A measure, with options: seat:quota=10."),
    ] = "seat",
    by: Annotated[str, typer.Option(help="gradient, ablation or path.")] = "gradient",
    parts: Annotated[str, typer.Option(help="Of heads,mlp,embeddings.")] = "heads",
    ablation: Annotated[str, typer.Option(help="What an ablated part gives: zero or mean.")] = (
        "zero"
    ),
    exact: Annotated[
        str | None,
        typer.Option(help="How many of the highest scores are ablated: a number, all, none."),
    ] = None,
    split: Annotated[str, typer.Option(help="Halves: auto, words, contexts, none.")] = "auto",
    sign: Annotated[str, typer.Option(help="Which way is bias: found, + or -.")] = "found",
    top: Annotated[
        int | None, typer.Option(help="Print only the labels of this many heads; exit 2 if unsure.")
    ] = None,
    output: Output = None,
    chart: Chart = None,
    clip_negative: Annotated[
        bool, typer.Option("--clip-negative", help="Draw negative heads white, as the paper does.")
    ] = False,
    json: Json = False,
    details: Annotated[bool, typer.Option("--details", help="Show every head.")] = False,
    seed: Annotated[int, typer.Option(help="Of halves and resamples.")] = 0,
    draws: Draws = 1999,
    permutations: Annotated[int, typer.Option(help="Rearrangements for a p-value.")] = 9999,
    level: Level = 0.95,
    store: Annotated[
        str | None, typer.Option(help="Where readouts are kept; by default in the cache.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of numpy and torch.")] = 1,
    edit: Annotated[str | None, typer.Option(help="A folder that save_edits wrote.")] = None,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
    parallel: Annotated[
        str | None,
        typer.Option(help="Under torchrun, share the model: tensor (heads), or rows."),
    ] = None,
    recompute: Annotated[
        bool,
        typer.Option("--recompute", help="Less memory: layers are computed again for gradients."),
    ] = False,
    runner: Runner = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
) -> None:
    """Score every head by what it adds to a measure (Yang et al. 2025, Eq. 4).

    Scores rank heads on one half of the items; effects of ablation, intervals and corrected
    p-values are of the other half. Exit 2 if --top is wanted and which way is bias is not known.
    """
    from levelhead.core.files import write_atomic
    from levelhead.locate.distributed import locate_away
    from levelhead.locate.score_heads import locate as found_by
    from levelhead.measures.registry import parsed
    from levelhead.models.loading.load import cache_folder, load

    inference = Inference(seed=seed, resamples=draws, permutations=permutations, level=level)
    source = {
        "revision": revision,
        "device": device,
        "dtype": dtype,
        "edit": edit,
        "allow_pickle": allow_pickle,
        "batch_size": batch_size,
        "parallel": parallel,
        "recompute": recompute,
    }
    how = {
        "by": by,
        "parts": parts.split(","),
        "ablation": ablation,
        "exact": _exact(exact),
        "split": split,
        "sign": sign,
    }
    if (away := chosen(runner, workers=1, address=address, gpus=gpus)) is not None:
        line(f"{model} is located on the cluster")
        heads = locate_away(
            away,
            model,
            measure,
            source=source,
            how=how,
            inference=inference,
            context=RunContext(store=store, threads=threads),
        )
    else:
        lm = load(model, **source)  # type: ignore[arg-type]  # it checks all of these
        if store is None and not parallel:
            store = str(cache_folder().parent / "readouts")
        with progress("units") as on_event:
            heads = found_by(
                lm,
                parsed(measure),
                inference=inference,
                context=RunContext(store=store, threads=threads, progress=on_event),
                **how,  # type: ignore[arg-type]  # locate() checks all of these
            )
        if lm.anatomy.ranks.rank:
            return  # the first of several processes tells
    text = heads.to_json() + "\n"
    if output is not None:
        write_atomic(output, text.encode())
    if chart is not None:
        from levelhead.report.charts.registry import chart as drawn
        from levelhead.report.charts.registry import save

        save(drawn(heads, clip_negative=clip_negative), chart)
    if top is not None:
        _labels(heads, top)
    elif json:
        typer.echo(text, nl=False)
    else:
        _show(heads, details=details)


def _exact(text: str | None) -> Exact | None:
    if text is None or text in ("all", "none"):
        return text  # type: ignore[return-value]
    if not text.isdecimal():
        raise typer.BadParameter("--exact is a number, all or none")
    return int(text)


def _labels(heads: HeadMap, top: int) -> None:
    from levelhead.locate.head_map import UndeterminedSign, label

    try:
        for site in heads.top(top):
            typer.echo(label(site))
    except UndeterminedSign as error:
        typer.echo(f"levelhead: {error}", err=True)
        raise ExitWith(INCONCLUSIVE) from None


def _show(heads: HeadMap, *, details: bool) -> None:
    """The first and the last heads, or all; and what a reader must know."""
    from rich.console import Console
    from rich.text import Text

    from levelhead.core.calibration import MISSED, mark_of

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(_table(heads, details=details))
    halves = heads.halves
    positive = sum(one.score > 0 for one in heads.heads)
    told = [
        f"sign {_sign(heads)}: {heads.direction.why}",
        f"{halves.claim}; find {_short(halves.find)}"
        + (f", confirm {_short(halves.confirm)}" if halves.confirm else ""),
        f"{positive} of {len(heads.heads)} heads have a positive score; {heads.verdict} "
        "(romano-wolf, 0.05)",
    ]
    told += [str(one) for one in (heads.agreement, heads.replication) if one is not None]
    if mark_of(heads.measurement):
        told.append(f"{heads.measure} {MISSED}")
    for one in (*told, *heads.notes):
        console.print(Text(one), soft_wrap=True)


def _short(estimate: object) -> str:
    return f"{estimate.value:.3g} {estimate.interval} (n {estimate.n})"  # type: ignore[attr-defined]


def _sign(heads: HeadMap) -> str:
    return {1: "+", -1: "-", 0: "undetermined"}[heads.direction.sign]


def _table(heads: HeadMap, *, details: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "head, from 1", "score", "effect", "interval", "adjusted p", "detectable"):
        left = name in ("head, from 1", "interval")
        table.add_column(name, justify="left" if left else "right")
    ranked = sorted(heads.scores, key=lambda one: -one.score)
    whole = details or len(ranked) <= 20
    for rank, one in enumerate(ranked, 1):
        if whole or rank <= 10 or rank > len(ranked) - 5:
            table.add_row(str(rank), one.label, f"{one.score:.4g}", *_judged(one))
        elif rank == 11:
            table.add_row("...", *[""] * 6)
    return table


def _judged(one: PartScore) -> tuple[str, ...]:
    if one.effect is None or one.p is None:
        return "", "", "", ""
    adjusted = one.p.value if one.p.adjusted is None else one.p.adjusted
    return (
        f"{one.effect:.4g}",
        str(one.interval),
        f"{adjusted:.3f}",
        "" if one.detectable is None else f"{one.detectable:.3g}",
    )
