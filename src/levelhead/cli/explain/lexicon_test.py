"""`levelhead data lexicon test FILE MODEL`: the effect of each word of a list on a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Groups,
    Json,
    Level,
    Model,
    Output,
    Quiet,
    Revision,
)
from levelhead.cli.shared.output import write_result
from levelhead.cli.shared.progress import show_steps
from levelhead.core.errors import require_option
from levelhead.core.run_context import Inference

if TYPE_CHECKING:
    from levelhead.core.results import Estimate
    from levelhead.explain.lexicon_effects import LexiconEffects


def lexicon_test_command(
    file: Annotated[str, typer.Argument(metavar="LEXICON", help="Name or TOML file of a lexicon.")],
    model: Model,
    heads: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.HEADS,
            help="Head map that `levelhead locate` wrote; only the attention of its positive heads "
            "counts. All heads by default.",
        ),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Family of the lexicon's targets; all families by default.",
        ),
    ] = None,
    groups: Groups = None,
    carrier_kind: Annotated[
        str,
        typer.Option(
            "--target-kind",
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Kind of the targets: any, thing, bare or adjective.",
        ),
    ] = "any",
    max_frames: Annotated[
        int,
        typer.Option(
            "--max-templates",
            metavar="N",
            rich_help_panel=Panel.DATA,
            help="Maximum number of sentence templates for each target, from 1 to 4.",
        ),
    ] = 2,
    level: Level = 0.95,
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Test the effect of every word of a list on a model.

    Tests every pair and every target, and lists those without a significant effect.
    """
    from levelhead.cli.explain.explain import read_head_map, split_by_sign
    from levelhead.data.counterfactuals.templates import CarrierKind
    from levelhead.data.lexicons.published import resolve_lexicon
    from levelhead.explain.lexicon_effects import FrameOptions, lexicon_effects
    from levelhead.models.loading.load import load

    words = resolve_lexicon(file)
    group_pair = words.resolve_group_pair(groups.split(",") if groups else None)
    # Small files before large ones: a wrong word list or map fails before the weights are read.
    loaded_map = None if heads is None else read_head_map(heads)
    sites = None if loaded_map is None else split_by_sign(loaded_map)[0]
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    if loaded_map is not None:
        # Heads of other weights mean nothing: the hash of the weights is compared.
        loaded_map.require_same_model(lm)
    with show_steps(quiet=quiet) as on_step:
        effects = lexicon_effects(
            lm,
            words,
            heads=sites,
            targets=targets,
            groups=group_pair,
            frames=FrameOptions(
                require_option("kind of target", carrier_kind, get_args(CarrierKind)), max_frames
            ),
            inference=Inference(level=level),
            progress=lambda done, total: on_step("texts", done, total),
        )
    write_result(effects, lambda: _show(effects), output=output, json=json)


def _show(effects: LexiconEffects) -> None:
    """Print a table of pairs and targets, and below it the words without a shown effect."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    for title, rows in (("pair", effects.pairs), ("target", effects.targets)):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in (title, "attention", "interval", "p", "margin", "interval", "p", "n"):
            is_left = name in (title, "interval")
            table.add_column(name, justify="left" if is_left else "right")
        for row in rows:
            cells = (*_cells(row.attention), *_cells(row.margin))
            table.add_row(row.word, *cells, str(row.attention.n))
        console.print(table)
    unchanged_words = ", ".join(effects.words_without_effect) or "none"
    lines = [
        f"no significant effect of {len(effects.words_without_effect)} words: {unchanged_words}"
    ]
    lines += (
        [f"{len(effects.dropped)} sentences dropped: the model cannot read them"]
        if effects.dropped
        else []
    )
    # Pairs and targets answer two questions, so each is a family of tests for itself.
    for note in (*lines, "p corrected by Holm for pairs and for targets", *effects.notes):
        console.print(Text(note), soft_wrap=True)


def _cells(estimate: Estimate | None) -> tuple[str, str, str]:
    """Format a number, its interval and its p; empty where it has no test."""
    if estimate is None or estimate.p is None:
        return "", "", ""
    p = estimate.p.value if estimate.p.adjusted is None else estimate.p.adjusted
    return f"{estimate.value:.4g}", str(estimate.interval), f"{p:.4f}"
