"""Parts of an audit's page: sections, tables and figures as plain data, and their texts."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.verdicts import adjusted_p_value
from levelhead.report.save import render_svg, to_script_json
from levelhead.report.theme import format_interval, format_number

if TYPE_CHECKING:
    from altair.typing import ChartType

    from levelhead.core.results import Measurement
    from levelhead.report.audit_page.head_table import HeadTable

MAX_LETTERS = 400
"""Number of characters of a text that the page shows."""


class PageTable(NamedTuple):
    """Numbers in rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class PageFigure(NamedTuple):
    """A figure and the specification it was rendered from."""

    id: str
    caption: str
    alt: str
    svg: str
    """As base64."""
    spec: str
    """As JSON for a script."""
    width: int
    height: int


class ReportSection(NamedTuple):
    """A part of the report."""

    id: str
    title: str
    lines: tuple[str, ...] = ()
    collapsed_tables: tuple[PageTable, ...] = ()
    """Tables that a reader has to open."""
    head_tables: tuple[HeadTable, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    code: str = ""


def truncate_text(text: str) -> str:
    """Shorten a text for the page and state its full length."""
    if len(text) <= MAX_LETTERS:
        return text
    return f"{text[:MAX_LETTERS]}… ({len(text):,} characters)"


def make_figure(name: str, chart: ChartType, caption: str, alt: str) -> PageFigure:
    """Render a chart as a figure of the page."""
    svg = render_svg(chart)
    # The first of each is that of the root element. With both, the page does not move when the
    # picture is decoded.
    width, height = (
        int(float(svg.split(side, 1)[1].split(b'"', 1)[0])) for side in (b'width="', b'height="')
    )
    # As a data URL: the content policy of the page allows no other image, and scripts in an image
    # are not run.
    encoded = base64.b64encode(svg).decode()
    return PageFigure(name, caption, alt, encoded, to_script_json(chart), width, height)


def estimate_texts(estimate: Any) -> tuple[str, ...]:
    """The cells of an estimate: value, interval, parity, p and minimum detectable effect."""
    return (
        format_number(estimate.value),
        interval_text(estimate.interval.low, estimate.interval.high),
        format_number(estimate.parity, missing=""),
        p_text(adjusted_p_value(estimate)),
        format_number(estimate.detectable, missing=""),
    )


def interval_text(low: float | None, high: float | None) -> str:
    """Format an interval with no-break spaces, so that a table cell keeps it on one line."""
    return "" if low is None or high is None else format_interval(low, high).replace(" ", "\u00a0")


def p_text(p: float | None) -> str:
    """Format a p-value."""
    if p is None:
        return ""
    # Four decimals would print smaller p-values as 0, which no test can give.
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def format_items_used(measurement: Measurement) -> str:
    """Number of used items, out of the full data set or, if its size is unknown, of those queried.

    >>> from types import SimpleNamespace as Shown
    >>> format_items_used(Shown(n=46, n_items=46, population=1508, sampled_fraction=46 / 1508))
    '46 of 1,508 (3%)'
    >>> format_items_used(Shown(n=45, n_items=46, population=None, sampled_fraction=None))
    '45 of 46 queried'
    """
    if measurement.population is None or measurement.sampled_fraction is None:
        return f"{measurement.n:,} of {measurement.n_items:,} queried"
    n_dropped = measurement.n_items - measurement.n
    share = (
        f"{measurement.sampled_fraction:.0%}"
        if measurement.sampled_fraction >= 0.01
        else "below 1%"
    )
    dropped = f", {n_dropped:,} dropped" if n_dropped else ""
    return f"{measurement.n:,} of {measurement.population:,} ({share}){dropped}"
