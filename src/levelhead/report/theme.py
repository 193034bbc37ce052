"""How all charts look: a light background, colours that everybody can tell apart, lines that fit.

Signed numbers are drawn in ColorBrewer's PuOr, white at 0; categories in the colours of Okabe and
Ito (2008) without their yellow, which is hard to see on white.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import LevelheadError
from levelhead.report.lazy_altair import alt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

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
"""Width of a letter of the subtitle, in pixels."""
_NARROWEST = 62


def finished(chart: ChartType, title: str, lines: Sequence[str], *, width: float) -> ChartType:
    """A chart with title and subtitle, broken where the chart ends, on white."""
    letters = max(_NARROWEST, int(width / _LETTER))
    subtitle = [part for line in lines for part in textwrap.wrap(line, letters)]
    drawn: ChartType = (
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
            labelFlush=False,  # else the end labels move and touch their neighbours
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
    return drawn


def panel(title: str, *lines: str) -> alt.TitleParams:
    """The title of one panel among several."""
    plain = alt.TitleParams(text=title, anchor="start", fontSize=12, offset=6)
    if not lines:  # an empty subtitle would take its place all the same
        return plain
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


def column(title: str) -> alt.TitleParams:
    """The head of a column of text."""
    return alt.TitleParams(text=title, anchor="start", fontSize=11, fontWeight="normal", offset=6)


def signed(reach: float, *, clip_negative: bool = False) -> alt.Scale:
    """Colours from -reach to reach, white at 0; or from 0 alone, what is below drawn white."""
    colours = PUOR[len(PUOR) // 2 :] if clip_negative else PUOR
    low = 0.0 if clip_negative else -reach
    ends = np.linspace(low, reach, len(colours)).tolist()
    return alt.Scale(domain=ends, range=list(colours), clamp=True, interpolate="rgb")


def categories(names: Sequence[str]) -> alt.Scale:
    """A colour a name."""
    return alt.Scale(domain=list(names), range=list(OKABE_ITO[: few(names)]))


def few(names: Sequence[str]) -> int:
    """How many names; more than can be told apart by colour are refused."""
    if len(names) > len(OKABE_ITO):
        raise LevelheadError(
            f"{len(names)} lines in one chart cannot be told apart",
            mend=f"draw at most {len(OKABE_ITO)} at once",
        )
    return len(names)


def named(of: str) -> list[str]:
    """A line on what a result is of, if that is told."""
    return [of] if of else []


def number(value: float | None, *, missing: str = "none") -> str:
    """A number as people read it."""
    return missing if value is None else f"{value:.3g}"


def ends(low: float, high: float) -> str:
    """An interval as people read it."""
    return f"[{low:.3g}, {high:.3g}]"
