"""Tokenization into words: one exact specification for matching and swapping.

Text is NFC. A word is a run of Unicode word characters (letters, digits, underscore) with their
combining accents, including inner apostrophes and hyphens: men's, mother-in-law. Comparison folds
ASCII case only, so that U+0130, U+017F and U+212A do not match i, s and k. Mining is stricter: it
uses plain runs of word characters. `conformance.tsv` in this folder lists difficult cases, to test
other implementations.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

# Combining accents are not \w, and NFC has no composed form for some letters with accents.
_WORD_RUN = r"\w[\w\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]*"
WORD = re.compile(rf"{_WORD_RUN}(?:['\u2019-]{_WORD_RUN})*")
TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s]")
_ASCII_TOKEN = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")
"""Equivalent to TOKEN for ASCII text, and faster."""
# Both apostrophes: keyboards write U+0027, books U+2019.
CLITIC = re.compile(r"(?i:['\u2019](?:s|ll|d|re|ve|m))$|(?i:n['\u2019]t)$")
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Token(NamedTuple):
    """A word or a punctuation sign, with its position."""

    text: str
    start: int
    end: int


def tokenize_words(text: str) -> list[Token]:
    """Split a text into words and punctuation signs, in order.

    >>> [token.text for token in tokenize_words("The men's club, his_id.")]
    ['The', "men's", 'club', ',', 'his_id', '.']
    """
    return [
        Token(word, start, start + len(word))
        for word, start in zip(*locate_words(text), strict=True)
    ]


def locate_words(text: str) -> tuple[list[str], list[int]]:
    """Return the words and punctuation signs of a text, and the position at which each starts.

    >>> locate_words("A hat.")
    (['A', 'hat', '.'], [0, 2, 5])
    """
    # The ASCII pattern gives the same tokens faster, and most corpora are mostly ASCII.
    pattern = _ASCII_TOKEN if text.isascii() else TOKEN
    # Lists of text and numbers, because the garbage collector walks every tuple of a long text.
    return pattern.findall(text), [match.start() for match in pattern.finditer(text)]


def fold_case(word: str) -> str:
    """Convert ASCII letters to lower case and leave all other characters unchanged.

    >>> fold_case("MR"), fold_case("\u0130s")
    ('mr', '\u0130s')
    """
    return word.lower() if word.isascii() else word.translate(_ASCII_LOWER)


def strip_clitic(word: str) -> tuple[str, str]:
    """Split a word from its clitic, such as 's or 'll.

    >>> strip_clitic("woman's"), strip_clitic("o'clock")
    (('woman', "'s"), ("o'clock", ''))
    """
    match = CLITIC.search(word) if "'" in word or "\u2019" in word else None
    return (word[: match.start()], match[0]) if match and match.start() else (word, "")


def match_case(word: str, reference: str) -> str:
    """Return a word in the case of a reference word: SHE, She, she.

    >>> match_case("he", "SHE"), match_case("mother", "Dad"), match_case("Ms", "MR")
    ('HE', 'Mother', 'MS')
    """
    letters = [character for character in reference if character.isalpha()]
    # A single capital letter, such as I or A, does not show that the text is in capitals.
    if len(letters) > 1 and all(character.isupper() for character in letters):
        return word.upper()
    if letters and letters[0].isupper():
        return word[:1].upper() + word[1:]
    return word
