"""`levelhead correlate FILES`: do measures agree about which models are more biased?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import Json, Level, Output

if TYPE_CHECKING:
    from levelhead.measures.robustness.measure_agreement import MeasureAgreement


def correlate_command(
    results: Annotated[
        list[str] | None,
        typer.Argument(help="Files that `levelhead measure -o` wrote, or folders of them."),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="CSV file instead, with one row per model and one column per measure."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Column of the table; all numeric ones by default.")
    ] = None,
    level: Level = 0.95,
    output: Output = None,
    json: Json = False,
) -> None:
    """Correlate measures by rank over models or edits.

    Prints Spearman's correlations with intervals and n. Exit 3 if no two measures can be compared.
    """
    from levelhead.measures.robustness.measure_agreement import (
        agreement_from_csv,
        agreement_from_results,
    )

    if (table is None) == (not results):
        raise typer.BadParameter("give result files, or --table with a CSV file")
    agreement = (
        agreement_from_csv(table, column or (), level=level)
        if table is not None
        else agreement_from_results(results or [], level=level)
    )
    text = agreement.to_json()
    if output is not None:
        from levelhead.core.files import write_atomic

        write_atomic(output, text.encode())
    if json:
        typer.echo(text)
    else:
        _show(agreement)


def _show(agreement: MeasureAgreement) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    by_pair = {frozenset((cell.first, cell.second)): cell for cell in agreement.cells}
    matrix = Table(box=None, pad_edge=False, header_style="bold")
    # Columns are headed by numbers: names of measures would not fit side by side.
    matrix.add_column("Spearman")
    for i, _ in enumerate(agreement.measures, 1):
        matrix.add_column(str(i), justify="right")
    for i, first in enumerate(agreement.measures, 1):
        cells = [by_pair.get(frozenset((first, second))) for second in agreement.measures]
        cell_texts = [
            "1" if first == second else "" if cell is None else f"{cell.spearman:.2f}"
            for second, cell in zip(agreement.measures, cells, strict=True)
        ]
        matrix.add_row(f"{i} {first}", *cell_texts)
    console.print(matrix)
    pairs = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pair", "Spearman", "interval", "p (Holm)", "n"):
        pairs.add_column(name, justify="left" if name in ("pair", "interval") else "right")
    # k measures make k (k - 1) / 2 tests: the p-values are corrected by Holm.
    for cell in agreement.cells:
        p = cell.p.value if cell.p.adjusted is None else cell.p.adjusted
        pair = f"{cell.first}, {cell.second}"
        pairs.add_row(pair, f"{cell.spearman:.3f}", str(cell.interval), f"{p:.3g}", str(cell.n))
    console.print(pairs)
    for name, direction in agreement.directions:
        console.print(Text(f"{name}: {direction}"), soft_wrap=True)
    for note in agreement.notes:
        console.print(Text(note), soft_wrap=True)
