"""Sentences that contain a word: the contexts over which its vector is averaged (Yang et al. 2025).

If there are more sentences than the quota, hashes decide which are used: the selection does not
depend on the order or splitting of the corpus, and a selection of ten is part of one of a hundred.
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
from levelhead.data.corpus.collect import rank_hash
from levelhead.data.corpus.matcher import WORD_RUN
from levelhead.data.corpus.reader import iter_sentences, split_corpus
from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MINED_CONTEXTS_FILE = "contexts.jsonl"


class WordContext(NamedTuple):
    """A sentence and the position of the word in it."""

    text: str
    start: int
    end: int


class WordContexts(NamedTuple):
    """Contexts of words and their sources."""

    by_word: Mapping[str, tuple[WordContext, ...]]
    """Contexts by the requested word; words without contexts are included."""
    sources: tuple[tuple[str, str], ...]
    """Name and SHA-256 of every source."""


def find_contexts(
    words: Mapping[str, str], corpus: str | os.PathLike[str] | Sequence[str], *, quota: int = 100
) -> WordContexts:
    """Find up to `quota` sentences for each word.

    A sentence is used for a word of a group if it names no other group, and for a word of no group
    if it names no group (Kaneko and Bollegala 2021).

    Args:
        words: words with the group that each marks; "" for none.
        corpus: name of a data set, files, globs or URLs, or a folder of `levelhead data mine`.
        quota: largest number of sentences per word.
    """
    if quota < 1:
        raise LevelheadError(f"a quota of {quota}", hint="give a quota of at least 1")
    if not words:
        raise LevelheadError("there are no words to find", hint="give at least one")
    sources = (
        (os.fspath(corpus),) if isinstance(corpus, str | os.PathLike) else tuple(map(str, corpus))
    )
    groups = {fold_case(word): group for word, group in words.items()}
    # Titles match only as written: Miss, not "I miss you".
    titles = {fold_case(word): word for word in words if word[0].isupper()}

    # A corpus has few different words, so the cache saves most of the folding.
    @cache
    def find_query_word(word: str) -> str | None:
        folded_word = fold_case(word)
        return (
            folded_word if folded_word in groups and titles.get(folded_word, word) == word else None
        )

    texts_by_source = {source: _read_source(source) for source in dict.fromkeys(sources)}
    rows_by_word: dict[str, dict[str, WordContext]] = defaultdict(dict)
    for text in chain.from_iterable(texts for texts, _ in texts_by_source.values()):
        occurrences = [
            (word, match.start(), match.end())
            for match in WORD_RUN.finditer(text)
            if (word := find_query_word(match[0])) is not None
        ]
        marked_groups = {groups[word] for word, _, _ in occurrences} - {""}
        for word, start, end in occurrences:
            if marked_groups <= {groups[word]}:
                # Duplicate sentences have the same key and count once.
                key = hashlib.sha256(text.encode()).hexdigest()
                rows_by_word[word][key] = WordContext(text, start, end)
    by_word = {
        word: _lowest_ranked(fold_case(word), rows_by_word.get(fold_case(word), {}), quota)
        for word in words
    }
    source_digests = tuple(
        (source.rstrip("/").rpartition("/")[2], digest)
        for source, (_, digest) in texts_by_source.items()
    )
    return WordContexts(by_word, source_digests)


def _lowest_ranked(
    word: str, rows: Mapping[str, WordContext], quota: int
) -> tuple[WordContext, ...]:
    kept_keys = nsmallest(quota, rows, key=lambda key: rank_hash(word, key))
    return tuple(rows[key] for key in kept_keys)


def _read_source(source: str) -> tuple[Iterable[str], str]:
    """Return the sentences of a corpus and its hash."""
    if source in datasets():
        # Hashes of the catalog: every file is checked against them before it is read.
        return _dataset_texts(source), content_hash([file.sha256 for file in dataset(source).files])
    mined = Path(source) / MINED_CONTEXTS_FILE
    if "://" not in source and mined.is_file():
        return _read_mined(mined), file_hash(mined)
    # A word that is neither is probably a misspelt name of a data set.
    if "://" not in source and _is_missing_file(source):
        raise LevelheadError(
            f"{source!r} is neither a data set, nor a file, nor a folder of `levelhead data mine`",
            hint="name a text file (.txt, .tsv, .jsonl, .parquet) or see `levelhead data list`",
        )
    corpus_pieces = split_corpus([source])
    digest = content_hash([piece.sha256 for piece in corpus_pieces])
    return (text for piece in corpus_pieces for text in iter_sentences(piece)), digest


def _is_missing_file(source: str) -> bool:
    return not any(sign in source for sign in "*?[") and not Path(source).is_file()


@lru_cache(maxsize=4)
def _dataset_texts(name: str) -> tuple[str, ...]:
    row = dataset(name)
    items = (item for part in row.parts for item in row.items(part))
    return tuple(text for item in items if (text := getattr(item, "text", "")))


def _read_mined(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as lines:
            # A sentence is listed once per word in this file.
            yield from dict.fromkeys(str(json.loads(line)["text"]) for line in lines)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LevelheadError(
            f"{path} does not have the format of `levelhead data mine`: {error}",
            hint="mine the corpus again",
        ) from None
