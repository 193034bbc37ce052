"""Options that several commands share, named like the Python keywords."""

from __future__ import annotations

from typing import Annotated

import typer


def check_output_path(path: str | None) -> str | None:
    """Refuse a file that cannot be written."""
    from levelhead.core.files import check_writable

    # typer calls this while it parses options: the error comes before hours of work, not after.
    if path is not None:
        check_writable(path)
    return path


def _check_chart_path(path: str | None) -> str | None:
    """Refuse a chart's file that cannot be written or whose ending names no format."""
    from levelhead.report.save import renderer_for

    if path is not None:
        renderer_for(path)
    return check_output_path(path)


Model = Annotated[
    str, typer.Argument(help="Hub id, folder written by save_pretrained, or .gguf file.")
]
ModelOrServer = Annotated[
    str,
    typer.Argument(
        help="Hub id, folder written by save_pretrained, .gguf file, or address of a server such "
        "as http://127.0.0.1:8080."
    ),
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the Hub.")]
Device = Annotated[str | None, typer.Option(help="Device that runs the model: cpu, cuda:0.")]
Dtype = Annotated[
    str, typer.Option(help="Precision of the weights: float32, float64, bfloat16, float16.")
]
AllowPickle = Annotated[
    bool,
    # Unpickling runs the code that is in the file, so it is never the default.
    typer.Option("--allow-pickle", help="Read pickled weights; only if you trust their author."),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", callback=check_output_path, help="File for the JSON result."),
]
Chart = Annotated[
    str | None,
    typer.Option(callback=_check_chart_path, help="File for the chart: .svg, .png or .html."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print how much this would compute, and how long it would take; nothing is written.",
    ),
]
Resamples = Annotated[int, typer.Option(help="Number of bootstrap resamples.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
BatchSize = Annotated[int, typer.Option(help="Number of texts in a batch.")]
