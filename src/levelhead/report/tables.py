"""The tidy table of a run as files: CSV, Parquet, and LaTeX with intervals and marks."""

from __future__ import annotations

import io
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from levelhead.core.calibration import MISSED, MISSES
from levelhead.core.errors import MissingExtra
from levelhead.report.theme import ends, number
from levelhead.study.row import Row
from levelhead.study.table import rows, to_csv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.results import Record

MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""At most this p, corrected where it is one of a family."""
NOTE = "*, **, ***: p at most 0.05, 0.01, 0.001, corrected where a number is one of a family."
DAGGER = r"$^\dagger$"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def table_of(results: Mapping[str, Record]) -> list[Row]:
    """Every number of a run."""
    return [row for step, one in results.items() for row in rows(step, one)]


def csv(found: Sequence[Row]) -> bytes:
    """As `table.csv`."""
    return to_csv(list(found)).encode()


def parquet(found: Sequence[Row]) -> bytes:
    """The same with types, for polars, pandas, DuckDB."""
    try:
        polars: Any = import_module("polars")
    except ImportError:
        raise MissingExtra("writing Parquet", "mine") from None
    real = ("value", "low", "high", "level", "parity", "p", "adjusted", "detectable")
    kinds = dict.fromkeys(real, polars.Float64) | dict.fromkeys(("n", "dropped"), polars.Int64)
    schema = {name: kinds.get(name, polars.String) for name in Row.model_fields}
    file = io.BytesIO()
    polars.DataFrame([row.model_dump() for row in found], schema=schema).write_parquet(file)
    return file.getvalue()


def latex(found: Sequence[Row]) -> bytes:
    """A table for booktabs and longtable, a row a number."""
    head = r"\textbf{step} & \textbf{of} & \textbf{number} & \textbf{value} & \textbf{interval} & "
    head += r"\textbf{over} \\"
    body = [
        " & ".join(
            (
                escaped(row.step),
                escaped(row.name),
                escaped(row.what) + DAGGER * bool(row.mark),
                f"${number(row.value)}${mark(row)}",
                "" if row.low is None or row.high is None else f"${ends(row.low, row.high)}$",
                "" if row.low is None else escaped(row.over),
            )
        )
        + r" \\"
        for row in found
    ]
    notes = [escaped(NOTE)]
    if any(row.mark for row in found):
        notes.append(DAGGER + escaped(MISSED.removeprefix(MISSES)))
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


def mark(row: Row) -> str:
    """Stars of a p-value."""
    p = row.p if row.adjusted is None else row.adjusted
    return next((stars for most, stars in MARKS if p is not None and p <= most), "")


def escaped(text: str) -> str:
    r"""A text that LaTeX prints as it is.

    >>> escaped("50% of a_b")
    '50\\% of a\\_b'
    """
    plain = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"\s+", " ", plain)
