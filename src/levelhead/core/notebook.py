"""Results in a notebook: a table with a chart, and a data frame."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from html import escape
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.core.frames import make_columns, make_frame

if TYPE_CHECKING:
    from levelhead.core.frames import Backend

CHART, SVG = "levelhead.report.charts.registry:chart", "levelhead.report.save:render_svg"
VERDICT = "levelhead.core.verdicts:decide_measure_verdict"
MAX_ROWS = 20
"""Rows of a table in a notebook; the data frame has all of them."""
HIDDEN = ("level", "detectable")
"""Columns of the data frame that a small table leaves out."""


class NotebookResult(ABC):
    """A result that a notebook shows as a table, and that converts to a data frame. Abstract."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What the result says, in a line."""

    @abstractmethod
    def to_rows(self) -> list[dict[str, object]]:
        """The rows of the data frame, as cells by name."""

    def to_frame(self, backend: Backend | None = None) -> Any:
        """Convert the result to a data frame with one row per number.

        Args:
            backend: pandas, polars or dict; by default pandas if it is installed, otherwise polars,
                otherwise a dictionary of columns.
        """
        return make_frame(self.to_rows(), backend)

    def plot(self) -> Any:
        """Make the altair chart of the result, as `levelhead.chart` does."""
        return import_by_name(CHART)(self)

    def __str__(self) -> str:
        return self.title

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print a line: a notebook stores this text, and all fields would be megabytes."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return the table and the chart for a notebook; the table alone without altair."""
        rows = self.to_rows()
        left_out = len(rows) - MAX_ROWS
        more = f"<p>{left_out} more rows: to_frame() has all.</p>" if left_out > 0 else ""
        return (
            f'<div class="levelhead"><p><b>{escape(self.title)}</b></p>'
            f"{_make_html_table(rows[:MAX_ROWS])}{more}{self._make_html_chart()}</div>"
        )

    def _make_html_chart(self) -> str:
        try:
            svg = import_by_name(SVG)(self.plot())
        # Without altair, or without a chart of this result, the table is the whole display.
        except (LevelheadError, ImportError):
            return ""
        # As an image: a browser runs no script of it, whatever the texts in the chart contain.
        source = base64.b64encode(svg).decode()
        return f'<img alt="{escape(self.title)}" src="data:image/svg+xml;base64,{source}">'


def import_by_name(name: str) -> Any:
    """Import a function that its caller's module cannot import: only here.

    A notebook shows a result by a method of its class, and Python finds methods on classes only.
    The classes are in lower layers than charts and verdicts, so these are found when one is shown.
    """
    return resolve_name(name)


def _make_html_table(rows: list[dict[str, object]]) -> str:
    columns = make_columns([_to_text_cells(row) for row in rows])
    # A column without any value, such as p of a utility, only makes the table wider.
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    head = "".join(f"<th>{escape(name)}</th>" for name in shown)
    body = ""
    for cells in zip(*shown.values(), strict=True):
        cells_html = "".join(f"<td>{escape(str(cell or ''))}</td>" for cell in cells)
        body += f"<tr>{cells_html}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _to_text_cells(row: dict[str, object]) -> dict[str, str]:
    cells: dict[str, str] = {}
    for name, value in row.items():
        if name == "low":
            cells["interval"] = (
                "" if value is None else f"[{_to_text(value)}, {_to_text(row['high'])}]"
            )
        elif name != "high" and name not in HIDDEN:
            cells[name.replace("_", " ")] = _to_text(value)
    return cells


def _to_text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
