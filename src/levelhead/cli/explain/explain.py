"""`levelhead explain`: how heads behave, and how prompted knowledge changes answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.explain.knowledge import knowledge_command
from levelhead.cli.explain.mediation import mediation_command
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import CachingCommand, Group, Panel, add_command
from levelhead.cli.shared.measurement_tables import format_cells
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Chart,
    Device,
    Dtype,
    Edit,
    HeadMapFile,
    Json,
    Level,
    Output,
    Permutations,
    Quiet,
    Resamples,
    Seed,
    details_option,
)
from levelhead.cli.shared.output import write_result
from levelhead.cli.shared.progress import show_steps
from levelhead.core.run_context import Inference

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from levelhead.core.results import PValue
    from levelhead.explain.attention.changes import AttentionChange
    from levelhead.explain.attention.counterstereotype import CounterStereotypeResult
    from levelhead.explain.attention.relabel_heads import HeadPermutationTest
    from levelhead.locate.head_map import HeadMap
    from levelhead.models.sites import Site

app = typer.Typer(
    cls=Group,
    help="Explain how heads behave, and how prompts change answers.",
    epilog="levelhead explain knowledge bert-base-uncased\n"
    "levelhead explain counterstereotype heads.json",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def counterstereotype_command(
    heads: HeadMapFile,
    pair_source: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            rich_help_panel=Panel.DATA,
            help="Pairs of texts: a data set, a folder of `levelhead data mine`, or a .csv, .tsv "
            "or .jsonl file with the columns text, twin, attribute, target, group.",
        ),
    ] = "counter-stereotype",
    lexicon: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Name or TOML file of a lexicon whose words fill sentence templates, instead of "
            "--pair-source.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            rich_help_panel=Panel.MODEL,
            help="Hub id or folder of the map's model, if it has moved; as in the map by default.",
        ),
    ] = None,
    edit: Edit = None,
    n_pairs: Annotated[
        int,
        typer.Option(
            "--pairs",
            metavar="N",
            rich_help_panel=Panel.DATA,
            help="Number of pairs to sample, evenly over targets.",
        ),
    ] = 500,
    control_categories: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Control category of targets to leave out: colours, sports (both by default), or "
            "none. Repeat for more.",
        ),
    ] = None,
    placebo: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.STATISTICS,
            help="Lexicon for the placebo control, which exchanges words within one group; or "
            "none.",
        ),
    ] = "gender-en",
    seed: Seed = 0,
    resamples: Resamples = 1999,
    permutations: Permutations = 9999,
    level: Level = 0.95,
    output: Output = None,
    chart: Chart = None,
    json: Json = False,
    details: Annotated[bool, details_option("Show every head.")] = False,
    quiet: Quiet = False,
    batch_size: BatchSize = 32,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Compare positive and negative heads on counterfactuals.

    Reads sentences and their counterfactuals, and compares how the attention of a map's positive
    and negative heads changes (Yang et al. 2025, section 5.2). Exit 2 if the map's direction of
    bias is unknown: no head is then positive or negative.
    """
    from levelhead.data.lexicons.published import resolve_lexicon
    from levelhead.explain.attention.counterstereotype import counterstereotype
    from levelhead.explain.attention.head_groups import HeadGroups
    from levelhead.explain.attention.pair_sources import (
        counterstereotype_pairs,
        pairs_from_templates,
    )
    from levelhead.models.loading.load import load

    inference = Inference(seed=seed, resamples=resamples, permutations=permutations, level=level)
    loaded_map = read_head_map(heads)
    head_groups = HeadGroups(*split_by_sign(loaded_map))
    text_pairs = (
        counterstereotype_pairs(pair_source)
        if lexicon is None
        else pairs_from_templates(resolve_lexicon(lexicon))
    )
    # The revision of the map belongs to the map's place of the model, not to another one.
    lm = load(
        model or loaded_map.provenance.model,
        revision=None if model else loaded_map.provenance.revision,
        edit=edit,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    # A map's heads mean nothing in other weights: the hash of the weights is compared.
    loaded_map.require_same_model(lm)
    with show_steps(quiet=quiet) as on_step:
        result = counterstereotype(
            lm,
            text_pairs,
            head_groups,
            n_pairs=n_pairs,
            control_categories=_resolve_list(control_categories, ("colours", "sports")),
            placebo=None if placebo == "none" else placebo,
            inference=inference,
            progress=lambda done, total: on_step("texts", done, total),
        )
    write_result(
        result, lambda: _show(result, details=details), output=output, json=json, chart=chart
    )


def read_head_map(path: str) -> HeadMap:
    """Read a head map.

    Args:
        path: a file that `levelhead locate -o` wrote.

    Raises:
        LevelheadError: the file cannot be read or is no head map.
    """
    from pathlib import Path

    from pydantic import ValidationError

    from levelhead.core.errors import LevelheadError
    from levelhead.locate.head_map import HeadMap

    try:
        return HeadMap.from_json(Path(path).read_bytes())
    except OSError as error:
        raise LevelheadError(f"cannot read {path}: {error}", hint="check the path") from None
    except ValidationError as error:
        # pydantic lists every field that does not fit; the first one is enough to see why.
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise LevelheadError(
            f"{path} is not a head map: {where or 'the file'}: {first['msg']}",
            hint="write one with `levelhead locate MODEL -m MEASURE -o heads.json`",
        ) from None


def split_by_sign(head_map: HeadMap) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """Split a map's heads into those that add to the bias and those that reduce it.

    Args:
        head_map: the map.

    Raises:
        ExitWithCode: with 2 if the direction of the bias is undetermined.
    """
    from levelhead.locate.head_map import UndeterminedSignError

    try:
        return head_map.positive_heads(), head_map.negative_heads()
    except UndeterminedSignError as error:
        typer.echo(f"levelhead: {error}", err=True)
        raise ExitWithCode(INCONCLUSIVE) from None


def _resolve_list(values: list[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a repeated option, without `none`; the default if there are none."""
    return default if not values else tuple(name for name in values if name != "none")


def _show(result: CounterStereotypeResult, *, details: bool) -> None:
    """Print tables: attention in both groups, the differences, and significant heads."""
    from rich.console import Console
    from rich.text import Text

    # A fixed width in files and pipes: the same result gives the same text everywhere.
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(_table(result))
    for change in (result.attention, result.weighted):
        for group in change.groups:
            console.print(Text(_paper_test_text(change, group.group)), soft_wrap=True)
        if change.head_permutation_test is not None:
            console.print(
                Text(_random_heads_text(change.weighting, change.head_permutation_test)),
                soft_wrap=True,
            )
        _show_heads(console, change, details=details)
    n_queried = result.n + len(result.dropped)
    lines = [f"{result.n} of {n_queried} sampled pairs, {len(result.targets)} targets"]
    lines += [
        f"left out before sampling: {count} ({reason})" for reason, count in result.exclusions
    ]
    for note in (*lines, *result.notes):
        console.print(Text(note), soft_wrap=True)


def _table(result: CounterStereotypeResult) -> Table:
    """Build the table of both groups before and after the exchange, and their differences."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("", "interval") else "right")
    for change in (result.attention, result.weighted):
        for group in change.groups:
            for estimate in (group.original, group.counter, group.change):
                table.add_row(estimate.name, *format_cells(estimate))
        for extra in (change.difference, change.same_length, change.placebo, change.net):
            if extra is not None:
                table.add_row(extra.name, *format_cells(extra), style="bold")
    return table


def _paper_test_text(change: AttentionChange, name: str) -> str:
    """Format the paper's test of one group."""
    # The paper's t-test takes sentences for independent, though many share a target: it is shown
    # for comparison, with that caution, and no verdict depends on it.
    (group,) = (group for group in change.groups if group.group == name)
    test = group.paper_t_test
    return (
        f"{change.weighting}, {group.heads} {name} heads, as the paper tests: t = {test.t:.3f}, "
        f"one-sided p = {test.p.value:.4f}, n {test.n} (treats sentences as independent)"
    )


def _random_heads_text(weighting: str, permutation: HeadPermutationTest) -> str:
    """Format the difference and its distribution over random groups of heads."""
    return (
        f"{weighting}, biased - regular {permutation.difference:.4g}; of heads called biased "
        f"at random, as many in every layer: {permutation.random_interval}, "
        f"p = {permutation.p.value:.4f}"
    )


def _corrected(p: PValue) -> float:
    # A single head is no family: its p-value has no correction, and is not 0.
    return p.value if p.adjusted is None else p.adjusted


def _show_heads(console: Console, attention_change: AttentionChange, *, details: bool) -> None:
    """Print the heads whose change is significant after correction; with details, all heads."""
    from rich.table import Table
    from rich.text import Text

    # p-values are adjusted over all heads by max-T, so .05 is the familywise error rate.
    shown_heads = [head for head in attention_change.heads if details or _corrected(head.p) <= 0.05]
    n_significant = sum(_corrected(head.p) <= 0.05 for head in attention_change.heads)
    n_heads = len(attention_change.heads)
    text = f"{attention_change.weighting}: {n_significant} of {n_heads} heads change (max-T, 0.05)"
    console.print(Text(text), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layer-head (from 1)", "group", "change", "interval", "adjusted p"):
        table.add_column(name)
    for head in sorted(shown_heads, key=lambda head: -head.change):
        label = f"{head.layer + 1}-{head.head + 1}"
        change = f"{head.change:.4f}"
        table.add_row(label, head.group, change, str(head.interval), f"{head.p.adjusted:.4f}")
    # A table of more than 20 heads pushes the summary off the screen; --details shows it.
    if shown_heads and (details or len(shown_heads) <= 20):
        console.print(table)


add_command(
    app,
    "knowledge",
    knowledge_command,
    "levelhead explain knowledge bert-base-uncased",
    "levelhead explain knowledge gpt2 --backgrounds 4 -o knowledge.json",
    command_class=CachingCommand,
)
add_command(
    app,
    "mediation",
    mediation_command,
    "levelhead explain mediation bert-base-uncased -m crows:metric=crows_margin",
    "levelhead explain mediation gpt2 -m cloze --twins nurse=guard --direct",
    command_class=CachingCommand,
)
add_command(
    app,
    "counterstereotype",
    counterstereotype_command,
    "levelhead explain counterstereotype heads.json",
    "levelhead explain counterstereotype heads.json --lexicon gender-en",
)
