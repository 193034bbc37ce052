"""`levelhead mitigate project MODEL --edit-point POINT`: project a subspace out of activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Groups,
    LexiconName,
    Model,
    Quiet,
    Revision,
)
from levelhead.cli.shared.progress import show_steps
from levelhead.core.errors import require_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.edits.base import Projection


def project_command(
    model: Model,
    edit_point: Annotated[
        str,
        typer.Option(
            metavar="POINT",
            rich_help_panel=Panel.EDIT,
            help="Where to edit: sent, last, penultimate or penultimate+attn; by the model's depth "
            "also layer12, layer11 or layer11+attn; or a setting, such as 'last 0,1,1'.",
        ),
    ],
    lexicon: LexiconName = "gender-en",
    groups: Groups = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            metavar="N",
            rich_help_panel=Panel.DATA,
            help="Number of pairs of texts to fit on; all by default.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="SEED", rich_help_panel=Panel.DATA, help="Random seed of the sampled pairs."
        ),
    ] = 0,
    weighted: Annotated[
        bool | None,
        typer.Option(
            "--weighted/--hard",
            rich_help_panel=Panel.EDIT,
            help="Remove directions by their share of explained variance (the default), or fully.",
        ),
    ] = None,
    n_components: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.EDIT,
            help="Number of directions at last and penultimate: 1 (the default) or 2.",
        ),
    ] = None,
    fit_on: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.EDIT,
            help="Model to fit on: base (the unedited model) or cumulative (edited site by site).",
        ),
    ] = "base",
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.EDIT,
            help="Tokens to read: first, mean, word or last; the edited tokens by default.",
        ),
    ] = None,
    centered: Annotated[
        bool,
        typer.Option(
            "--centered",
            rich_help_panel=Panel.EDIT,
            help="Centre the differences of the pairs first, for comparison.",
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            rich_help_panel=Panel.OUTPUT,
            help="New folder for the edit.",
        ),
    ] = None,
    quiet: Quiet = False,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write an edit that projects a subspace out of activations.

    The projection acts at a level and at all levels after it. Measure it with `levelhead measure
    MODEL -m NAME --edit FOLDER --against base`. Without -o the subspaces are printed and nothing
    is written.
    """
    from pathlib import Path

    from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs, contrast_pairs_digest
    from levelhead.data.counterfactuals.held_out import fitted_words
    from levelhead.mitigate.projection import edit_points
    from levelhead.mitigate.projection.subspace import drop_unreadable_pairs, parse_pooling
    from levelhead.models.edits.files import EditOrigin, save_edits
    from levelhead.models.export.save import prepare_new_folder
    from levelhead.models.loading.load import load

    if output is not None:
        # Before the model is loaded: a folder that is not new fails at once.
        prepare_new_folder(Path(output))
    text_pairs = contrast_pairs(
        lexicon, groups=groups.split(",") if groups else None, n=n, seed=seed
    )
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    config = edit_points.resolve_config(
        lm, edit_point, weighted=weighted, n_components=n_components
    )
    # A model that lacks a word of a pair reads both texts alike: the pair has no direction.
    readable_pairs, dropped = drop_unreadable_pairs(lm, text_pairs)
    with show_steps(quiet=quiet) as on_step:
        edits = edit_points.project(
            lm.with_progress(lambda done, total: on_step("texts", done, total)),
            config,
            readable_pairs,
            fit_on=require_option("way of fitting", fit_on, get_args(edit_points.FitOn)),
            pooling=parse_pooling(pooling),
            centered=centered,
        )
    if output is not None:
        # The fitted words go along: `levelhead probe` tests an edit on other words only.
        origin_details = {
            "setting": str(config),
            "lexicon": Path(lexicon).name,
            "pairs": {"n": len(readable_pairs), "sha256": contrast_pairs_digest(readable_pairs)},
            "fitted": fit_on,
            "at": pooling,
            "centered": centered,
        }
        save_edits(
            edits,
            output,
            fitted_words=fitted_words(readable_pairs),
            origin=EditOrigin.from_model(lm, **origin_details),
        )
    typer.echo(f"{output or 'not written (give -o)'}: {config} of {lm.identity.name}")
    typer.echo(f"  fitted on {len(readable_pairs)} pairs of texts (model: {fit_on})")
    # Reasons end with the text that they are about: without it, equal ones are counted together.
    for reason in sorted({row.reason.partition(" in ")[0] for row in dropped}):
        count = sum(row.reason.startswith(reason) for row in dropped)
        typer.echo(f"  left out: {count} ({reason})")
    if config.pooled is None:
        typer.echo("  the model has no pooled vector: the first level is last")
    _show(edits)
    typer.echo(
        "  its bias reduction and utility cost are not known until measured: levelhead measure "
        "--edit"
    )


def _show(edits: Sequence[Projection]) -> None:
    """Print one line per site; the heads of a layer share a line."""
    from itertools import groupby

    for (stream, layer), group in groupby(edits, key=lambda edit: edit.site[:2]):
        site_edits = list(group)
        site_text = (
            str(site_edits[0].site)
            if site_edits[0].site.head is None
            else f"{stream} {layer}, every head"
        )
        weights_text = ", ".join(f"{weight:.3f}" for weight in site_edits[0].weights.tolist())
        typer.echo(f"  {site_text}: {weights_text} removed from {site_edits[0].tokens} tokens")
