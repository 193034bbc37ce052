"""Timing of queries on this machine, and the size of measures that fits into a time budget.

A few queries of each kind are timed once; counts give the rest. Sizes are repeated halves, so that
small changes in speed do not change the queries.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, final

from threadpoolctl import threadpool_limits

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.measures.items import subsample_queries
from levelhead.measures.responses import build_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.items import QueryArgs, QuerySet
    from levelhead.models.lm import LM

MIN_TIMING_SECONDS = 0.2
"""Minimum seconds of a timing: shorter ones are dominated by overhead and clock noise."""
SLOW_SECONDS = 1.0
"""Seconds of a warm-up from which a timing uses few queries."""
FIRST_TIMED, MAX_TIMED = 2, 64
"""Number of queries of the warm-up, which is not counted, and the maximum of a timing."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Parse a duration to seconds.

    >>> parse_duration("30s"), parse_duration("5m"), parse_duration("1h30m")
    (30.0, 300.0, 5400.0)
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smh])+", text):
        raise LevelheadError(f"{text!r} is not a duration", hint="write 30s, 10m, 1h30m, or none")
    return sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    )


class CheaperOption(NamedTuple):
    """A way to reduce a measure: an option and its value."""

    name: str
    value: float


def count_queries(
    query_sets: Sequence[QuerySet], measure: Measure, option: CheaperOption | None = None
) -> int:
    """Number of queries at a given reduction."""
    count = 0
    for query_set in query_sets:
        subset, max_per_item = query_set, None
        if option is not None and option.name == "subsample_fraction":
            subset = subsample_queries(query_set, option.value, measure.is_sampled)
        if option is not None and option.name == "contexts_per_word":
            max_per_item = int(option.value)
        n_queries = sum(len(item.queries[:max_per_item]) for item in subset.items)
        count += (
            min(n_queries, int(option.value)) if option and option.name == "limit" else n_queries
        )
    return count


def count_units(query_set: QuerySet, measure: Measure, option: CheaperOption | None = None) -> int:
    """Number of words, pairs or occupations in the queries: of the factor with most levels."""
    if option is not None and option.name == "subsample_fraction":
        query_set = subsample_queries(query_set, option.value, measure.is_sampled)
    item_units = [item.units for item in query_set.items if measure.is_sampled(item)]
    return max((len(set(names)) for names in zip(*item_units, strict=True)), default=0)


@final
class QueryTimer:
    """Seconds per query by kind of query; each kind is timed once, when it is first needed."""

    def __init__(
        self, lm: LM, *, threads: int, is_timed: bool = True, max_queries: int = MAX_TIMED
    ) -> None:
        self.lm = lm
        self.threads = threads
        self.is_timed = is_timed
        """Whether queries are timed; if not, each takes 0 seconds."""
        self.max_queries = max_queries
        """Maximum number of queries of a timing; few where every query costs money."""
        self.seconds_by_kind: dict[str, float] = {}

    def seconds_per_query(self, query_sets: Sequence[QuerySet], *, kind: str = "") -> float:
        """Estimate the seconds per query.

        Args:
            query_sets: queries of a measure.
            kind: kind of the texts, if their length requires a separate timing.
        """
        total_seconds = n_queries = 0.0
        for query_set in query_sets:
            count = sum(len(item.queries) for item in query_set.items)
            total_seconds += (
                self._seconds_of_kind(query_set, f"{query_set.query_kind} {kind}".rstrip()) * count
            )
            n_queries += count
        return total_seconds / n_queries if n_queries else 0.0

    def _seconds_of_kind(self, query_set: QuerySet, kind: str) -> float:
        if not self.is_timed:
            return 0.0
        if kind not in self.seconds_by_kind and (
            queries := _sample_queries(query_set)[: self.max_queries]
        ):
            # With the threads of the run, because they determine its speed.
            with threadpool_limits(self.threads), _errors_as_reasons():
                self.seconds_by_kind[kind] = _time_query(self.lm, query_set, queries)
        return self.seconds_by_kind.get(kind, 0.0)


@contextmanager
def _errors_as_reasons() -> Iterator[None]:
    """Convert any exception of a query into a `LevelheadError`, the reason against a measure."""
    try:
        yield
    except LevelheadError:
        raise
    # Planning comes first: a failure in one kind of query must not end the audit of the others.
    except Exception as error:
        raise LevelheadError(
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
            hint="check the model with `levelhead doctor`",
        ) from error


def _sample_queries(query_set: QuerySet) -> list[QueryArgs]:
    """Sample a few queries by hash, so that all lengths occur."""
    queries = {content_hash(query): query for item in query_set.items for query in item.queries[:1]}
    return [queries[key] for key in sorted(queries)[:MAX_TIMED]]


def _time_query(lm: LM, query_set: QuerySet, queries: Sequence[QueryArgs]) -> float:
    """Time a query after a warm-up, with more queries until the timing is long enough."""
    n_queries, elapsed = min(FIRST_TIMED, len(queries)), 0.0
    # A single query would be timed with its overhead, and too many would use up the budget.
    while True:
        started_at = time.perf_counter()
        query, _ = build_query(lm, query_set.query_kind, queries[:n_queries], query_set.settings)
        if query is not None:
            query.run(lm)
        # The first round is the warm-up: its time only shows that it took place.
        warm, elapsed = elapsed > 0, time.perf_counter() - started_at
        if warm and (elapsed >= MIN_TIMING_SECONDS or n_queries == len(queries)):
            return elapsed / n_queries
        # Generated texts are so slow that eight times as many would take a part of the budget.
        growth = 4 if warm else 8 if elapsed < SLOW_SECONDS else 2
        n_queries = min(growth * n_queries, len(queries))


def split_time(costs: Mapping[str, float], total: float) -> dict[str, float]:
    """Split time equally; what one task does not need goes to the others.

    >>> split_time({"cheap": 1, "dear": 10, "dearer": 20}, 13)
    {'cheap': 1, 'dear': 6.0, 'dearer': 6.0}
    """
    remaining, allotted = total, {}
    # The cheapest first: what they leave is shared by all that follow.
    for number, name in enumerate(sorted(costs, key=lambda name: costs[name])):
        allotted[name] = min(costs[name], remaining / (len(costs) - number))
        remaining -= allotted[name]
    return {name: allotted[name] for name in costs}
