"""What the pieces of a corpus gave, gathered: duplicates fall together, and quotas are kept.

A piece gives a line of counts and a line a row: word, key, canonical JSON, apart by tabs. Pairs
have no word (!) and are told apart by the hash of their text; contexts have one, and the least
hashes of word and text are kept, which are never many. However many pairs there are, DuckDB (the
`mine` extra) tells them apart on disk; without it this is done in memory, with the same bytes.
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

from levelhead.core.canonical_json import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Write = Callable[[str, Iterator[bytes]], None]

PAIR = "!"
"""In the place of a word, where a row is no context: comes before all words, and is none."""
LIMITS = "SET memory_limit = '160MB'; SET threads = 2; SET preserve_insertion_order = false"
LONGEST = 2**24
"""Bytes in a row, at most."""
_PAIRS = """
SELECT any_value(row) FROM read_csv(
    $files, delim = '\t', quote = '', escape = '', header = false, max_line_size = $longest,
    columns = {'word': 'VARCHAR', 'key': 'VARCHAR', 'row': 'VARCHAR'}
)
GROUP BY key ORDER BY key
"""
_FIRST = b"!\t"
Found = defaultdict[bytes, dict[bytes, bytes]]
"""Contexts by word and key."""


class Row(NamedTuple):
    """A pair, or the context of a word."""

    word: str
    key: str
    row: bytes


class Gathered(NamedTuple):
    """What was found in all."""

    counts: dict[str, int]
    pairs: int
    contexts: dict[str, int]
    """By word."""


def rank(word: str, sentence: str) -> str:
    """The hash that decides which sentences (by their ids) are kept for a word."""
    return hashlib.sha256(f"{word} {sentence}".encode()).hexdigest()


def least(word: str, rows: dict[str, Any], quota: int) -> dict[str, Any]:
    """The rows with the least keys; of pairs all. The least of all are among those of the parts."""
    kept = sorted(rows) if word == PAIR else nsmallest(quota, rows)
    return {key: rows[key] for key in kept}


def given(counts: Mapping[str, int], rows: Iterable[Row]) -> bytes:
    """What a piece gives."""
    lines = [b"\t".join((word.encode(), key.encode(), row)) for word, key, row in rows]
    return b"\n".join([canonical(counts), *lines])


def gathered(results: Iterable[bytes], quota: int, write: Write) -> Gathered:
    """What all pieces give; the rows are written to pairs.jsonl and contexts.jsonl.

    Args:
        results: what `given` made of every piece.
        quota: contexts kept for each word.
        write: is given the name of a file and its lines.
    """
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        return in_memory(results, quota, write)
    return on_disk(duckdb, results, quota, write)


def on_disk(duckdb: Any, results: Iterable[bytes], quota: int, write: Write) -> Gathered:
    """Pairs by DuckDB, which writes to disk what does not fit; of contexts no more are held."""
    counts: Counter[str] = Counter()
    contexts: Found = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
        files = []
        for number, result in enumerate(results):
            pairs, others = _parted(result, counts)
            _add(contexts, others, quota)
            if pairs:
                files.append(os.path.join(folder, f"{number}.tsv"))
                with open(files[-1], "wb") as file:
                    file.write(pairs)
        database.execute(f"{LIMITS}; SET temp_directory = '{folder}/spill'")
        asked = {"files": files, "longest": LONGEST}
        found = database.execute(_PAIRS, asked) if files else None
        return _written(_fetched(found), contexts, quota, counts, write)


def in_memory(results: Iterable[bytes], quota: int, write: Write) -> Gathered:
    """The literal form."""
    counts: Counter[str] = Counter()
    pairs: dict[bytes, bytes] = {}
    contexts: Found = defaultdict(dict)
    for result in results:
        own, others = _parted(result, counts)
        for line in _lines(own):
            _, key, row = line.split(b"\t")
            pairs[key] = row
        _add(contexts, others, quota)
    return _written((pairs[key] for key in sorted(pairs)), contexts, quota, counts, write)


def _parted(result: bytes, counts: Counter[str]) -> tuple[bytes, bytes]:
    """The lines of pairs, which come first, and those of contexts; what was counted is added."""
    head, _, rows = result.partition(b"\n")
    counts.update(json.loads(head))
    if not rows.startswith(_FIRST):
        return b"", rows
    end = rows.find(b"\n", rows.rfind(b"\n" + _FIRST) + 1)
    return (rows, b"") if end < 0 else (rows[:end], rows[end + 1 :])


def _lines(rows: bytes) -> list[bytes]:
    return rows.split(b"\n") if rows else []


def _add(contexts: Found, lines: bytes, quota: int) -> None:
    """More contexts; of a word no more are held than a few times those that are kept."""
    for line in _lines(lines):
        word, key, row = line.split(b"\t")
        contexts[word][key] = row
    for word, held in contexts.items():
        if len(held) > 2 * quota:
            contexts[word] = {key: held[key] for key in nsmallest(quota, held)}


def _written(
    pairs: Iterable[bytes], contexts: Found, quota: int, counts: Counter[str], write: Write
) -> Gathered:
    """Rows in their order, into their files."""
    sizes: Counter[str] = Counter()

    def first() -> Iterator[bytes]:
        for row in pairs:
            sizes[PAIR] += 1
            yield row + b"\n"

    def others() -> Iterator[bytes]:
        for word in sorted(contexts):
            end = b',"word":' + canonical(word.decode()) + b"}\n"  # of a context's keys the last
            kept = nsmallest(quota, contexts[word])
            sizes[word.decode()] = len(kept)
            yield from (contexts[word][key][:-1] + end for key in kept)

    write("pairs.jsonl", first())
    write("contexts.jsonl", others())
    found = sizes.pop(PAIR, 0)
    counts["duplicates"] = counts["kept"] - found
    counts["kept"] = found
    return Gathered(dict(sorted(counts.items())), found, dict(sizes))


def _fetched(found: Any) -> Iterator[bytes]:
    while found is not None and (rows := found.fetchmany(10_000)):
        yield from (row.encode() for (row,) in rows)
