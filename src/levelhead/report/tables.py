"""The tidy table of a run as files: CSV, Parquet, and LaTeX with intervals and marks."""

from __future__ import annotations

import io
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from levelhead.core.calibration import DAGGER, DAGGER_NOTE
from levelhead.core.errors import MissingExtraError
from levelhead.core.frames import make_frame
from levelhead.report.theme import format_interval, format_number
from levelhead.study.table import result_to_rows, to_csv
from levelhead.study.table_row import TableRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.frames import Backend
    from levelhead.core.results import Record

MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Upper bounds of p for each mark; p is corrected in a family of tests."""
NOTE = "*, **, ***: p at most 0.05, 0.01, 0.001, corrected in a family of tests."
LATEX_DAGGER = r"$^\dagger$"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def results_to_rows(results: Mapping[str, Record]) -> list[TableRow]:
    """All numbers of a run as table rows."""
    return [row for step, result in results.items() for row in result_to_rows(step, result)]


def results_to_frame(results: Mapping[str, Record], backend: Backend | None = None) -> Any:
    """Convert all numbers of a run to a data frame, with the columns of `table.csv`.

    Args:
        results: results by step, such as those of `load_results`.
        backend: pandas, polars or dict; by default the first that is installed.
    """
    return make_frame([row.model_dump() for row in results_to_rows(results)], backend)


def to_csv_bytes(table_rows: Sequence[TableRow]) -> bytes:
    """Write rows as CSV, the format of `table.csv`."""
    return to_csv(list(table_rows)).encode()


def to_parquet_bytes(table_rows: Sequence[TableRow]) -> bytes:
    """Write rows as Parquet, with column types, for polars, pandas and DuckDB."""
    try:
        polars: Any = import_module("polars")
    except ImportError:
        raise MissingExtraError("writing Parquet", "mine") from None
    float_columns = ("value", "low", "high", "level", "parity", "p", "adjusted", "detectable")
    kinds = dict.fromkeys(float_columns, polars.Float64) | dict.fromkeys(
        ("n", "dropped"), polars.Int64
    )
    # Explicit, because polars takes a column without values for one of type Null.
    schema = {name: kinds.get(name, polars.String) for name in TableRow.model_fields}
    file = io.BytesIO()
    polars.DataFrame([row.model_dump() for row in table_rows], schema=schema).write_parquet(file)
    return file.getvalue()


def to_latex_bytes(table_rows: Sequence[TableRow]) -> bytes:
    """Write rows as a LaTeX table for booktabs and longtable."""
    head = r"\textbf{step} & \textbf{of} & \textbf{number} & \textbf{value} & \textbf{interval} & "
    head += r"\textbf{over} \\"
    body = [
        " & ".join(
            (
                escape_latex(row.step),
                escape_latex(row.name),
                escape_latex(row.what) + LATEX_DAGGER * bool(row.mark),
                f"${format_number(row.value)}${significance_stars(row)}",
                ""
                if row.low is None or row.high is None
                else f"${format_interval(row.low, row.high)}$",
                "" if row.low is None else escape_latex(row.over),
            )
        )
        + r" \\"
        for row in table_rows
    ]
    notes = [escape_latex(NOTE)]
    if any(row.mark for row in table_rows):
        notes.append(LATEX_DAGGER + escape_latex(DAGGER_NOTE.removeprefix(DAGGER)))
    lines = [
        r"% needs \usepackage{booktabs,longtable}",
        r"\begin{longtable}{lllrll}",
        r"\toprule",
        head,
        r"\midrule",
        r"\endhead",
        *body,
        r"\bottomrule",
        r"\\".join(rf"\multicolumn{{6}}{{l}}{{\footnotesize {note}}}" for note in notes),
        r"\end{longtable}",
    ]
    return ("\n".join(lines) + "\n").encode()


def significance_stars(row: TableRow) -> str:
    """The stars of a row's p-value, corrected if it has a correction."""
    p = row.p if row.adjusted is None else row.adjusted
    return next((stars for threshold, stars in MARKS if p is not None and p <= threshold), "")


def escape_latex(text: str) -> str:
    r"""Escape a text so that LaTeX prints it unchanged.

    >>> escape_latex("50% of a_b")
    '50\\% of a\\_b'
    """
    # Sign by sign: one replacement after another would escape what an earlier one inserted.
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"\s+", " ", escaped)
