"""What mining looks for in a sentence, and what it makes of it, one sentence at a time.

This is the specification. `scan` does the same to many texts at once, and is tested against it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from itertools import chain
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.canonical_json import canonical
from levelhead.data.corpus.collect import PAIR, Row, least, rank
from levelhead.data.corpus.reader import sentences_of
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.tokenize import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon

RUN = re.compile(r"\w+")
"""A word, as mining has it."""
LONGEST = 2**20
"""Characters of a sentence: what has more is a file without full stops."""

Match = tuple[str, int, int]
"""A word, folded, and its place."""


class Seen(NamedTuple):
    """A sentence in which a word stands, by its id."""

    key: str
    text: str


Rows = dict[str, dict[str, "bytes | Seen"]]
"""What is kept: by word and by key, where it stands; by `PAIR` and by key, canonical JSON."""


class Kernel:
    """The words of a lexicon, ready to be found."""

    def __init__(self, words: Lexicon, groups: tuple[str, str]) -> None:
        self.lexicon, self.groups = words, groups
        every = [(word, group) for group in groups for word in words.words(group)]
        self.attributes = {folded(word): group for word, group in every}
        self.titles = {folded(word): word for word, _ in every if word[0].isupper()}
        self.targets: dict[str, set[str]] = defaultdict(set)
        for family in words.families:
            for side in family.sides:
                for word in side.words:
                    if side.leans in groups:
                        self.targets[folded(word)].add(str(side.leans))
        self.known = frozenset(self.attributes) | frozenset(self.targets)

    def matches(self, text: str) -> list[Match]:
        """Every known word of a text, folded, with its place."""
        found = []
        for match in RUN.finditer(text):
            word = folded(match[0])
            if word in self.known and self.titles.get(word, match[0]) == match[0]:
                found.append((word, match.start(), match.end()))
        return found

    def last(self, word: str, text: str) -> tuple[int, int]:
        """The last place of a word that stands in a text."""
        low = text.lower()
        if len(low) != len(text):  # a letter became two: places are others there
            return next(match[1:] for match in reversed(self.matches(text)) if match[0] == word)
        # In NFC no letter beyond ASCII becomes one of ASCII alone: the Kelvin sign is a K already.
        title = self.titles.get(word)
        held, sought = (text, title) if title else (low, word)
        end = len(text)
        while True:
            start = held.rindex(sought, 0, end)
            end = start + len(word)
            if is_whole(text, start, end):
                return start, end
            end -= 1

    def pair(self, text: str, matches: Sequence[Match]) -> tuple[dict[str, Any] | None, str]:
        """The pair a sentence gives, or None; and what became of it, for the counts."""
        marks = [match for match in matches if match[0] in self.attributes]
        if len(marks) != 1:
            return None, "no group word" if not marks else "several group words"
        word, start, end = marks[0]
        group = self.attributes[word]
        wanted = [list(match) for match in matches if group in self.targets.get(match[0], ())]
        if not wanted:
            return None, "no target of its group"
        twin = swap(text, self.lexicon, groups=self.groups)
        if twin.twin is None:
            return None, "its word cannot be swapped"
        if len(twin.changes) != 1:
            return None, "its swap changes another word"
        return {
            "text": text,
            "twin": twin.twin,
            "group": group,
            "attribute": [word, start, end],
            "targets": wanted,
        }, "kept"

    def lost(self) -> list[str]:
        """Words of the lexicon that are no single run of word characters, and so never match."""
        return sorted(word for word in self.known if not RUN.fullmatch(word))


def pair_row(key: str, row: dict[str, Any]) -> bytes:
    """A pair, as it is kept."""
    return canonical({"id": key, **row})


def key_of(text: str) -> str:
    """The id of a sentence."""
    return hashlib.sha256(text.encode()).hexdigest()


def context(seen: Seen, start: int, end: int) -> bytes:
    """As canonical JSON, without looking at every value: what and where."""
    text = encode_basestring(seen.text)
    return f'{{"end":{end},"id":"{seen.key}","start":{start},"text":{text}}}'.encode()


def is_whole(text: str, start: int, end: int) -> bool:
    """Whether no run of word characters goes on beyond a place."""
    return not (RUN.match(text, end) or (start and RUN.match(text, start - 1)))


def literal(texts: Iterable[str], kernel: Kernel, quota: int) -> tuple[Counter[str], Rows]:
    """What texts give: how many of what, and the rows that are kept."""
    counts: Counter[str] = Counter()
    rows: Rows = defaultdict(dict)
    for text in chain.from_iterable(map(sentences_of, texts)):
        matches = kernel.matches(text)
        if not matches:
            continue
        counts["sentences"] += 1
        if len(text) > LONGEST:
            counts["too long"] += 1
            continue
        key = key_of(text)
        for word, *_ in matches:
            rows[word][rank(word, key)] = Seen(key, text)
        row, why = kernel.pair(text, matches)
        counts[why] += 1
        if row is not None:
            rows[PAIR][key] = pair_row(key, row)
    return counts, {word: least(word, own, quota) for word, own in rows.items()}


def in_order(rows: Rows, kernel: Kernel) -> Iterator[Row]:
    """As a piece gives them: of what stands several times in a sentence, the last."""
    for word in sorted(rows):
        for key, row in sorted(rows[word].items()):
            if isinstance(row, Seen):
                yield Row(word, key, context(row, *kernel.last(word, row.text)))
            else:
                yield Row(word, key, row)
