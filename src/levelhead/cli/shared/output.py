"""Write a command's result: JSON file, chart, JSON on standard output, or tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.core.results import Record


def write_result(
    result: Record,
    show: Callable[[], None],
    *,
    output: str | None,
    json: bool,
    chart: str | None = None,
) -> None:
    """Write a result to the files that the user named, and print it.

    Args:
        result: the result.
        show: prints the result as tables.
        output: file for its JSON.
        json: whether to print JSON instead of tables.
        chart: file for its chart.
    """
    from levelhead.core.files import write_atomic

    text = result.to_json() + "\n"
    # To the file first: whatever fails while printing costs no result.
    if output is not None:
        write_atomic(output, text.encode())
    # The JSON is written first: a chart that fails (a missing extra) costs no result.
    if chart is not None:
        from levelhead.report.charts.registry import chart as make_chart
        from levelhead.report.charts.registry import save

        save(make_chart(result), chart)
    if json:
        typer.echo(text, nl=False)
    else:
        show()
