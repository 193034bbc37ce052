"""Items of a measurement: values, content, reasons of dropped ones, and the table of all three."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import FiniteFloat  # noqa: TC002  # pydantic reads these annotations

if TYPE_CHECKING:
    from collections.abc import Sequence


class DroppedItem(NamedTuple):
    """An item that was queried but not used, and the reason."""

    item: str
    reason: str


class ItemValue(NamedTuple):
    """Contribution of one item to the value."""

    item: str
    value: FiniteFloat


class QueryDetail(NamedTuple):
    """A query of an item as a person reads it, and what the model answered."""

    text: str
    responses: tuple[tuple[str, FiniteFloat], ...] = ()
    """Label and probability, log-probability or rate of each response; empty for vectors."""


class ItemDetail(NamedTuple):
    """The content of an item: what the model was given and how it responded."""

    item: str
    group: str
    queries: tuple[QueryDetail, ...]


def make_item_rows(
    values: Sequence[ItemValue], details: Sequence[ItemDetail]
) -> list[dict[str, object]]:
    """Make one row per item: item, group, value, text, and a column for each response.

    If items have several queries, the names of the columns end in the number of the query: `text_1`
    and `text_2` for a pair of sentences. Items without recorded content have None there.

    >>> detail = ItemDetail("a", "f", (QueryDetail("X is a [MASK].", (("nurse", 0.5),)),))
    >>> make_item_rows([ItemValue("a", 1.0)], [detail])
    [{'item': 'a', 'group': 'f', 'value': 1.0, 'text': 'X is a [MASK].', 'response_nurse': 0.5}]
    """
    detail_of_item = {detail.item: detail for detail in details}
    is_single = max((len(detail.queries) for detail in details), default=1) <= 1
    rows: list[dict[str, object]] = []
    for item, value in values:
        detail = detail_of_item.get(item)
        # None first, so that the columns have one order whichever items have content.
        row: dict[str, object] = {
            "item": item,
            "group": detail.group if detail else None,
            "value": value,
        }
        for number, query in enumerate(detail.queries if detail else (), start=1):
            suffix = "" if is_single else f"_{number}"
            row[f"text{suffix}"] = query.text
            row |= {f"response_{label}{suffix}": response for label, response in query.responses}
        rows.append(row)
    return rows
