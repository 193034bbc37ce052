"""`levelhead doctor MODEL`: does everything levelhead relies on hold for this model, here?"""

from __future__ import annotations

import shutil
import sys
import textwrap

import typer

from levelhead.cli.shared.exit_codes import ERROR, ExitWith
from levelhead.cli.shared.options import AllowPickle, BatchSize, Device, Dtype, Model, Revision

MARKS = {True: "\u2713", False: "\u2717", None: "\u2013"}
PLAIN = {True: "ok", False: "FAILS", None: "-"}
COLOURS = {True: typer.colors.GREEN, False: typer.colors.RED, None: None}


def wrapped(text: str) -> str:
    """Behind the marks, in the width of the terminal."""
    indent = " " * 18
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


def doctor(
    model: Model,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
    batch_size: BatchSize = 32,
) -> None:
    """Check a model: masks act, gradients are right, edits bake, nothing is left behind.

    A line for each property, tried on this model with the installed versions. Exit 0 if all hold,
    3 if one does not.
    """
    from levelhead.models.diagnostics.doctor import examine
    from levelhead.models.loading.load import load

    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    anatomy = lm.anatomy
    typer.echo(str(lm))
    if anatomy.kv_heads < anatomy.heads:
        typer.echo(f"  {anatomy.kv_heads} heads for keys and values")
    if lm.tokens.bos is not None:
        begin = lm.tokens.tokenizer.convert_ids_to_tokens(lm.tokens.bos)
        typer.echo(f"  {begin} is put before every text; the tokenizer leaves it out")
    failed = False
    marks = MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else PLAIN
    for finding in examine(lm):
        mark = typer.style(f"{marks[finding.holds]:>5}", fg=COLOURS[finding.holds])
        typer.echo(f"{mark} {finding.check:<10}  {finding.told}")
        if finding.holds is False:
            failed = True
            typer.echo(wrapped(f"mend: {finding.mend}"))
    if failed:
        raise ExitWith(ERROR)
