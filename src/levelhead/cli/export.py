"""The command that writes an edited model as plain weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import AllowPickle, Dtype, Model, RequiredEdit, Revision

if TYPE_CHECKING:
    from levelhead.models.sites import Site

PLACES = {"transformers": "merged", "peft": "as a LoRA adapter"}
"""Where the edits are, by format."""


def export_command(
    model: Model,
    edit: RequiredEdit,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            rich_help_panel=Panel.OUTPUT,
            help="New folder for the edited model.",
        ),
    ],
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            rich_help_panel=Panel.OUTPUT,
            help="Format: transformers for a checkpoint with the edit merged; peft for a LoRA "
            "adapter, which PEFT switches on and off; torch (torch.export) or onnx for one graph "
            "with the edit inside.",
        ),
    ] = "transformers",
    with_edit_file: Annotated[
        bool,
        typer.Option(
            "--with-edit-file",
            rich_help_panel=Panel.OUTPUT,
            help="Leave the weights unchanged, and write the edit and the lines of PyTorch that "
            "apply it next to them: for edits that plain weights cannot represent.",
        ),
    ] = False,
    revision: Revision = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write an edited model for other tools.

    Plain transformers loads the result, or the tool that --format names. README.md in the folder
    says what was edited. Exit 3, with a hint, if the format cannot represent the edit exactly.
    """
    from pathlib import Path

    from levelhead.models.edits.files import read_fitted_words, save_fitted_words
    from levelhead.models.export.formats import validate_format
    from levelhead.models.export.save import prepare_new_folder
    from levelhead.models.loading.load import load

    # Before the weights are read: a folder in use is refused in a second, not in a minute.
    checked_format = validate_format(file_format, with_edit_file=with_edit_file)
    prepare_new_folder(Path(output))
    lm = load(model, revision=revision, dtype=dtype, edit=edit, allow_pickle=allow_pickle)
    lm.save_pretrained(output, file_format=checked_format, with_edit_file=with_edit_file)
    if with_edit_file:
        # `levelhead probe` must keep these words out of its tests of the exported edit, too.
        save_fitted_words(read_fitted_words(edit) or (), output)
    location_text = PLACES.get(file_format, "inside a graph")
    if with_edit_file:
        location_text = "next to the base's weights"
    typer.echo(f"{output}: {model} in {dtype}, with {len(lm.edits)} edit(s) {location_text}:")
    for applied_edit in lm.edits:
        places = ", ".join(map(_format_site, applied_edit.sites))
        typer.echo(f"  {applied_edit.kind} at {places}")
    if with_edit_file:
        typer.echo(
            "  its README.md loads the edited model with PyTorch, without levelhead; AutoModel\n"
            "  alone loads the base"
        )
    # Merged into the pooler's weights, the edit does not show in the hidden states, unlike in the
    # edited model: say so before somebody reads them.
    elif file_format == "transformers" and any(
        site.stream == "block_out" for applied_edit in lm.edits for site in applied_edit.sites
    ):
        typer.echo(
            "  block_out is merged into the pooler: it acts on the next-sentence head or the\n"
            "  classifier; the first token's hidden state is that of the base"
        )


def _format_site(site: Site) -> str:
    """Format a head as in `levelhead locate`, and any other site by its stream and layer."""
    from levelhead.locate.head_map import head_label

    if site.stream == "head_out" and site.head is not None:
        return f"head {head_label(site)}"
    return str(site)
