"""`levelhead doctor MODEL`: does everything levelhead relies on hold for this model, here?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from levelhead.cli.exits import ERROR, ExitWith
from levelhead.cli.options import AllowPickle, Device, Dtype, Model, Revision

MARKS = {True: "\u2713", False: "\u2717", None: "\u2013"}
PLAIN = {True: "ok", False: "FAILS", None: "-"}
COLOURS = {True: typer.colors.GREEN, False: typer.colors.RED, None: None}


def doctor(
    model: Model,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
    batch_size: Annotated[int, typer.Option(help="Texts read at a time.")] = 32,
) -> None:
    """Check a model: masks act, gradients are right, edits bake, nothing is left behind.

    A line for each property, tried on this model with the installed versions. Exit 0 if all hold,
    3 if one does not.
    """
    from levelhead.models.doctor import examine
    from levelhead.models.load import load

    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    anatomy = lm.anatomy
    kv = f", {anatomy.kv_heads} for keys and values" if anatomy.kv_heads < anatomy.heads else ""
    first = "" if lm.tokens.bos is None else "; <bos> is put first, the tokenizer leaves it out"
    typer.echo(
        f"{model}: {type(anatomy.model).__name__}, {anatomy.layers} layers x {anatomy.heads} heads"
        f"{kv}; heads for {', '.join(sorted(lm.heads)) or 'nothing: embeddings only'}{first}"
    )
    failed = False
    marks = MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else PLAIN
    for finding in examine(lm):
        mark = typer.style(f"{marks[finding.holds]:>5}", fg=COLOURS[finding.holds])
        typer.echo(f"{mark} {finding.check:<10}  {finding.told}")
        if finding.holds is False:
            failed = True
            typer.echo(f"{'':18}mend: {finding.mend}")
    if failed:
        raise ExitWith(ERROR)
