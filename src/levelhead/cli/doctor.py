"""`levelhead doctor MODEL`: check on a model what levelhead relies on."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import typer

from levelhead.cli.shared.exit_codes import ERROR, ExitWithCode
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Json,
    Model,
    Revision,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.diagnostics.doctor import CheckResult
    from levelhead.models.lm import LM

# None: a check that does not apply to the model.
MARKS = {True: "\u2713", False: "\u2717", None: "\u2013"}
ASCII_MARKS = {True: "ok", False: "FAILS", None: "-"}
COLOURS = {True: typer.colors.GREEN, False: typer.colors.RED, None: None}


def wrap_text(text: str) -> str:
    """Wrap a text to the width of the terminal, indented below the checks' messages.

    Args:
        text: the text.
    """
    # The mark (5), a space, the check's name (10) and two spaces.
    indent = " " * 18
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


def doctor_command(
    model: Model,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Check that masks, gradients and edits work on a model.

    Prints a line for each property, tested on this model with the installed versions: masks have an
    effect, gradients are correct, edits merge into the weights, no hook remains. Exit 0 if all
    hold, 3 if one does not.
    """
    from levelhead.models.diagnostics.doctor import run_checks
    from levelhead.models.loading.load import load

    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    results = list(run_checks(lm))
    if json:
        _print_json(str(lm), results)
    else:
        _print_lines(lm, results)
    if any(result.holds is False for result in results):
        raise ExitWithCode(ERROR)


def _print_json(model: str, results: Sequence[CheckResult]) -> None:
    from levelhead.core.canonical_json import to_canonical_json

    document = {"model": model, "checks": [result._asdict() for result in results]}
    typer.echo(to_canonical_json(document).decode())


def _print_lines(lm: LM, results: Sequence[CheckResult]) -> None:
    layout = lm.layout
    typer.echo(str(lm))
    if layout.kv_heads < layout.heads:
        typer.echo(f"  {layout.kv_heads} heads for keys and values (grouped-query attention)")
    if lm.tokens.bos is not None:
        bos_token = lm.tokens.tokenizer.convert_ids_to_tokens(lm.tokens.bos)
        typer.echo(f"  {bos_token} is put before every text; the tokenizer omits it")
    # A terminal of another encoding would end with an error instead of a check mark.
    marks = MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else ASCII_MARKS
    for result in results:
        mark = typer.style(f"{marks[result.holds]:>5}", fg=COLOURS[result.holds])
        typer.echo(f"{mark} {result.check:<10}  {result.message}")
        if result.holds is False:
            typer.echo(wrap_text(f"hint: {result.hint}"))
    n_failed = sum(result.holds is False for result in results)
    n_passed = sum(result.holds is True for result in results)
    n_skipped = len(results) - n_failed - n_passed
    skipped_text = f", {n_skipped} do not apply" if n_skipped else ""
    typer.echo(f"{n_passed} checks passed, {n_failed} failed{skipped_text}")
