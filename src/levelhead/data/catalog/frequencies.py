"""Word frequencies of public text: what a model without any context could learn.

Words of a text of the catalog or of a user's file are counted on request, and the counts are cached
for the lifetime of the process. A file whose SHA-256 differs from that of the catalog raises an
error.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import LevelheadError
from levelhead.core.files import file_hash
from levelhead.data.catalog.datasets import dataset, datasets, read_file_items
from levelhead.data.catalog.readers import detokenize
from levelhead.data.corpus import reader as corpus
from levelhead.data.records import GapPassage, Sentence
from levelhead.data.tokenize import fold_case, tokenize_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT_SOURCES = ("wikitext-2",)
"""Default text: the running text of the catalog that everybody may download and that was not
selected for the people it mentions."""
SMOOTHING = 1.0
"""Added to every count (Laplace), so that words that the text lacks are rare and not impossible. A
value of 0.1 distinguishes the same types of CrowS-Pairs."""
BLOCKS = 20
"""Number of blocks of a text for the jackknife: adjacent lines share a topic and depend on each
other."""

_SEPARATED_SIGN = re.compile(r" @([-,.])@ ")
"""WikiText separates signs within a word or number: well @-@ known, 1 @,@ 000."""


class TextSource(NamedTuple):
    """A local file of text whose hash was checked."""

    name: str
    path: str
    sha256: str
    licence: str
    reader: str
    """Reader of the catalog; empty for a user's file."""


def locate_sources(names: Sequence[str]) -> tuple[TextSource, ...]:
    """Locate the files of data sets (downloaded if allowed) or of paths.

    Args:
        names: names of data sets, or paths.
    """
    sources: list[TextSource] = []
    for name in names:
        if name not in datasets():
            sources += [
                TextSource(path, path, file_hash(path), "your own file", "")
                for path in corpus.expand_sources([name])
            ]
            continue
        row = dataset(name)
        sources += [
            TextSource(
                f"{row.name}/{file.path}",
                str(row.ensure_local(file.part)),
                file.sha256,
                row.licence,
                row.reader,
            )
            for file in row.files
        ]
    if not sources:
        raise LevelheadError("no text to count words in", hint="name at least one")
    return tuple(sources)


# Several measures count words of one text; four texts bound the memory.
@lru_cache(maxsize=4)
def read_source_texts(sources: tuple[TextSource, ...]) -> tuple[str, ...]:
    """Return lines or sentences of running text, without headings.

    Args:
        sources: located files.
    """
    return tuple(text for source in sources for text in _read_texts(source))


def _read_texts(source: TextSource) -> Iterator[str]:
    if not source.reader:
        for piece in corpus.split_corpus([source.path]):
            yield from corpus.iter_sentences(piece)
        return
    count = 0
    for item in read_file_items(source.path, source.reader):
        if isinstance(item, Sentence | GapPassage):
            count += 1
            if source.reader != "wikitext":
                yield item.text
            # WikiText marks headings by " = ".
            elif not item.text.startswith(" = "):
                yield detokenize(_SEPARATED_SIGN.sub(r"\1", item.text.strip()))
    if not count:
        raise LevelheadError(
            f"{source.name} contains no running text",
            hint="name a corpus, such as wikitext-2, or a text file",
        )


@lru_cache(maxsize=4)
def count_words_by_block(sources: tuple[TextSource, ...]) -> tuple[Counter[str], ...]:
    """Count each word in each block of the text, with ASCII case folding.

    Args:
        sources: located files.
    """
    texts = read_source_texts(sources)
    # No empty blocks: the jackknife would count values that leave nothing out.
    counts: list[Counter[str]] = [Counter() for _ in range(min(BLOCKS, len(texts)))]
    for i, text in enumerate(texts):
        # Consecutive lines form a block, so that dependence stays within blocks.
        counts[i * len(counts) // len(texts)].update(
            fold_case(token.text) for token in tokenize_words(text)
        )
    return tuple(counts)


class LogOdds(NamedTuple):
    """Log odds of the frequencies of two word lists."""

    value: float
    leave_block_out_values: tuple[float, ...]
    """Values without each block of the text, for a jackknife."""
    n_words: int
    """Number of counted words."""


def compute_log_odds(
    sources: tuple[TextSource, ...], first: Sequence[str], second: Sequence[str]
) -> LogOdds:
    """Compute the smoothed log ratio of the frequencies of two word lists.

    Args:
        sources: located files.
        first: words of the numerator.
        second: words of the denominator.
    """
    blocks = count_words_by_block(sources)
    sides = [
        # dict.fromkeys: a word that a list repeats counts once.
        [sum(block[fold_case(word)] for word in dict.fromkeys(words)) for block in blocks]
        for words in (first, second)
    ]

    def log_ratio(omitted_block: int | None) -> float:
        numerator, denominator = (
            sum(side) - (0 if omitted_block is None else side[omitted_block]) + SMOOTHING
            for side in sides
        )
        return math.log(numerator / denominator)

    n_words = sum(block.total() for block in blocks)
    return LogOdds(log_ratio(None), tuple(log_ratio(i) for i in range(len(blocks))), n_words)
