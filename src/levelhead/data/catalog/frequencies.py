"""Word frequencies of public text: all that a model without any context could know.

A text of the catalog, or a file of your own, is counted when it is asked for, and the counts are
kept as long as the process lasts. Nothing is counted of a file whose SHA-256 is not the catalog's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset, datasets, file_items
from levelhead.data.catalog.readers import detokenized
from levelhead.data.corpus import reader as corpus
from levelhead.data.records import Passage, Sentence
from levelhead.data.tokenize import folded, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PUBLIC = ("wikitext-2",)
"""Counted by default: of the catalog's running texts the one that may be downloaded by anybody and
was not chosen for the people it speaks of."""
SMOOTHING = 1.0
"""Added to every count (Laplace), so that what the text lacks is rare and not impossible. With 0.1
the same types of CrowS-Pairs are told apart."""
BLOCKS = 20
"""Into which a text is cut to see how far its counts vary: neighbouring lines share a subject."""

_APART = re.compile(r" @([-,.])@ ")
"""WikiText sets signs within a word or number apart: well @-@ known, 1 @,@ 000."""


class Source(NamedTuple):
    """A file of text that is here, its hash checked."""

    name: str
    path: str
    sha256: str
    licence: str
    reader: str
    """Of the catalog; empty for a file of your own."""


def locate_sources(names: Sequence[str]) -> tuple[Source, ...]:
    """The files of data sets of the catalog (downloaded where that is allowed), or of paths."""
    found: list[Source] = []
    for name in names:
        if name not in datasets():
            found += [
                Source(path, path, file_hash(path), "your own file", "")
                for path in corpus.expanded([name])
            ]
            continue
        row = dataset(name)
        found += [
            Source(
                f"{row.name}/{file.path}",
                str(row.fetched(file.part)),
                file.sha256,
                row.licence,
                row.reader,
            )
            for file in row.files
        ]
    if not found:
        raise LevelheadError("no text to count words in", mend="name at least one")
    return tuple(found)


@lru_cache(maxsize=4)
def texts_of(sources: tuple[Source, ...]) -> tuple[str, ...]:
    """The running text, a line or sentence each; headings left out."""
    return tuple(text for source in sources for text in _texts(source))


def _texts(source: Source) -> Iterator[str]:
    if not source.reader:
        for piece in corpus.pieces([source.path]):
            yield from corpus.sentences(piece)
        return
    count = 0
    for item in file_items(source.path, source.reader):
        if isinstance(item, Sentence | Passage):
            count += 1
            if source.reader != "wikitext":
                yield item.text
            elif not item.text.startswith(" = "):  # a heading
                yield detokenized(_APART.sub(r"\1", item.text.strip()))
    if not count:
        raise LevelheadError(
            f"{source.name} holds no running text",
            mend="name a corpus, such as wikitext-2, or a text file",
        )


@lru_cache(maxsize=4)
def block_counts(sources: tuple[Source, ...]) -> tuple[Counter[str], ...]:
    """How often each word stands in each block of the text, ASCII case folded."""
    texts = texts_of(sources)
    found: list[Counter[str]] = [Counter() for _ in range(min(BLOCKS, len(texts)))]
    for i, text in enumerate(texts):
        found[i * len(found) // len(texts)].update(folded(token.text) for token in tokens(text))
    return tuple(found)


class LogOdds(NamedTuple):
    """How much more frequent some words are than others."""

    value: float
    left_out: tuple[float, ...]
    """The same with one block of the text left out after another."""
    n: int
    """Words that were counted."""


def log_odds(sources: tuple[Source, ...], first: Sequence[str], second: Sequence[str]) -> LogOdds:
    """Log of the frequency of all words of one list over that of another, smoothed."""
    blocks = block_counts(sources)
    sides = [
        [sum(block[folded(word)] for word in dict.fromkeys(words)) for block in blocks]
        for words in (first, second)
    ]

    def of(without: int | None) -> float:
        one, other = (
            sum(side) - (0 if without is None else side[without]) + SMOOTHING for side in sides
        )
        return math.log(one / other)

    n = sum(block.total() for block in blocks)
    return LogOdds(of(None), tuple(of(i) for i in range(len(blocks))), n)
