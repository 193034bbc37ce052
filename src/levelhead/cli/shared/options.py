"""Options that several verbs share, named as the Python keywords are."""

from __future__ import annotations

from typing import Annotated

import typer


def to_write(place: str | None) -> str | None:
    """A file that can be written: refused here, not after hours of work."""
    from levelhead.core.files import expect_writable

    if place is not None:
        expect_writable(place)
    return place


def _picture(place: str | None) -> str | None:
    """The same, with an ending that says how to draw."""
    from levelhead.report.save import drawn_as

    if place is not None:
        drawn_as(place)
    return to_write(place)


Model = Annotated[
    str, typer.Argument(help="A Hub id, a folder written by save_pretrained, or a .gguf file.")
]
ModelOrServer = Annotated[
    str,
    typer.Argument(help="As for other commands, or a server: http://127.0.0.1:8080."),
]
Revision = Annotated[str | None, typer.Option(help="A branch, tag or commit of the Hub.")]
Device = Annotated[str | None, typer.Option(help="Where the model runs: cpu, cuda:0.")]
Dtype = Annotated[str, typer.Option(help="Precision: float32, float64, bfloat16, float16.")]
AllowPickle = Annotated[
    bool,
    typer.Option("--allow-pickle", help="Read pickled weights. Only if you trust them."),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", callback=to_write, help="Write JSON to this file.")
]
Chart = Annotated[
    str | None, typer.Option(callback=_picture, help="Draw it: a .svg, .png or .html file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Draws = Annotated[int, typer.Option(help="Resamples for an interval.")]
Level = Annotated[float, typer.Option(help="Confidence level.")]
BatchSize = Annotated[int, typer.Option(help="Texts read at a time.")]
