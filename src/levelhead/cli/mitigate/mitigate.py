"""`levelhead mitigate`: mask or scale heads (an edit file), or train a model further."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.mitigate.project import project_command
from levelhead.cli.mitigate.prompt import prompt_command
from levelhead.cli.mitigate.select_edit import select_edit_command
from levelhead.cli.mitigate.train import cda_command, dropout_command
from levelhead.cli.mitigate.train_losses import (
    auto_debias_command,
    context_debias_command,
    dpo_command,
    npo_command,
)
from levelhead.cli.shared.help_pages import (
    CachingCommand,
    Group,
    Panel,
    ResumableCommand,
    add_command,
)
from levelhead.cli.shared.options import (
    EditFolder,
    HeadMapFile,
)

app = typer.Typer(
    cls=Group,
    help="Mitigate bias: edit heads or subspaces, train, or prompt.",
    epilog="levelhead mitigate mask heads.json --top 5 -o edit\n"
    "levelhead mitigate project bert-base-uncased --edit-point penultimate -o edit",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Top = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=Panel.HEADS,
        help="Number of heads to select, by the largest scores.",
    ),
]
Bottom = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=Panel.HEADS,
        help="Number of heads to select, by the most negative scores.",
    ),
]
Positive = Annotated[
    bool,
    typer.Option(
        "--positive",
        rich_help_panel=Panel.HEADS,
        help="Select all heads with a positive score.",
    ),
]
README = "README.md"


def mask_command(
    heads: HeadMapFile,
    output: EditFolder,
    top: Top = None,
    bottom: Bottom = None,
    positive: Positive = False,
) -> None:
    """Write an edit that masks heads of a map (Targeted-Debias).

    Measure it with `levelhead measure MODEL -m NAME --edit FOLDER --against base`. `levelhead
    export` writes plain weights of it. Exit 2 if the map's direction of bias is unknown. Warns
    unless all selected heads are confirmed by ablation on held-out items.
    """
    _write_head_edit(heads, output, 0.0, top=top, bottom=bottom, positive=positive)


def scale_command(
    heads: HeadMapFile,
    output: EditFolder,
    factor: Annotated[
        float,
        typer.Option(
            metavar="FACTOR",
            rich_help_panel=Panel.HEADS,
            help="Factor of the heads' outputs: 0 masks, 1 changes nothing, 2 doubles.",
        ),
    ],
    top: Top = None,
    bottom: Bottom = None,
    positive: Positive = False,
) -> None:
    """Write an edit that scales heads of a map.

    A factor above 1 amplifies the heads. Everything else is as in `mask`.
    """
    _write_head_edit(heads, output, factor, top=top, bottom=bottom, positive=positive)


def _write_head_edit(
    heads: str,
    output: str,
    factor: float,
    *,
    top: int | None,
    bottom: int | None,
    positive: bool,
) -> None:
    from pathlib import Path

    from levelhead.cli.explain.explain import read_head_map, split_by_sign
    from levelhead.core.errors import LevelheadError
    from levelhead.core.files import write_atomic
    from levelhead.locate.head_map import head_label
    from levelhead.mitigate.heads.mask import confirm_heads, scale_heads
    from levelhead.models.edits.files import save_edits
    from levelhead.models.export.save import prepare_new_folder

    if sum([top is not None, bottom is not None, positive]) != 1:
        raise typer.BadParameter("select heads by --top N, --bottom N or --positive")
    loaded_map = read_head_map(heads)
    # Without a known sign nobody can say whether masking lowers or raises the bias: exit 2.
    sites, _ = split_by_sign(loaded_map)
    if top is not None:
        sites = loaded_map.top(top)
    elif bottom is not None:
        sites = loaded_map.bottom(bottom)
    if not sites:
        raise LevelheadError(
            "the selection has no heads",
            hint="select other heads, or leave the model unchanged",
        )
    # Before anything is written: a folder that is not new is refused.
    prepare_new_folder(Path(output))
    confirmation = confirm_heads(loaded_map, sites)
    head_names = ", ".join(map(head_label, sites))
    model = loaded_map.provenance.model
    # The edit comes last: a folder without it is never read as one.
    page = _render_readme(
        f"{len(sites)} heads of {model} times {factor:g}", head_names, str(confirmation)
    )
    write_atomic(str(Path(output, README)), page.encode())
    save_edits([scale_heads(sites, factor)], output)
    # Scores only rank heads; the effect of ablation on held-out items is the evidence
    # (decision 0009). Hence a warning without it, but no refusal.
    if confirmation.is_complete:
        typer.echo(f"{confirmation}")
    else:
        typer.echo(f"levelhead: warning: {confirmation}", err=True)
    typer.echo(f"{output}: {len(sites)} heads of {loaded_map.provenance.model} times {factor:g}")
    typer.echo(f"  heads (layer-head, counted from 1): {head_names}")
    typer.echo(
        "  its bias reduction and utility cost are not known until measured: levelhead measure "
        "--edit"
    )


def _render_readme(title: str, head_names: str, confirmation: str) -> str:
    """Render the README of an edit of heads."""
    return (
        f"# {title}\n\n"
        f"Heads (layer-head, counted from 1): {head_names}.\n\n"
        f"**{confirmation}.**\n\n"
        "Its bias reduction and utility cost are not known until measured: levelhead measure "
        "--edit.\n"
    )


add_command(
    app,
    "project",
    project_command,
    "levelhead mitigate project bert-base-uncased --edit-point penultimate -o edit",
)
add_command(
    app,
    "prompt",
    prompt_command,
    "levelhead mitigate prompt gpt2 -o prefix.json",
    command_class=CachingCommand,
)
add_command(
    app,
    "select",
    select_edit_command,
    "levelhead mitigate select classifier --dev dev.csv --test test.csv -o edit",
    "levelhead mitigate select classifier --dev dev.csv --test test.csv --full-grid",
    command_class=CachingCommand,
)
add_command(
    app,
    "mask",
    mask_command,
    "levelhead mitigate mask heads.json --top 5 -o edit",
    "levelhead measure bert-base-uncased -m seat --edit edit --against base",
)
add_command(
    app,
    "scale",
    scale_command,
    "levelhead mitigate scale heads.json --top 5 --factor 0.5 -o edit",
)
add_command(
    app,
    "cda",
    cda_command,
    "levelhead mitigate cda bert-base-uncased --corpus texts.txt -o trained",
    command_class=ResumableCommand,
)
add_command(
    app,
    "dropout",
    dropout_command,
    "levelhead mitigate dropout bert-base-uncased --corpus texts.txt -o trained",
    command_class=ResumableCommand,
)
add_command(
    app,
    "context-debias",
    context_debias_command,
    "levelhead mitigate context-debias bert-base-uncased --corpus texts.txt -o out",
    command_class=ResumableCommand,
)
add_command(
    app,
    "auto-debias",
    auto_debias_command,
    "levelhead mitigate auto-debias bert-base-uncased --corpus texts.txt -o trained",
    command_class=ResumableCommand,
)
add_command(
    app,
    "dpo",
    dpo_command,
    "levelhead mitigate dpo gpt2 --corpus texts.txt -o trained",
    command_class=ResumableCommand,
)
add_command(
    app,
    "npo",
    npo_command,
    "levelhead mitigate npo gpt2 --corpus texts.txt -o trained",
    command_class=ResumableCommand,
)
