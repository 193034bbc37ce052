"""Sentences that hold a word: the contexts from which its vector is averaged (Yang et al. 2025).

Which sentences are taken, where there are more than wanted, is decided by hash: neither the order
of the corpus nor its cutting matters, and the first ten of a hundred are the ten one would get.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from functools import cache, lru_cache
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset, datasets
from levelhead.data.corpus.collect import rank
from levelhead.data.corpus.matcher import RUN
from levelhead.data.corpus.reader import pieces, sentences
from levelhead.data.tokenize import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MINED = "contexts.jsonl"


class Context(NamedTuple):
    """A sentence and where the word stands in it."""

    text: str
    start: int
    end: int


class Contexts(NamedTuple):
    """Contexts of words, and what they were taken from."""

    of: Mapping[str, tuple[Context, ...]]
    """By the word as it was asked for; a word without any is there too."""
    sources: tuple[tuple[str, str], ...]
    """Name and SHA-256 of every source."""


def contexts(
    words: Mapping[str, str], corpus: str | os.PathLike[str] | Sequence[str], *, quota: int = 100
) -> Contexts:
    """Up to `quota` sentences for each word.

    A sentence serves a group's word if it names no other group, and a word of no group if it names
    none (Kaneko and Bollegala 2021).

    Args:
        words: every word, and the group that it marks; "" for none.
        corpus: a data set's name, files, globs or URLs, or a folder that `levelhead mine` wrote.
        quota: the most for one word.
    """
    if quota < 1:
        raise LevelheadError(f"a quota of {quota}", mend="take at least one context a word")
    if not words:
        raise LevelheadError("there are no words to find", mend="give at least one")
    sources = (
        (os.fspath(corpus),) if isinstance(corpus, str | os.PathLike) else tuple(map(str, corpus))
    )
    groups = {folded(word): group for word, group in words.items()}
    titles = {folded(word): word for word in words if word[0].isupper()}  # Miss, not "I miss you"

    @cache  # a corpus has few different words
    def asked(word: str) -> str | None:
        own = folded(word)
        return own if own in groups and titles.get(own, word) == word else None

    read = {source: _texts(source) for source in dict.fromkeys(sources)}
    found: dict[str, dict[str, Context]] = defaultdict(dict)
    for text in chain.from_iterable(texts for texts, _ in read.values()):
        seen = [
            (word, match.start(), match.end())
            for match in RUN.finditer(text)
            if (word := asked(match[0])) is not None
        ]
        marked = {groups[word] for word, _, _ in seen} - {""}
        for word, start, end in seen:
            if marked <= {groups[word]}:
                key = hashlib.sha256(text.encode()).hexdigest()
                found[word][key] = Context(text, start, end)
    kept = {word: _least(folded(word), found.get(folded(word), {}), quota) for word in words}
    named = tuple(
        (source.rstrip("/").rpartition("/")[2], digest) for source, (_, digest) in read.items()
    )
    return Contexts(kept, named)


def _least(word: str, rows: Mapping[str, Context], quota: int) -> tuple[Context, ...]:
    kept = nsmallest(quota, rows, key=lambda key: rank(word, key))
    return tuple(rows[key] for key in kept)


def _texts(source: str) -> tuple[Iterable[str], str]:
    """The sentences of a corpus, and its hash."""
    if source in datasets():
        return _of_dataset(source), content_hash([file.sha256 for file in dataset(source).files])
    mined = Path(source) / MINED
    if "://" not in source and mined.is_file():
        return _mined(mined), file_hash(mined)
    if "://" not in source and _is_nothing(source):
        raise LevelheadError(
            f"{source!r} is neither a data set, nor a file, nor a folder of `levelhead mine`",
            mend="name a text file (.txt, .tsv, .jsonl, .parquet) or see `levelhead data list`",
        )
    cut = pieces([source])
    whole = content_hash([piece.sha256 for piece in cut])
    return (text for piece in cut for text in sentences(piece)), whole


def _is_nothing(source: str) -> bool:
    return not any(sign in source for sign in "*?[") and not Path(source).is_file()


@lru_cache(maxsize=4)
def _of_dataset(name: str) -> tuple[str, ...]:
    row = dataset(name)
    items = (item for part in row.parts for item in row.items(part))
    return tuple(text for item in items if (text := getattr(item, "text", "")))


def _mined(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from dict.fromkeys(str(json.loads(line)["text"]) for line in lines)
    except (ValueError, KeyError, TypeError) as error:
        raise LevelheadError(
            f"{path} is not as `levelhead mine` writes it: {error}", mend="mine the corpus again"
        ) from None
