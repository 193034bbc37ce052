"""Words in a text: one exact specification for matching and swapping.

Text is NFC. A word is a run of Unicode word characters (letters, digits, underscore) and the
accents on them, with apostrophes and hyphens inside it kept: men's, mother-in-law. Comparison folds
ASCII case only, so that U+0130, U+017F and U+212A are not taken for i, s and k. Mining is stricter
still: plain runs of word characters; `conformance.tsv` beside this file holds the traps, for other
implementations to be tried on.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

_RUN = r"\w[\w\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]*"
WORD = re.compile(rf"{_RUN}(?:['\u2019-]{_RUN})*")
TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s]")
_PLAIN = re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")
"""The same in a text of ASCII, and quicker."""
CLITIC = re.compile(r"(?i:['\u2019](?:s|ll|d|re|ve|m))$|(?i:n['\u2019]t)$")
_FOLD = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Token(NamedTuple):
    """A word or a sign, and where it stands."""

    text: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """Words and signs in their order.

    >>> [token.text for token in tokens("The men's club, his_id.")]
    ['The', "men's", 'club', ',', 'his_id', '.']
    """
    pattern = _PLAIN if text.isascii() else TOKEN
    return [Token(match[0], *match.span()) for match in pattern.finditer(text)]


def folded(word: str) -> str:
    """ASCII letters in lower case; everything else as it is.

    >>> folded("MR"), folded("\u0130s")
    ('mr', '\u0130s')
    """
    return word.lower() if word.isascii() else word.translate(_FOLD)


def without_clitic(word: str) -> tuple[str, str]:
    """A word, and the 's or 'll that hangs on it.

    >>> without_clitic("woman's"), without_clitic("o'clock")
    (('woman', "'s"), ("o'clock", ''))
    """
    match = CLITIC.search(word) if "'" in word or "\u2019" in word else None
    return (word[: match.start()], match[0]) if match and match.start() else (word, "")


def in_case_of(new: str, old: str) -> str:
    """A word written as another one is: SHE, She, she.

    >>> in_case_of("he", "SHE"), in_case_of("mother", "Dad"), in_case_of("Ms", "MR")
    ('HE', 'Mother', 'MS')
    """
    letters = [sign for sign in old if sign.isalpha()]
    if len(letters) > 1 and all(sign.isupper() for sign in letters):
        return new.upper()
    if letters and letters[0].isupper():
        return new[:1].upper() + new[1:]
    return new
