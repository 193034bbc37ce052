"""A map of heads as a table: every head can be pointed at, reached by keys and read aloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.report.charts.heads.head_map import reach
from levelhead.report.head_map_labels import heads_of, row
from levelhead.report.theme import PUOR

if TYPE_CHECKING:
    from levelhead.locate.head_map import HeadMap, PartScore

LIGHT = 0.45
"""Below this luminance, marks are white."""


class Cell(NamedTuple):
    """A head."""

    colour: str
    dark: bool
    mark: str
    told: str


class Line(NamedTuple):
    """A layer."""

    name: str
    cells: tuple[Cell, ...]


class Grid(NamedTuple):
    """The map."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Line, ...]


def grid(found: HeadMap) -> Grid:
    """The scores of all heads, layer by layer."""
    most = reach(found)
    layers: dict[int, list[Cell]] = {}
    for one in heads_of(found):
        layers.setdefault(one.layer, []).append(_cell(one, most))
    return Grid(
        f"Scores of heads by {found.measure}: orange above 0, purple below; a dot: its effect "
        "differs from 0 after correction. Rows are layers, columns heads, counted from 1",
        tuple(str(i + 1) for i in range(found.heads_a_layer)),
        tuple(Line(str(layer + 1), tuple(cells)) for layer, cells in sorted(layers.items())),
    )


def _cell(one: PartScore, most: float) -> Cell:
    colour = _colour(one.score / most)
    told = row(one)
    words = (
        f"head {one.label}: score {told['told score']}, effect of ablation "
        f"{told['told effect']}, interval {told['told interval']}, corrected p {told['told p']}"
    )
    dark = float(np.dot(colour, (0.2126, 0.7152, 0.0722))) / 255 < LIGHT
    shown = "#" + "".join(f"{round(part):02x}" for part in colour)
    return Cell(shown, dark, "●" if one.is_significant else "", words)


def _colour(share: float) -> tuple[float, ...]:
    """From -1 to 1, white at 0, as the charts have it."""
    stops = np.linspace(-1, 1, len(PUOR))
    parts = [[int(one[i : i + 2], 16) for one in PUOR] for i in (1, 3, 5)]
    return tuple(float(np.interp(share, stops, part)) for part in parts)
