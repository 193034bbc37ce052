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
    from levelhead.models.load import load

    lm = load(model, revision=revision, dtype=dtype, edit=edit, allow_pickle=allow_pickle)
    lm.save_pretrained(output)
    kinds = ", ".join(sorted({part.kind for part in lm.edits}))
    typer.echo(f"{output}: {model} with {len(lm.edits)} edits folded in ({kinds})")
