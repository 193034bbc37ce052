"""`levelhead explain`: how heads behave, and what knowledge does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.explain.knowledge import knowledge
from levelhead.cli.measure import cells
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
    Output,
)
from levelhead.cli.shared.output import told
from levelhead.cli.shared.progress import steps
from levelhead.core.run_context import Inference

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from levelhead.explain.attention.changes import AttentionChange
    from levelhead.explain.attention.counterstereotype import CounterStereotype
    from levelhead.explain.attention.relabel_heads import Relabelled
    from levelhead.locate.head_map import HeadMap
    from levelhead.models.sites import Site

app = typer.Typer(
    help="How heads behave, and what knowledge does.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _explain() -> None:
    """How heads behave, and what knowledge does."""


app.command("knowledge")(knowledge)


@app.command("counterstereotype")
def counterstereotype(
    heads: Annotated[str, typer.Argument(help="A head map that `levelhead locate -o` wrote.")],
    pairs: Annotated[
        str,
        typer.Option(
            help="A data set, a folder of `levelhead mine`, or a .csv, .tsv or .jsonl file with "
            "the columns text, twin, attribute, target, group."
        ),
    ] = "counter-stereotype",
    frames: Annotated[
        str | None,
        typer.Option(help="Instead: a lexicon, by name or file, whose words are put into frames."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Where the model lies now; by default as the map says.")
    ] = None,
    edit: Annotated[str | None, typer.Option(help="A folder that save_edits wrote.")] = None,
    n: Annotated[int, typer.Option(help="Pairs that are drawn, evenly over targets.")] = 500,
    off: Annotated[
        list[str] | None,
        typer.Option(help="Targets to leave out: colours, sports (both by default), or none."),
    ] = None,
    placebo: Annotated[
        str,
        typer.Option(help="A lexicon whose words of one group stand for each other, or none."),
    ] = "gender-en",
    seed: Annotated[int, typer.Option(help="Of the draw, resamples and permutations.")] = 0,
    draws: Draws = 1999,
    permutations: Annotated[int, typer.Option(help="Rearrangements for a p-value.")] = 9999,
    level: Level = 0.95,
    output: Output = None,
    chart: Chart = None,
    json: Json = False,
    details: Annotated[bool, typer.Option("--details", help="Show every head.")] = False,
    batch_size: BatchSize = 32,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Compare a map's positive and negative heads on sentences and their twins.

    Yang et al. 2025, section 5.2. Exit 2 if the map's sign is undetermined: it then has neither.
    """
    from levelhead.data.lexicons.published import any_lexicon
    from levelhead.explain.attention.counterstereotype import counterstereotype as compare
    from levelhead.explain.attention.pair_sources import pairs_from, templated
    from levelhead.models.loading.load import load

    inference = Inference(seed=seed, resamples=draws, permutations=permutations, level=level)
    located = head_map(heads)
    biased, regular = signs(located)
    found = pairs_from(pairs) if frames is None else templated(any_lexicon(frames))
    lm = load(
        model or located.provenance.model,
        revision=None if model else located.provenance.revision,
        edit=edit,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    located.refuse_other(lm)
    with steps() as tell:
        result = compare(
            lm,
            found,
            biased=biased,
            regular=regular,
            n=n,
            off=_none(off, ("colours", "sports")),
            placebo=None if placebo == "none" else placebo,
            inference=inference,
            progress=lambda done, total: tell("texts", done, total),
        )
    told(result, lambda: _show(result, details=details), output=output, json=json, chart=chart)


def head_map(path: str) -> HeadMap:
    """The head map of a file."""
    from pathlib import Path

    from pydantic import ValidationError

    from levelhead.core.errors import LevelheadError
    from levelhead.locate.head_map import HeadMap

    try:
        return HeadMap.from_json(Path(path).read_bytes())
    except OSError as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="check the path") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise LevelheadError(
            f"{path} is no head map: {where or 'the file'}: {first['msg']}",
            mend="write one with `levelhead locate MODEL -m MEASURE -o heads.json`",
        ) from None


def signs(located: HeadMap) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """The heads that add to the bias, and those that take from it; exit 2 if that is not known."""
    from levelhead.locate.head_map import UndeterminedSign

    try:
        return located.positive(), located.negative()
    except UndeterminedSign as error:
        typer.echo(f"levelhead: {error}", err=True)
        raise ExitWith(INCONCLUSIVE) from None


def _none(given: list[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """What was given several times; `none` is nothing."""
    return default if not given else tuple(name for name in given if name != "none")


def _show(result: CounterStereotype, *, details: bool) -> None:
    """Tables: attention in both groups, the differences, and heads that are no chance."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(_table(result))
    for one in (result.attention, result.weighted):
        for group in one.groups:
            console.print(Text(_as_paper(one, group.group)), soft_wrap=True)
        if one.relabelled is not None:
            console.print(Text(_as_random(one.weighting, one.relabelled)), soft_wrap=True)
        _show_heads(console, one, details=details)
    asked = result.n + len(result.dropped)
    told = [f"{result.n} of {asked} pairs that were drawn, {len(result.targets)} targets"]
    told += [f"left out before the draw: {count} ({reason})" for reason, count in result.left_out]
    for note in (*told, *result.notes):
        console.print(Text(note), soft_wrap=True)


def _table(result: CounterStereotype) -> Table:
    """Both groups before and after, and what stands between them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("", "interval") else "right")
    for one in (result.attention, result.weighted):
        for group in one.groups:
            for estimate in (group.original, group.counter, group.change):
                table.add_row(estimate.name, *cells(estimate))
        for beside in (one.difference, one.same_length, one.placebo, one.net):
            if beside is not None:
                table.add_row(beside.name, *cells(beside), style="bold")
    return table


def _as_paper(one: AttentionChange, name: str) -> str:
    """The paper's own test of one group."""
    (group,) = (group for group in one.groups if group.group == name)
    test = group.paper
    return (
        f"{one.weighting}, {group.heads} {name} heads, as the paper tests: t = {test.t:.3f}, "
        f"one-sided p = {test.p.value:.4f}, n {test.n} (sentences taken for independent)"
    )


def _as_random(weighting: str, found: Relabelled) -> str:
    """The difference against random groups of heads."""
    return (
        f"{weighting}, biased - regular {found.difference:.4g}; of heads called biased at random, "
        f"as many in every layer: {found.random}, p = {found.p.value:.4f}"
    )


def _show_heads(console: Console, one: AttentionChange, *, details: bool) -> None:
    """Heads whose change is no chance after correction; all of them if details are wanted."""
    from rich.table import Table
    from rich.text import Text

    found = [head for head in one.heads if details or (head.p.adjusted or 0) <= 0.05]
    sure = sum((head.p.adjusted or 0) <= 0.05 for head in one.heads)
    text = f"{one.weighting}: {sure} of {len(one.heads)} heads change (max-T, 0.05)"
    console.print(Text(text), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("head, from 1", "group", "change", "interval", "adjusted p"):
        table.add_column(name)
    for head in sorted(found, key=lambda head: -head.change):
        label = f"{head.layer + 1}-{head.head + 1}"
        change = f"{head.change:.4f}"
        table.add_row(label, head.group, change, str(head.interval), f"{head.p.adjusted:.4f}")
    if found and (details or len(found) <= 20):
        console.print(table)
