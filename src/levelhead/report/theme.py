"""What all charts share: theme, colours, data, and numbers and names as text.

Signed numbers have the colours of ColorBrewer's PuOr, white at 0. Categories have the colours of
Okabe and Ito (2008) without yellow, which is hard to see on white.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from levelhead.core.results import Interval, Provenance

INK, PALE = "#222222", "#8c8c8c"
NEGATIVE, POSITIVE = "#542788", "#b35806"
PUOR = (
    *("#2d004b", "#542788", "#8073ac", "#b2abd2", "#d8daeb", "#ffffff"),
    *("#fee0b6", "#fdb863", "#e08214", "#b35806", "#7f3b08"),
)
OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3], [10, 4])

_LETTER = 5.4
"""Mean width of a character of the subtitle, in pixels."""
_MIN_LETTERS = 62


def apply_theme(chart: ChartType, title: str, lines: Sequence[str], *, width: float) -> ChartType:
    """Apply the theme to a chart, with a title and subtitle wrapped at the chart's width."""
    letters = max(_MIN_LETTERS, int(width / _LETTER))
    subtitle = [part for line in lines for part in textwrap.wrap(line, letters)]
    themed: ChartType = (
        chart.properties(
            title=alt.TitleParams(
                text=textwrap.wrap(title, int(letters * 0.8)),
                subtitle=subtitle,
                anchor="start",
                offset=14,
            ),
            background="white",
            padding=12,
        )
        .configure_view(stroke=None, fill="white")
        .configure_title(
            fontSize=14,
            subtitleFontSize=11,
            subtitleLineHeight=15,
            subtitlePadding=6,
            color=INK,
            subtitleColor="#444444",
        )
        .configure_axis(
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
            labelColor=INK,
            titleColor=INK,
            gridColor="#e6e6e6",
            domainColor=PALE,
            tickColor=PALE,
            labelLimit=320,
            labelFlush=False,  # else the end labels move and overlap their neighbours
            titleLimit=600,
        )
        .configure_legend(
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
            labelColor=INK,
            titleColor=INK,
            labelLimit=420,
            titleLimit=420,
        )
    )
    return themed


def inline_data(rows: list[dict[str, Any]]) -> alt.InlineData:
    """Embed rows in the chart, so that a saved chart needs no other file."""
    return alt.InlineData(values=rows)


def panel_title(title: str, *lines: str) -> alt.TitleParams:
    """The title of one panel among several."""
    title_only = alt.TitleParams(text=title, anchor="start", fontSize=12, offset=6)
    if not lines:  # an empty subtitle would still take space
        return title_only
    return alt.TitleParams(
        text=title,
        anchor="start",
        fontSize=12,
        offset=6,
        subtitle=list(lines),
        subtitleFontSize=10,
        subtitleLineHeight=13,
        subtitlePadding=3,
    )


def column_title(title: str) -> alt.TitleParams:
    """The title of a column of text."""
    return alt.TitleParams(text=title, anchor="start", fontSize=11, fontWeight="normal", offset=6)


def signed_colour_scale(limit: float, *, clip_negative: bool = False) -> alt.Scale:
    """A colour scale from -limit to limit, white at 0; if clipped, negative values are white."""
    colours = PUOR[len(PUOR) // 2 :] if clip_negative else PUOR
    low = 0.0 if clip_negative else -limit
    stops = np.linspace(low, limit, len(colours)).tolist()
    return alt.Scale(domain=stops, range=list(colours), clamp=True, interpolate="rgb")


def category_scale(names: Sequence[str]) -> alt.Scale:
    """A colour scale with one colour per name."""
    return alt.Scale(domain=list(names), range=list(OKABE_ITO[: count_names(names)]))


def count_names(names: Sequence[str]) -> int:
    """Count names; raises an error for more than there are distinguishable colours."""
    if len(names) > len(OKABE_ITO):
        raise LevelheadError(
            f"{len(names)} lines in one chart cannot be distinguished",
            hint=f"plot at most {len(OKABE_ITO)} at once",
        )
    return len(names)


def subtitle_lines(subject: str) -> list[str]:
    """A subtitle line with the subject of a chart, if one is given."""
    return [subject] if subject else []


def format_number(value: float | None, *, missing: str = "none") -> str:
    """Format a number with three significant digits."""
    return missing if value is None else f"{value:.3g}"


def format_interval(low: float, high: float) -> str:
    """Format an interval with three significant digits."""
    return f"[{low:.3g}, {high:.3g}]"


class HasInterval(Protocol):
    """A value with its interval, such as an estimate or a measurement."""

    @property
    def value(self) -> float:
        """The value."""

    @property
    def interval(self) -> Interval:
        """Its interval."""


def format_estimate(estimate: HasInterval | None) -> str:
    """Format a value and its interval with three significant digits."""
    if estimate is None:
        return "none"
    low, high = estimate.interval.low, estimate.interval.high
    return f"{format_number(estimate.value)} {format_interval(low, high)}"


def interval_fields(estimate: HasInterval) -> dict[str, Any]:
    """Fields of a row of chart data that draw a value and its interval, and describe them."""
    return {
        "value": estimate.value,
        "low": estimate.interval.low,
        "high": estimate.interval.high,
        "formatted": format_estimate(estimate),
    }


def with_unit(text: str, unit: str) -> str:
    """A title with a unit, if there is one."""
    return f"{text}, {unit}" if unit else text


def model_name(provenance: Provenance) -> str:
    """The model's name without its folders, followed by the number of edits, as "+ 2 edits"."""
    name = provenance.model.rstrip("/")
    # A Hub id has one slash at most; the folders of a path are nobody else's business.
    if name.count("/") > 1 or name.startswith("/"):
        name = name.rpartition("/")[2]
    edits = len(provenance.edits)
    return name + (f" + {edits} edit{'s' * (edits > 1)}" if edits else "")
