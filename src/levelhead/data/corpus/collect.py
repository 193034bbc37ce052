"""Collection of mining results: merges duplicates over all pieces and applies quotas.

The result of a piece is a line of counts and one line per row: word, key and canonical JSON,
separated by tabs. Pairs have "!" instead of a word and are identified by the hash of their text.
Contexts have a word, and those with the smallest hashes of word and text are stored, so their
number is limited. DuckDB (the `mine` extra) removes duplicate pairs on disk for any number of
pairs; without it this is done in memory, with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter, defaultdict
from heapq import nsmallest
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.canonical_json import to_canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    WriteLines = Callable[[str, Iterator[bytes]], None]

PAIR_KEY = "!"
"""Replaces the word in rows of pairs; it sorts before all words and is no word."""
# A fixed memory limit, so that mining works on small machines; rows are sorted by the query.
DUCKDB_LIMITS = "SET memory_limit = '160MB'; SET threads = 2; SET preserve_insertion_order = false"
MAX_ROW_BYTES = 2**24
"""Largest number of bytes in a row."""
# The key of a pair is the hash of its text, so rows with one key are equal and any will do. Without
# quotes, because the rows are JSON.
_DISTINCT_PAIRS_QUERY = """
SELECT any_value(row) FROM read_csv(
    $files, delim = '\t', quote = '', escape = '', header = false, max_line_size = $longest,
    columns = {'word': 'VARCHAR', 'key': 'VARCHAR', 'row': 'VARCHAR'}
)
GROUP BY key ORDER BY key
"""
_PAIR_PREFIX = b"!\t"
ContextsByWord = defaultdict[bytes, dict[bytes, bytes]]
"""Contexts by word and key."""


class MinedRow(NamedTuple):
    """A pair, or the context of a word."""

    word: str
    key: str
    row: bytes


class MiningTotals(NamedTuple):
    """Totals over all pieces."""

    counts: dict[str, int]
    pairs: int
    contexts: dict[str, int]
    """Number of contexts, by word."""


def rank_hash(word: str, sentence: str) -> str:
    """Return the hash that decides which sentences are stored for a word.

    Args:
        word: the word.
        sentence: id of the sentence.
    """
    return hashlib.sha256(f"{word} {sentence}".encode()).hexdigest()


def keep_lowest_ranked(word: str, rows: dict[str, Any], quota: int) -> dict[str, Any]:
    """Return the rows with the smallest keys; all rows of pairs.

    Args:
        word: the word, or `PAIR_KEY`.
        rows: rows by key.
        quota: number of rows.
    """
    # The smallest keys overall are among the smallest of every part, so parts can be merged.
    kept_keys = sorted(rows) if word == PAIR_KEY else nsmallest(quota, rows)
    return {key: rows[key] for key in kept_keys}


def encode_piece_result(counts: Mapping[str, int], rows: Iterable[MinedRow]) -> bytes:
    """Encode the result of a piece.

    Args:
        counts: counts of outcomes.
        rows: pairs and contexts.
    """
    encoded_rows = [b"\t".join((word.encode(), key.encode(), row)) for word, key, row in rows]
    return b"\n".join([to_canonical_json(counts), *encoded_rows])


def collect_results(results: Iterable[bytes], quota: int, write: WriteLines) -> MiningTotals:
    """Merge the results of all pieces and write pairs.jsonl and contexts.jsonl.

    Args:
        results: encoded result of every piece.
        quota: largest number of contexts per word.
        write: function that writes lines to a file of a given name.
    """
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        return collect_in_memory(results, quota, write)
    return collect_on_disk(duckdb, results, quota, write)


def collect_on_disk(
    duckdb: Any, results: Iterable[bytes], quota: int, write: WriteLines
) -> MiningTotals:
    """Merge pairs with DuckDB, which uses the disk beyond its memory limit.

    Args:
        duckdb: the module.
        results: as in `collect_results`.
        quota: as in `collect_results`.
        write: as in `collect_results`.
    """
    counts: Counter[str] = Counter()
    contexts: ContextsByWord = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        files = []
        for number, result in enumerate(results):
            pairs, context_lines = _split_result(result, counts)
            _add_contexts(contexts, context_lines, quota)
            # One file per piece, because DuckDB reads files without loading them into memory.
            if pairs:
                files.append(os.path.join(folder, f"{number}.tsv"))
                with open(files[-1], "wb") as file:
                    file.write(pairs)
        database.execute(f"{DUCKDB_LIMITS}; SET temp_directory = '{folder}/spill'")
        parameters = {"files": files, "longest": MAX_ROW_BYTES}
        cursor = database.execute(_DISTINCT_PAIRS_QUERY, parameters) if files else None
        return _write_rows(_fetch_rows(cursor), contexts, quota, counts, write)


def collect_in_memory(results: Iterable[bytes], quota: int, write: WriteLines) -> MiningTotals:
    """Merge pairs in memory; the reference for `collect_on_disk`.

    Args:
        results: as in `collect_results`.
        quota: as in `collect_results`.
        write: as in `collect_results`.
    """
    counts: Counter[str] = Counter()
    pairs: dict[bytes, bytes] = {}
    contexts: ContextsByWord = defaultdict(dict)
    for result in results:
        pair_lines, context_lines = _split_result(result, counts)
        for line in _split_lines(pair_lines):
            _, key, row = line.split(b"\t")
            pairs[key] = row
        _add_contexts(contexts, context_lines, quota)
    return _write_rows((pairs[key] for key in sorted(pairs)), contexts, quota, counts, write)


def _split_result(result: bytes, counts: Counter[str]) -> tuple[bytes, bytes]:
    """Split a result into lines of pairs and of contexts, and add its counts to `counts`."""
    head, _, rows = result.partition(b"\n")
    counts.update(json.loads(head))
    if not rows.startswith(_PAIR_PREFIX):
        return b"", rows
    # Pairs sort before all words, so the last line with the pair prefix ends their block.
    end = rows.find(b"\n", rows.rfind(b"\n" + _PAIR_PREFIX) + 1)
    return (rows, b"") if end < 0 else (rows[:end], rows[end + 1 :])


def _split_lines(rows: bytes) -> list[bytes]:
    return rows.split(b"\n") if rows else []


def _add_contexts(contexts: ContextsByWord, lines: bytes, quota: int) -> None:
    """Add contexts; per word, at most twice the quota remains in memory."""
    for line in _split_lines(lines):
        word, key, row = line.split(b"\t")
        contexts[word][key] = row
    for word, word_rows in contexts.items():
        # Twice the quota: sorting only now and then is faster than a heap per row.
        if len(word_rows) > 2 * quota:
            contexts[word] = {key: word_rows[key] for key in nsmallest(quota, word_rows)}


def _write_rows(
    pairs: Iterable[bytes],
    contexts: ContextsByWord,
    quota: int,
    counts: Counter[str],
    write: WriteLines,
) -> MiningTotals:
    """Write sorted rows to their files and return the totals."""
    sizes: Counter[str] = Counter()

    def pair_lines() -> Iterator[bytes]:
        for row in pairs:
            sizes[PAIR_KEY] += 1
            yield row + b"\n"

    def context_lines() -> Iterator[bytes]:
        for word in sorted(contexts):
            # "word" is the last of a context's keys, so it is appended without decoding the JSON.
            end = b',"word":' + to_canonical_json(word.decode()) + b"}\n"
            kept_keys = nsmallest(quota, contexts[word])
            sizes[word.decode()] = len(kept_keys)
            yield from (contexts[word][key][:-1] + end for key in kept_keys)

    write("pairs.jsonl", pair_lines())
    write("contexts.jsonl", context_lines())
    n_pairs = sizes.pop(PAIR_KEY, 0)
    # Each piece counts its pairs, so pairs of several pieces were counted several times.
    counts["duplicates"] = counts["kept"] - n_pairs
    counts["kept"] = n_pairs
    return MiningTotals(dict(sorted(counts.items())), n_pairs, dict(sizes))


def _fetch_rows(cursor: Any) -> Iterator[bytes]:
    # In parts, because all pairs together may not fit in memory.
    while cursor is not None and (rows := cursor.fetchmany(10_000)):
        yield from (row.encode() for (row,) in rows)
