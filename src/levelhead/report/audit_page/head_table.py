"""A head map as an HTML table: readers reach every head by pointer, keyboard or screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from levelhead.report.charts.heads.head_map import max_abs_score
from levelhead.report.head_map_labels import component_row, require_heads
from levelhead.report.theme import PUOR

if TYPE_CHECKING:
    from levelhead.locate.head_map import ComponentScore, HeadMap

DARK_BELOW = 0.45
"""Marks on cells below this relative luminance are white."""


class HeadCell(NamedTuple):
    """A head."""

    colour: str
    is_dark: bool
    mark: str
    description: str


class HeadTableRow(NamedTuple):
    """A layer."""

    name: str
    cells: tuple[HeadCell, ...]


class HeadTable(NamedTuple):
    """The map."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[HeadTableRow, ...]


def build_head_table(head_map: HeadMap) -> HeadTable:
    """The scores of all heads, layer by layer."""
    # The scale of the chart: one head has the same colour in both.
    max_score = max_abs_score(head_map)
    layers: dict[int, list[HeadCell]] = {}
    for head in require_heads(head_map):
        layers.setdefault(head.layer, []).append(_cell(head, max_score))
    return HeadTable(
        f"Scores of heads by {head_map.measure}: orange above 0, purple below; a dot: its effect "
        "differs from 0 after correction. Rows are layers, columns heads, counted from 1",
        tuple(str(i + 1) for i in range(head_map.heads_per_layer)),
        tuple(
            HeadTableRow(str(layer + 1), tuple(cells)) for layer, cells in sorted(layers.items())
        ),
    )


def make_cell(share: float, mark: str, description: str) -> HeadCell:
    """A cell with the colour of a share from -1 to 1."""
    colour = _colour(share)
    # Rec. 709 luma weights: the eye sees green as brighter than red, and red than blue.
    is_dark = float(np.dot(colour, (0.2126, 0.7152, 0.0722))) / 255 < DARK_BELOW
    hex_colour = "#" + "".join(f"{round(part):02x}" for part in colour)
    return HeadCell(hex_colour, is_dark, mark, description)


def _cell(head: ComponentScore, max_score: float) -> HeadCell:
    values = component_row(head)
    description = (
        f"head {head.label}: score {values['formatted score']}, effect of ablation "
        f"{values['formatted effect']}, interval {values['formatted interval']}, corrected p "
        f"{values['formatted p']}"
    )
    return make_cell(head.score / max_score, "●" if head.is_significant else "", description)


def _colour(share: float) -> tuple[float, ...]:
    """The RGB colour of a score from -1 to 1; 0 is white, as in the charts."""
    stops = np.linspace(-1, 1, len(PUOR))
    channels = [[int(hex_code[i : i + 2], 16) for hex_code in PUOR] for i in (1, 3, 5)]
    return tuple(float(np.interp(share, stops, channel)) for channel in channels)
