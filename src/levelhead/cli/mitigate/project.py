"""`levelhead mitigate project MODEL --level LEVEL`: a subspace taken out of activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import AllowPickle, BatchSize, Device, Dtype, Model, Revision
from levelhead.cli.shared.progress import steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.edits.base import Projection


def project(
    model: Model,
    level: Annotated[
        str,
        typer.Option(
            help="sent, last, penultimate, penultimate+attn; by the model's depth also layer12, "
            "layer11, layer11+attn; or a setting, such as 'last 0,1,1'."
        ),
    ],
    lexicon: Annotated[
        str, typer.Option(help="A lexicon's name or TOML file; its pairs are put into frames.")
    ] = "gender-en",
    groups: Annotated[
        str | None, typer.Option(help="Two of its groups, with a comma; by default the first two.")
    ] = None,
    n: Annotated[int | None, typer.Option(help="How many pairs of texts; all by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of the choice of n pairs.")] = 0,
    weighted: Annotated[
        bool | None,
        typer.Option(
            "--weighted/--hard",
            help="By the share of variance explained, which is the default, or wholly.",
        ),
    ] = None,
    dims: Annotated[
        int | None,
        typer.Option(help="Directions at last and penultimate: 1, which is the default, or 2."),
    ] = None,
    fitted: Annotated[
        str, typer.Option(help="On the model as it is (original), or site by site (sequential).")
    ] = "original",
    at: Annotated[
        str | None,
        typer.Option(help="Tokens read: first, mean, word, last; by default those edited."),
    ] = None,
    centered: Annotated[
        bool, typer.Option("--centered", help="Centre the differences first; for comparison.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A new folder for the edit.")
    ] = None,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write an edit that projects a subspace out at a level and at all after it.

    Measure it with `levelhead measure MODEL -m NAME --edit FOLDER --against base`. Without -o the
    subspaces are told and nothing is written.
    """
    from pathlib import Path

    from levelhead.data.counterfactuals.contrast_pairs import paired, pairs_hash
    from levelhead.data.counterfactuals.held_out import seen_words
    from levelhead.mitigate.projection import edit_points as levels
    from levelhead.mitigate.projection.subspace import readable
    from levelhead.models.edits.files import Origin, save_edits
    from levelhead.models.export.save import new_folder
    from levelhead.models.loading.load import load

    if output is not None:
        new_folder(Path(output))
    pairs = paired(lexicon, groups=groups.split(",") if groups else None, n=n, seed=seed)
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    setting = levels.setting_of(lm, level, weighted=weighted, dims=dims)
    kept, dropped = readable(lm, pairs)
    with steps() as tell:
        edits = levels.project(
            lm.telling(lambda done, total: tell("texts", done, total)),
            setting,
            kept,
            fitted=fitted,  # type: ignore[arg-type]  # project checks it
            at=at,  # type: ignore[arg-type]  # so does reading
            centered=centered,
        )
    if output is not None:
        how = {
            "setting": str(setting),
            "lexicon": Path(lexicon).name,
            "pairs": {"n": len(kept), "sha256": pairs_hash(kept)},
            "fitted": fitted,
            "at": at,
            "centered": centered,
        }
        save_edits(edits, output, seen=seen_words(kept), origin=Origin.of(lm, **how))
    typer.echo(f"{output or 'not written (give -o)'}: {setting} of {lm.identity.name}")
    typer.echo(f"  fitted on {len(kept)} pairs of texts, {fitted}")
    for reason in sorted({row.reason.partition(" in ")[0] for row in dropped}):
        count = sum(row.reason.startswith(reason) for row in dropped)
        typer.echo(f"  left out: {count} ({reason})")
    if setting.sent is None:
        typer.echo("  the model has no pooled vector: its levels start at last")
    _show(edits)
    typer.echo("  what it buys and costs is not known until measured: levelhead measure --edit")


def _show(edits: Sequence[Projection]) -> None:
    """A line a site; the heads of one stream together."""
    from itertools import groupby

    for (stream, layer), found in groupby(edits, key=lambda edit: edit.site[:2]):
        own = list(found)
        where = str(own[0].site) if own[0].site.head is None else f"{stream} {layer}, every head"
        taken = ", ".join(f"{weight:.3f}" for weight in own[0].weights.tolist())
        typer.echo(f"  {where}: {taken} taken out of {own[0].tokens} tokens")
