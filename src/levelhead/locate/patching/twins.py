"""Twins: every query with its texts replaced by counterfactuals, aligned token by token.

An activation can be exchanged between two texts only if both have the same number of tokens: the
token at a position then has a counterpart. Items whose twin is longer or shorter, or cannot be
made, are dropped and counted with the reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, final

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.counterfactuals.replacement import (
    Replacement,
    ReplacementTable,
    entry_key,
    replace_words,
)
from levelhead.data.lexicons.lexicon import Lexicon, lexicon
from levelhead.measures.query_kinds import LocalQuery
from levelhead.measures.responses import build_query

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from levelhead.core.canonical_json import Json
    from levelhead.data.counterfactuals.replacement import SwapResult
    from levelhead.measures.base import Measure
    from levelhead.measures.items import MeasureItem, QueryArgs, QueryKind, QuerySet
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Query

TwinWords = str | Lexicon | Mapping[str, str]
"""Name of a lexicon, a lexicon, or words and the words that replace them."""
MIN_ITEMS = 2
TEXTS_OF_KIND: dict[QueryKind, slice] = {
    "fill": slice(1),
    "put": slice(1),
    "score": slice(1),
    "choose": slice(1),
    "classify": slice(None),
    "rate": slice(None),
    "follows": slice(None),
}
"""The arguments that are texts which the model reads; options and words to score stay the same."""
UNALIGNED = "the twin has another number of tokens"
SPAN_ARGUMENT = 1
"""Position of the spans in queries that have some."""


@final
@dataclass(frozen=True, eq=False)
class TwinItems:
    """The items that have a twin, with both forms of their queries."""

    query_set: QuerySet
    item_ids: frozenset[str]
    twin_of: Mapping[QueryArgs, QueryArgs]
    dropped: tuple[tuple[str, int], ...]
    """Reasons why items have no twin, with counts."""
    words_hash: str
    """SHA-256 of the words that are exchanged."""

    def twins(self, queries: Sequence[QueryArgs]) -> list[QueryArgs]:
        """The twins of queries."""
        return [self.twin_of[query] for query in queries]


def make_twins(lm: LM, measure: Measure, responses: Responses, words: TwinWords) -> TwinItems:
    """Make the twin of every item that could be read.

    Args:
        lm: The model, whose tokens must be aligned.
        measure: The measure.
        responses: Responses of the model; items without an answer have no twin.
        words: The words that are exchanged.
    """
    query_set = measure.queries(lm)[0]
    if query_set.query_kind not in TEXTS_OF_KIND or query_set.average_answers:
        raise LevelheadError(
            f"{measure.name} has no twins: its queries are of the kind {query_set.query_kind!r}",
            hint="choose a measure that compares probabilities of texts, words or classes, such as "
            "contrast, crows_margin or cloze",
        )
    exchange, words_hash = _make_exchange(words)
    twin_of: dict[QueryArgs, QueryArgs] = {}
    reasons: dict[str, str] = {}
    for item in responses.items:
        result = _make_item_twin(query_set, item, exchange)
        if isinstance(result, str):
            reasons[item.id] = result
        else:
            twin_of |= dict(zip(item.queries, result, strict=True))
    reasons |= _find_unaligned(lm, query_set, responses.items, reasons.keys(), twin_of)
    item_ids = frozenset(item.id for item in responses.items) - reasons.keys()
    dropped = tuple(sorted(Counter(reasons.values()).items()))
    if len(item_ids) < MIN_ITEMS:
        counts = "; ".join(f"{count}: {reason}" for reason, count in dropped)
        raise NotMeasurableError(
            f"{len(item_ids)} of {len(responses)} items of {measure.name} have a twin ({counts})",
            hint="give words that occur in its texts, such as twins={'nurse': 'engineer'}; on the "
            "command line --twins nurse=engineer",
        )
    return TwinItems(query_set, item_ids, twin_of, dropped, words_hash)


def build_twin_queries(
    lm: LM,
    query_kind: QueryKind,
    queries: Sequence[QueryArgs],
    twins: Sequence[QueryArgs],
    settings: Mapping[str, object],
) -> tuple[LocalQuery, Query]:
    """Build queries and their twins, with rows of the same lengths in the same order."""
    built = []
    for rows in (queries, twins):
        local_query, dropped = build_query(lm, query_kind, rows, settings)
        if dropped or not isinstance(local_query, LocalQuery):
            raise LevelheadError(
                "a query that was answered before cannot be built now",
                hint="use the model and the tokenizer that were read",
            )
        built.append(local_query)
    first, second = built
    if _row_shapes(first.query) != _row_shapes(second.query):
        raise LevelheadError(
            "a query and its twin have other numbers of tokens",
            hint="use the model and the tokenizer that were read",
        )
    return first, second.query


def _make_exchange(words: TwinWords) -> tuple[Callable[[str], SwapResult], str]:
    """Return the function that makes the counterfactual of a text, and the hash of its words."""
    if isinstance(words, Mapping):
        for word in (*words, *words.values()):
            if not entry_key(word):
                raise LevelheadError(
                    f"{word!r} is no word to exchange", hint="give pairs of words that have letters"
                )
        table = ReplacementTable.from_entries(
            {
                entry_key(old): (Replacement(new),)
                # Both directions, so that a twin's twin is the text itself.
                for old, new in {**{new: old for old, new in words.items()}, **words}.items()
            }
        )
        return (lambda text: replace_words(text, table)), content_hash(dict(words))
    source = lexicon(words) if isinstance(words, str) else words
    return source.swap, source.sha256


def _make_item_twin(
    query_set: QuerySet, item: MeasureItem, exchange: Callable[[str], SwapResult]
) -> list[QueryArgs] | str:
    """Return the twins of an item's queries, or the reason why there are none."""
    twins: list[QueryArgs] = []
    for query in item.queries:
        arguments: list[Json] = list(query)
        for i in range(len(query))[TEXTS_OF_KIND[query_set.query_kind]]:
            swapped = exchange(str(query[i]))
            if swapped.counterfactual is None:
                return f"a word cannot be exchanged: {swapped.refusals[0].reason}"
            arguments[i] = swapped.counterfactual
            has_spans = query_set.query_kind in ("score", "fill") and len(query) > SPAN_ARGUMENT
            # Positions of tokens stay: twins have the same number of tokens.
            if i == 0 and has_spans and query_set.settings.get("by") != "token":
                spans = _move_spans(query[SPAN_ARGUMENT], swapped)
                if isinstance(spans, str):
                    return spans
                arguments[SPAN_ARGUMENT] = spans
        twins.append(tuple(arguments))
    if twins == list(item.queries):
        return "its texts hold no word to exchange"
    return twins


def _move_spans(spans: Json, swapped: SwapResult) -> Json:
    """Move ranges of characters to where they are in the counterfactual."""
    if spans is None:
        return None
    is_single = isinstance(spans, list | tuple) and isinstance(spans[0], int)
    ranges = cast("Sequence[tuple[int, int]]", (spans,) if is_single else spans)
    moved = []
    for start, end in ranges:
        if any(
            change.start < start < change.end or change.start < end < change.end
            for change in swapped.changes
        ):
            return "an exchanged word lies across the border of what is scored"
        moved.append((_move(start, swapped), _move(end, swapped)))
    return moved[0] if is_single else tuple(moved)


def _move(position: int, swapped: SwapResult) -> int:
    return position + sum(
        (change.new_end - change.new_start) - (change.end - change.start)
        for change in swapped.changes
        if change.end <= position
    )


def _find_unaligned(
    lm: LM,
    query_set: QuerySet,
    items: Sequence[MeasureItem],
    excluded: Set[str],
    twin_of: Mapping[QueryArgs, QueryArgs],
) -> dict[str, str]:
    """Return reasons for items whose twin has other tokens, as many unknown or more or fewer."""
    queries = [
        (item.id, query) for item in items if item.id not in excluded for query in item.queries
    ]
    if not queries:
        return {}
    settings = query_set.settings
    reasons: dict[str, str] = {}
    if settings.get("by") == "token":
        # Positions of tokens are valid in a twin only if it has as many tokens.
        lengths = [
            [len(encoded.row.ids) for encoded in lm.tokens.encode([str(row[0]) for row in rows])]
            for rows in ([query for _, query in queries], [twin_of[query] for _, query in queries])
        ]
        reasons = {
            item: UNALIGNED
            for (item, _), first, second in zip(queries, *lengths, strict=True)
            if first != second
        }
        queries = [(item, query) for item, query in queries if item not in reasons]
    twins = [twin_of[query] for _, query in queries]
    if not twins:
        return reasons
    _, unreadable = build_query(lm, query_set.query_kind, twins, settings)
    reasons |= {queries[i][0]: f"the twin: {reason}" for i, reason in unreadable.items()}
    readable = [(item, query) for item, query in queries if item not in reasons]
    shapes = []
    for rows in ([query for _, query in readable], [twin_of[query] for _, query in readable]):
        local_query = build_query(lm, query_set.query_kind, rows, settings)[0] if rows else None
        if not isinstance(local_query, LocalQuery):
            return reasons
        shapes.append(_row_shapes_by_query(local_query.query))
    for number, (item, _) in enumerate(readable):
        if shapes[0][number] != shapes[1][number]:
            reasons[item] = UNALIGNED
    return reasons


def _row_shapes(query: Query) -> list[tuple[int, object]]:
    return [(len(row.ids), row.parents) for row in query.rows]


def _row_shapes_by_query(query: Query) -> dict[int, list[tuple[int, object]]]:
    """Return lengths and branches of the rows of every query: one for each token of some."""
    by_query: dict[int, list[tuple[int, object]]] = defaultdict(list)
    for number, shape in zip(
        query.items or range(len(query.rows)), _row_shapes(query), strict=True
    ):
        by_query[number].append(shape)
    return by_query
