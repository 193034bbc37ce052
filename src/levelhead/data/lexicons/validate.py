"""What may be wrong with a word list: each finding names the word and what it does to a measure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from levelhead.data.tokenize import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon


class Flag(NamedTuple):
    """A word and what is the matter with it."""

    kind: str
    word: str
    why: str


def check(
    lexicon: Lexicon, *, tokenize: Callable[[str], Sequence[str]] | None = None
) -> list[Flag]:
    """All that may be wrong with a lexicon.

    Args:
        lexicon: the words.
        tokenize: a model's tokenizer; then words that it loses or cuts are named as well.
    """
    found = [*_unpaired(lexicon), *_shared(lexicon), *_multi_word(lexicon)]
    if tokenize is not None:
        found += _cut(lexicon, tokenize)
    return found


def _unpaired(lexicon: Lexicon) -> Iterator[Flag]:
    for term in lexicon.terms:
        for group in lexicon.groups[:2]:
            if term.word(group) is None:
                words = ", ".join(word for _, word in term.words)
                yield Flag("unpaired", words, f"{group} has no word for it")
    rows = Counter(tuple(sorted(term.words)) for term in lexicon.terms if term.role is None)
    for row, times in rows.items():
        if times > 1:
            yield Flag("duplicate", ", ".join(word for _, word in row), f"stands in {times} rows")


def _shared(lexicon: Lexicon) -> Iterator[Flag]:
    marks = {group: {folded(word) for word in lexicon.words(group)} for group in lexicon.groups}
    for i, first in enumerate(lexicon.groups):
        for second in lexicon.groups[i + 1 :]:
            for word in sorted(marks[first] & marks[second]):
                yield Flag("ambiguous", word, f"marks both {first} and {second}")
    for family in lexicon.families:
        words = [word for side in family.sides for word in side.words]
        for word, times in Counter(map(folded, words)).items():
            if times > 1:
                yield Flag("duplicate", word, f"stands {times} times in {family.name}")
        for word in words:
            for group in lexicon.groups_of(word):
                yield Flag("both", word, f"is a target of {family.name} and marks {group}")


def _multi_word(lexicon: Lexicon) -> Iterator[Flag]:
    for word in _all_words(lexicon):
        if not word.replace("-", "").replace("'", "").replace(".", "").isalpha():
            yield Flag("multi-word", word, "is lost to measures that read single words")


def _cut(lexicon: Lexicon, tokenize: Callable[[str], Sequence[str]]) -> Iterator[Flag]:
    for word in _all_words(lexicon):
        pieces = tokenize(word)
        if not pieces:
            yield Flag("lost", word, "the model has no token for it")
        elif len(pieces) > 1:
            yield Flag("cut", word, f"is {len(pieces)} tokens: {' '.join(pieces)}")


def _all_words(lexicon: Lexicon) -> list[str]:
    words = [word for group in lexicon.groups for word in lexicon.words(group)]
    words += [w for family in lexicon.families for side in family.sides for w in side.words]
    return list(dict.fromkeys(words))
