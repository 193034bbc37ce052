"""`levelhead correlate FILES`: do the rulers agree about which models are more biased?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import Json, Level, Output

if TYPE_CHECKING:
    from levelhead.measures.robustness.measure_agreement import Agreement


def correlate(
    results: Annotated[
        list[str] | None,
        typer.Argument(help="Files that `levelhead measure -o` wrote, or folders of them."),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="A CSV file instead: a row a model, a column a ruler.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A column of the table; by default all of numbers.")
    ] = None,
    level: Level = 0.95,
    output: Output = None,
    json: Json = False,
) -> None:
    """Rank correlations between measures, over models or edits, with intervals and n.

    Exit 3 if no two rulers can be compared.
    """
    from levelhead.measures.robustness.measure_agreement import columns_of, measured

    if (table is None) == (not results):
        raise typer.BadParameter("give result files, or --table with a CSV file")
    found = (
        columns_of(table, column or (), level=level)
        if table is not None
        else measured(results or [], level=level)
    )
    text = found.to_json()
    if output is not None:
        from levelhead.core.files import write_atomic

        write_atomic(output, text.encode())
    if json:
        typer.echo(text)
    else:
        _show(found)


def _show(found: Agreement) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    by_pair = {frozenset((cell.first, cell.second)): cell for cell in found.cells}
    matrix = Table(box=None, pad_edge=False, header_style="bold")
    matrix.add_column("Spearman")
    for i, _ in enumerate(found.rulers, 1):
        matrix.add_column(str(i), justify="right")
    for i, first in enumerate(found.rulers, 1):
        cells = [by_pair.get(frozenset((first, second))) for second in found.rulers]
        shown = [
            "1" if first == second else "" if cell is None else f"{cell.spearman:.2f}"
            for second, cell in zip(found.rulers, cells, strict=True)
        ]
        matrix.add_row(f"{i} {first}", *shown)
    console.print(matrix)
    pairs = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pair", "Spearman", "interval", "p (Holm)", "n"):
        pairs.add_column(name, justify="left" if name in ("pair", "interval") else "right")
    for cell in found.cells:
        p = cell.p.value if cell.p.adjusted is None else cell.p.adjusted
        pair = f"{cell.first}, {cell.second}"
        pairs.add_row(pair, f"{cell.spearman:.3f}", str(cell.interval), f"{p:.3g}", str(cell.n))
    console.print(pairs)
    for name, direction in found.directions:
        console.print(Text(f"{name}: {direction}"), soft_wrap=True)
    for note in found.notes:
        console.print(Text(note), soft_wrap=True)
