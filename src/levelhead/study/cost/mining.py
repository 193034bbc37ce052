"""What mining a corpus will cost: two pieces are mined, the rest follows by counting."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import TYPE_CHECKING

from levelhead.core.files import located
from levelhead.data.corpus.collect import gathered, given, least
from levelhead.data.corpus.matcher import Kernel, in_order
from levelhead.data.corpus.matcher_polars import pattern
from levelhead.data.corpus.mine import PIECES, found_in
from levelhead.data.corpus.reader import PIECE, ROWS, Piece, expanded, rows_of, texts_with
from levelhead.data.lexicons.lexicon import lexicon as read_lexicon
from levelhead.study.cost.estimate import MB, Foreseen, peak_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.files import Url
    from levelhead.data.corpus.matcher import Rows

HASHED = 64 * MB
"""Bytes that are hashed to see how long that takes."""


def foresee_mining(
    corpus: Sequence[Url], *, lexicon: str = "gender-en", quota: int = 100
) -> Foreseen:
    """What `mine` will take in one process.

    Args:
        corpus: files, globs or URLs.
        lexicon: a lexicon's name or file.
        quota: contexts kept for each word.
    """
    words = read_lexicon(lexicon)
    kernel = Kernel(words, words.two())
    files = expanded(corpus)
    sizes = {url: _size(url) for url in files}
    counts = {url: rows_of(url) if url.endswith(".parquet") else sizes[url] for url in files}
    each = {url: ROWS if url.endswith(".parquet") else PIECE for url in files}
    pieces = sum(-(-max(counts[url], 1) // each[url]) for url in files)
    share = [min(counts[url], each[url]) for url in files]
    # The first and the last: what comes later keeps fewer contexts.
    probes = [(files[0], 0, share[0]), (files[-1], max(counts[files[-1]] - share[-1], 0), None)]
    rows: Rows = {}
    read, writing = partial(texts_with, pattern=pattern(kernel.known)), 0.0
    took, sizes_of, payload = [], [], b""  # seconds, and bytes of the file that took so long
    for url, start, _ in probes:
        end = min(start + each[url], counts[url])
        piece = _piece(url, start, end)
        found_in(read(piece)[1][:1000], kernel, quota, {})  # what is loaded on first use
        began = time.perf_counter()
        counted, found = found_in(read(piece)[1], kernel, quota, rows)
        for word, own in found.items():
            rows[word] = least(word, rows.get(word, {}) | own, quota)
        took.append(time.perf_counter() - began)
        sizes_of.append(max(sizes[url] * (end - start) / max(counts[url], 1), 1))
        began = time.perf_counter()
        payload = given(counted, in_order(rows, kernel))
        writing = time.perf_counter() - began
    began = time.perf_counter()
    gathered([payload], quota, lambda name, lines: sum(map(len, lines)))  # type: ignore[arg-type]
    gathering = time.perf_counter() - began
    units = -(-pieces // PIECES)
    work = sum(sizes.values()) * took[-1] / sizes_of[-1] + units * max(took[0] - took[-1], 0)
    parts = {
        "hashing": _hashing(files[0]) * sum(sizes.values()),
        "mining": work,
        "writing": units * writing,
        "gathering": units * gathering,
    }
    return Foreseen(
        forwards=0,
        tokens=0,
        seconds=sum(parts.values()),
        parts=parts,
        peak_mb=peak_mb(),
        disk_mb=(units + 1) * len(payload) / MB,
        notes=(f"{pieces} pieces in {units} units, {sum(sizes.values()) / MB:.0f} MB",),
    )


def corpus_bytes(corpus: Sequence[Url]) -> int:
    """How large its files are."""
    return sum(_size(url) for url in expanded(corpus))


def _size(url: str) -> int:
    fs, path = located(url)
    return int(fs.size(path) or 0)


def _piece(url: str, start: int, end: int) -> Piece:
    if url.endswith(".parquet"):
        return Piece(url, "", start, end)
    fs, path = located(url)
    with fs.open(path, "rb") as file:
        file.seek(start)
        return Piece(url, hashlib.sha256(file.read(end - start)).hexdigest(), start, end)


def _hashing(url: str) -> float:
    """Seconds a byte."""
    fs, path = located(url)
    began = time.perf_counter()
    with fs.open(path, "rb") as file:
        data = file.read(HASHED)
        hashlib.sha256(data).hexdigest()
    return (time.perf_counter() - began) / max(len(data), 1)
