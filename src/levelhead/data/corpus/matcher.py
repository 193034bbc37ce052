"""Matching of words in sentences and creation of pairs, one sentence at a time.

This module is the specification. `matcher_polars` gives the same results for many texts at once and
is tested against it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from itertools import chain
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead.core.canonical_json import to_canonical_json
from levelhead.data.corpus.collect import PAIR_KEY, MinedRow, keep_lowest_ranked, rank_hash
from levelhead.data.corpus.reader import split_text_sentences
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon

WORD_RUN = re.compile(r"\w+")
"""Definition of a word in mining."""
# A sentence is stored with each of its words, so that mining costs the square of its length: 300
# sentences of 10,000 characters took 0.8 GB. Nobody writes sentences of 350 words.
MAX_SENTENCE_CHARS = 2**11
"""Largest number of characters in a sentence; longer ones come from text without full stops."""

WordMatch = tuple[str, int, int]
"""A folded word with its start and end."""


class KeyedSentence(NamedTuple):
    """A sentence that contains a word, with its id."""

    key: str
    text: str


RowsByWord = dict[str, dict[str, "bytes | KeyedSentence"]]
"""Stored rows: sentences by word and key, and encoded pairs by `PAIR_KEY` and key."""


class SentenceMatcher:
    """The words of a lexicon, prepared for matching."""

    def __init__(self, lexicon: Lexicon, groups: tuple[str, str]) -> None:
        self.lexicon, self.groups = lexicon, groups
        group_words = [(word, group) for group in groups for word in lexicon.words(group)]
        self.attributes = {fold_case(word): group for word, group in group_words}
        # Titles match only with their capital letter: Miss, not "I miss you".
        self.titles = {fold_case(word): word for word, _ in group_words if word[0].isupper()}
        self.targets: dict[str, set[str]] = defaultdict(set)
        for family in lexicon.families:
            for side in family.sides:
                for word in side.words:
                    if side.stereotyped_group in groups:
                        self.targets[fold_case(word)].add(str(side.stereotyped_group))
        self.vocabulary = frozenset(self.attributes) | frozenset(self.targets)

    def find_matches(self, text: str) -> list[WordMatch]:
        """Find all words of the lexicon in a text, folded, with their positions."""
        matches = []
        for match in WORD_RUN.finditer(text):
            word = fold_case(match[0])
            if word in self.vocabulary and self.titles.get(word, match[0]) == match[0]:
                matches.append((word, match.start(), match.end()))
        return matches

    def last_position(self, word: str, text: str) -> tuple[int, int]:
        """Return the last position of a word that occurs in a text."""
        lowered = text.lower()
        # Lower case can have another length, such as for U+0130, and then positions differ.
        if len(lowered) != len(text):
            return next(
                match[1:] for match in reversed(self.find_matches(text)) if match[0] == word
            )
        # In NFC no other letter has a lower case that is ASCII: the Kelvin sign is already a K.
        title = self.titles.get(word)
        haystack, needle = (text, title) if title else (lowered, word)
        end = len(text)
        while True:
            start = haystack.rindex(needle, 0, end)
            end = start + len(word)
            if is_whole_word(text, start, end):
                return start, end
            end -= 1

    def make_pair(
        self, text: str, matches: Sequence[WordMatch]
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the pair of a sentence or None, and the outcome for the counts."""
        group_matches = [match for match in matches if match[0] in self.attributes]
        # With several group words, a pair would not be minimal (Yang et al. 2025, section 5.2).
        if len(group_matches) != 1:
            return None, "no group word" if not group_matches else "several group words"
        word, start, end = group_matches[0]
        group = self.attributes[word]
        stereotyped_targets = [
            list(match) for match in matches if group in self.targets.get(match[0], ())
        ]
        if not stereotyped_targets:
            return None, "no target of its group"
        swapped = swap(text, self.lexicon, groups=self.groups)
        if swapped.counterfactual is None:
            return None, "its word cannot be swapped"
        # The swap uses a wider definition of words, so it may find words that matching does not.
        if len(swapped.changes) != 1:
            return None, "its swap changes another word"
        return {
            "text": text,
            "twin": swapped.counterfactual,
            "group": group,
            "attribute": [word, start, end],
            "targets": stereotyped_targets,
        }, "kept"

    def unmatchable_words(self) -> list[str]:
        """Return words that can never match, because they are no single run of word characters."""
        return sorted(word for word in self.vocabulary if not WORD_RUN.fullmatch(word))


def encode_pair(key: str, row: dict[str, Any]) -> bytes:
    """Encode a pair as canonical JSON."""
    return to_canonical_json({"id": key, **row})


def sentence_key(text: str) -> str:
    """Return the id of a sentence: the SHA-256 of its text."""
    return hashlib.sha256(text.encode()).hexdigest()


def encode_context(sentence: KeyedSentence, start: int, end: int) -> bytes:
    """Encode a context as canonical JSON, faster than the general encoder."""
    # Hashes and positions need no escaping, so only the text is encoded.
    text = encode_basestring(sentence.text)
    return f'{{"end":{end},"id":"{sentence.key}","start":{start},"text":{text}}}'.encode()


def is_whole_word(text: str, start: int, end: int) -> bool:
    """Return whether a position is a complete run of word characters."""
    return not (WORD_RUN.match(text, end) or (start and WORD_RUN.match(text, start - 1)))


def match_texts(
    texts: Iterable[str], matcher: SentenceMatcher, quota: int
) -> tuple[Counter[str], RowsByWord]:
    """Match texts: return the counts of outcomes and the stored rows.

    Args:
        texts: any texts.
        matcher: words of the lexicon.
        quota: largest number of contexts per word.
    """
    counts: Counter[str] = Counter()
    rows: RowsByWord = defaultdict(dict)
    for text in chain.from_iterable(map(split_text_sentences, texts)):
        matches = matcher.find_matches(text)
        if not matches:
            continue
        counts["sentences"] += 1
        if len(text) > MAX_SENTENCE_CHARS:
            counts["too long"] += 1
            continue
        key = sentence_key(text)
        for word, *_ in matches:
            # Duplicate sentences have one key and use the quota once.
            rows[word][rank_hash(word, key)] = KeyedSentence(key, text)
        row, outcome = matcher.make_pair(text, matches)
        counts[outcome] += 1
        if row is not None:
            rows[PAIR_KEY][key] = encode_pair(key, row)
    return counts, {
        word: keep_lowest_ranked(word, word_rows, quota) for word, word_rows in rows.items()
    }


def iter_rows_in_order(rows: RowsByWord, matcher: SentenceMatcher) -> Iterator[MinedRow]:
    """Yield rows in the order of a piece; a repeated word has its last position."""
    for word in sorted(rows):
        for key, row in sorted(rows[word].items()):
            if isinstance(row, KeyedSentence):
                yield MinedRow(
                    word, key, encode_context(row, *matcher.last_position(word, row.text))
                )
            else:
                yield MinedRow(word, key, row)
