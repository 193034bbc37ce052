"""`levelhead bake MODEL --edit EDIT -o FOLDER`: the edited model as plain weights."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.shared.options import AllowPickle, Dtype, Model, Revision


def bake(
    model: Model,
    edit: Annotated[str, typer.Option(help="A folder that save_edits wrote.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A new folder for the model.")],
    with_edit_file: Annotated[
        bool,
        typer.Option(
            "--with-edit-file",
            help="Leave the weights as they are and write the edit beside them, with the lines of "
            "PyTorch that apply it: for edits that plain weights cannot carry.",
        ),
    ] = False,
    revision: Revision = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Fold an edit into a model's weights; plain transformers loads the result.

    Exit 3, and the way out, if plain weights cannot carry the edit exactly. README.md in the folder
    says what was edited.
    """
    from pathlib import Path

    from levelhead.models.edits.files import save_seen, seen_by_edits
    from levelhead.models.export.save import new_folder
    from levelhead.models.loading.load import load

    new_folder(Path(output))
    lm = load(model, revision=revision, dtype=dtype, edit=edit, allow_pickle=allow_pickle)
    lm.save_pretrained(output, with_edit_file=with_edit_file)
    if with_edit_file:
        save_seen(seen_by_edits(edit) or (), output)
    where = "beside the base's weights" if with_edit_file else "folded in"
    typer.echo(f"{output}: {model} in {dtype}, with {len(lm.edits)} edit(s) {where}:")
    for part in lm.edits:
        typer.echo(f"  {part.kind} at {', '.join(map(str, part.at))}")
    if with_edit_file:
        typer.echo(
            "  the lines of README.md in it load the edited model, without levelhead; AutoModel\n"
            "  alone loads the base"
        )
    elif any(site.stream == "block_out" for part in lm.edits for site in part.at):
        typer.echo(
            "  block_out is folded into the pooler: it acts on the next-sentence head or the\n"
            "  classifier; the first token's own hidden state is the base's"
        )
