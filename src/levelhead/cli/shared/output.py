"""What a command does with a result: a file, a picture, JSON or tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.core.results import Record


def told(
    result: Record,
    show: Callable[[], None],
    *,
    output: str | None,
    json: bool,
    chart: str | None = None,
) -> None:
    """Write a result where it is wanted, and show it.

    Args:
        result: what was found.
        show: prints it for people.
        output: a file for its JSON.
        json: print that instead.
        chart: a file for its picture.
    """
    from levelhead.core.files import write_atomic

    text = result.to_json() + "\n"
    if output is not None:
        write_atomic(output, text.encode())
    if chart is not None:
        from levelhead.report.charts.registry import chart as drawn
        from levelhead.report.charts.registry import save

        save(drawn(result), chart)
    if json:
        typer.echo(text, nl=False)
    else:
        show()
