"""The items behind a number: those that contribute most, and all that were recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.report.audit_page.sections import truncate_text
from levelhead.report.theme import format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.results import ItemDetail, ItemValue, Measurement
    from levelhead.report.audit_page.questions import MeasureText

TOP_ITEMS = 10
MAX_ITEM_BYTES = 1_600_000
"""Size of all items in a page, shared by its measures: the page must stay small enough to send."""


ItemOrder = Literal["contribution", "distance", "lowest"]
"""Items first that contribute most to a finding; that lie farthest from the mean, if no direction
was found; or that have the lowest values, for a capability."""
CAPTIONS: dict[ItemOrder, str] = {
    "contribution": "The {} items behind the number: those that contribute most",
    "distance": "The {} items behind the number: those farthest from the mean of all items",
    "lowest": "The {} items with the lowest values",
}


class PageItem(NamedTuple):
    """An item as the page shows it."""

    item: str
    group: str
    texts: tuple[str, ...]
    """What the model was given."""
    responses: tuple[str, ...]
    """What it responded to each text, as label and number."""
    value: str
    number: float


class ItemTable(NamedTuple):
    """The items of a measurement."""

    caption: str
    top: tuple[PageItem, ...]
    data: str
    """All recorded items as JSON, for the table that a script builds."""
    note: str
    """How many items the page holds, and where the others are."""
    has_content: bool
    """Whether the texts of the items were recorded."""


def make_item_table(
    measurement: Measurement, text: MeasureText | None, *, order: ItemOrder, max_bytes: int
) -> ItemTable | None:
    """Make the table of a measurement's items; None if no value by item was recorded.

    Args:
        measurement: measurement with its items.
        text: what the report says about the measure.
        order: which items come first.
        max_bytes: size of the items that the page may hold.
    """
    if not measurement.per_item_values:
        return None
    details = {detail.item: detail for detail in measurement.item_details}
    is_difference = text is not None and text.is_difference
    score = _contribution(measurement, details, order=order, is_difference=is_difference)
    ranked = sorted(
        measurement.per_item_values,
        key=lambda row: (-score(row), -_margin(details.get(row.item)), row.item),
    )
    # Of an item without content, a reader sees only its id: those with content come first.
    shown = sorted(ranked, key=lambda row: row.item not in details)[:TOP_ITEMS]
    data, n_kept = _to_json([_page_item(row, details) for row in ranked], max_bytes)
    note = f"All {len(ranked):,} items that were used."
    if n_kept < len(ranked):
        note = (
            f"The first {n_kept:,} of {len(ranked):,} items by contribution; all are in the folder "
            "results/ of the audit."
        )
    return ItemTable(
        CAPTIONS[order].format(len(shown)),
        tuple(_page_item(row, details) for row in shown),
        data,
        note,
        bool(details),
    )


def _contribution(
    measurement: Measurement,
    details: Mapping[str, ItemDetail],
    *,
    order: ItemOrder,
    is_difference: bool,
) -> Callable[[ItemValue], float]:
    """A function that scores how much an item contributes to the effect."""
    if order == "lowest":
        return lambda row: -row.value
    values = [row.value for row in measurement.per_item_values]
    mean = sum(values) / len(values)
    sides: Mapping[str, float] = {}
    if order == "contribution" and is_difference:
        sides = _group_sides(measurement.per_item_values, details, mean)
    elif order == "contribution":
        sign = -1.0 if measurement.effect is not None and measurement.effect[0] < 0 else 1.0
        return lambda row: sign * row.value
    # Without a direction, or without the groups of the items, both sides count alike.
    if not sides:
        return lambda row: abs(row.value - mean)
    return lambda row: (row.value - mean) * sides.get(_group(details, row), 0.0)


def _group_sides(
    values: Sequence[ItemValue], details: Mapping[str, ItemDetail], mean: float
) -> dict[str, float]:
    """On which side of the mean each of two groups of items lies; empty for other numbers."""
    by_group: dict[str, list[float]] = {}
    for row in values:
        by_group.setdefault(_group(details, row), []).append(row.value)
    by_group.pop("", None)
    # More groups, or one, have no two sides of a difference.
    if len(by_group) != 2:
        return {}
    return {
        group: 1.0 if sum(numbers) / len(numbers) > mean else -1.0
        for group, numbers in by_group.items()
    }


def _group(details: Mapping[str, ItemDetail], row: ItemValue) -> str:
    detail = details.get(row.item)
    return "" if detail is None else detail.group


def _margin(detail: ItemDetail | None) -> float:
    """How far a model's responses to an item lie apart: it orders items of equal value."""
    numbers = (
        [number for query in detail.queries for _, number in query.responses] if detail else []
    )
    return max(numbers) - min(numbers) if numbers else 0.0


def _page_item(row: ItemValue, details: Mapping[str, ItemDetail]) -> PageItem:
    detail = details.get(row.item)
    queries = () if detail is None else detail.queries
    return PageItem(
        truncate_text(row.item),
        "" if detail is None else truncate_text(detail.group),
        tuple(truncate_text(query.text) for query in queries),
        tuple(
            ", ".join(
                f"{truncate_text(label)} {format_number(number)}"
                for label, number in query.responses
            )
            for query in queries
        ),
        format_number(row.value),
        row.value,
    )


def _to_json(items: Sequence[PageItem], max_bytes: int) -> tuple[str, int]:
    """The items as JSON, as many as fit, and their number."""
    rows: list[str] = []
    size = 2
    for item in items:
        content = [item.item, item.group, item.texts, item.responses, item.number]
        # A text may contain "</script>" or "<!--"; the page holds the JSON in a script element.
        row = json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")
        size += len(row) + 1
        if size > max_bytes:
            break
        rows.append(row)
    return f"[{','.join(rows)}]", len(rows)
