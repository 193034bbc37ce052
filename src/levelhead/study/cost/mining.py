"""Estimate the cost of mining a corpus from two timed pieces and the count of all pieces."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.files import open_filesystem
from levelhead.data.corpus.collect import collect_results, encode_piece_result, keep_lowest_ranked
from levelhead.data.corpus.matcher import SentenceMatcher, iter_rows_in_order
from levelhead.data.corpus.matcher_polars import build_text_pattern
from levelhead.data.corpus.mine import PIECES_PER_TASK, match_piece_texts
from levelhead.data.corpus.reader import (
    PIECE_BYTES,
    PIECE_ROWS,
    CorpusPiece,
    count_parquet_rows,
    expand_sources,
    read_matching_texts,
)
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.study.cost.estimate import MB, CostEstimate, peak_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.files import Url
    from levelhead.data.corpus.matcher import RowsByWord

HASHED = 64 * MB
"""Number of bytes that are hashed to time hashing."""


def estimate_mining_cost(
    corpus: Sequence[Url], *, lexicon: str = "gender-en", quota: int = 100
) -> CostEstimate:
    """Estimate the cost of `mine` in one process.

    Args:
        corpus: files, globs or URLs.
        lexicon: name or file of a lexicon.
        quota: number of contexts per word.
    """
    words = read_lexicon(lexicon)
    matcher = SentenceMatcher(words, words.resolve_group_pair())
    files = expand_sources(corpus)
    sizes = {url: _size(url) for url in files}
    counts = {
        url: count_parquet_rows(url) if url.endswith(".parquet") else sizes[url] for url in files
    }
    piece_sizes = {url: PIECE_ROWS if url.endswith(".parquet") else PIECE_BYTES for url in files}
    pieces = sum(-(-max(counts[url], 1) // piece_sizes[url]) for url in files)
    last_sizes = [min(counts[url], piece_sizes[url]) for url in files]
    # The first and the last piece: later pieces add fewer contexts, because quotas fill up.
    probes = [
        (files[0], 0, last_sizes[0]),
        (files[-1], max(counts[files[-1]] - last_sizes[-1], 0), None),
    ]
    rows: RowsByWord = {}
    read, writing = (
        partial(read_matching_texts, pattern=build_text_pattern(matcher.vocabulary)),
        0.0,
    )
    timings, sizes_of, payload = [], [], b""  # seconds, and bytes of the timed file
    for url, start, _ in probes:
        end = min(start + piece_sizes[url], counts[url])
        piece = _piece(url, start, end)
        match_piece_texts(
            read(piece)[1][:1000], matcher, quota, {}
        )  # loads what is loaded on first use
        started_at = time.perf_counter()
        word_counts, contexts = match_piece_texts(read(piece)[1], matcher, quota, rows)
        for word, word_contexts in contexts.items():
            rows[word] = keep_lowest_ranked(word, rows.get(word, {}) | word_contexts, quota)
        timings.append(time.perf_counter() - started_at)
        sizes_of.append(max(sizes[url] * (end - start) / max(counts[url], 1), 1))
        started_at = time.perf_counter()
        payload = encode_piece_result(word_counts, iter_rows_in_order(rows, matcher))
        writing = time.perf_counter() - started_at
    started_at = time.perf_counter()
    collect_results([payload], quota, lambda name, lines: sum(map(len, lines)))  # type: ignore[arg-type]
    gathering = time.perf_counter() - started_at
    units = -(-pieces // PIECES_PER_TASK)
    # The first piece of a unit costs more, because it fills the quotas of contexts.
    session = sum(sizes.values()) * timings[-1] / sizes_of[-1] + units * max(
        timings[0] - timings[-1], 0
    )
    parts = {
        "hashing": _hashing(files[0]) * sum(sizes.values()),
        "mining": session,
        "writing": units * writing,
        "gathering": units * gathering,
    }
    return CostEstimate(
        forwards=0,
        tokens=0,
        seconds=sum(parts.values()),
        seconds_by_part=parts,
        peak_mb=peak_mb(),
        disk_mb=(units + 1) * len(payload) / MB,
        notes=(f"{pieces} pieces in {units} units, {sum(sizes.values()) / MB:.0f} MB",),
    )


def corpus_bytes(corpus: Sequence[Url]) -> int:
    """Sizes of the files of a corpus."""
    return sum(_size(url) for url in expand_sources(corpus))


def _size(url: str) -> int:
    fs, path = open_filesystem(url)
    return int(fs.size(path) or 0)


def _piece(url: str, start: int, end: int) -> CorpusPiece:
    if url.endswith(".parquet"):
        return CorpusPiece(url, "", start, end)
    fs, path = open_filesystem(url)
    with fs.open(path, "rb") as file:
        file.seek(start)
        return CorpusPiece(url, hashlib.sha256(file.read(end - start)).hexdigest(), start, end)


def _hashing(url: str) -> float:
    """Seconds per byte."""
    fs, path = open_filesystem(url)
    started_at = time.perf_counter()
    with fs.open(path, "rb") as file:
        data = file.read(HASHED)
        hashlib.sha256(data).hexdigest()
    return (time.perf_counter() - started_at) / max(len(data), 1)
