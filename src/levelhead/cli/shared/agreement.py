"""`levelhead measure --agreement RESULTS`: do measures agree about which models are more biased?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.robustness.measure_agreement import MeasureAgreement


def show_agreement(
    paths: Sequence[str], columns: Sequence[str], *, level: float, output: str | None, json: bool
) -> None:
    """Print Spearman's correlations of measures with intervals and n.

    Args:
        paths: files that `levelhead measure -o` wrote, folders of them, or one CSV file with a row
            per model and a column per measure.
        columns: columns of the CSV file; all numeric ones by default.
        level: confidence level of the intervals.
        output: file for the JSON result.
        json: whether to print JSON instead of tables.
    """
    from levelhead.measures.robustness.measure_agreement import (
        agreement_from_csv,
        agreement_from_results,
    )

    is_table = paths[0].endswith(".csv")
    if is_table and len(paths) > 1:
        raise typer.BadParameter("give result files, or one CSV file")
    # An option without effect is refused: it would look as if it had chosen something.
    if columns and not is_table:
        raise typer.BadParameter("-m names columns of a .csv table: result files name measures")
    agreement = (
        agreement_from_csv(paths[0], columns, level=level)
        if is_table
        else agreement_from_results(paths, level=level)
    )
    text = agreement.to_json()
    if output is not None:
        from levelhead.core.files import write_atomic

        write_atomic(output, text.encode())
    if json:
        typer.echo(text)
    else:
        _print_tables(agreement)


def _print_tables(agreement: MeasureAgreement) -> None:
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
