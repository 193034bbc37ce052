"""`levelhead bake MODEL --edit EDIT -o FOLDER`: the edited model as plain weights."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.options import AllowPickle, Dtype, Model, Revision


def bake(
    model: Model,
    edit: Annotated[str, typer.Option(help="A folder that save_edits wrote.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A new folder for the model.")],
    revision: Revision = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Fold an edit into a model's weights; plain transformers loads the result.

    Exit 3, and the way out, if plain weights cannot carry the edit exactly.
    """
    from pathlib import Path

    from levelhead.models.load import load
    from levelhead.models.save import new_folder

    new_folder(Path(output))
    lm = load(model, revision=revision, dtype=dtype, edit=edit, allow_pickle=allow_pickle)
    lm.save_pretrained(output)
    typer.echo(f"{output}: {model} in {dtype}, with {len(lm.edits)} edit(s) folded in:")
    for part in lm.edits:
        typer.echo(f"  {part.kind} at {', '.join(map(str, part.at))}")
    if any(site.stream == "block_out" for part in lm.edits for site in part.at):
        typer.echo(
            "  block_out is folded into the pooler: it acts on the next-sentence head or the\n"
            "  classifier; the first token's own hidden state is the base's"
        )
