"""Checks of word lists: each finding names a word and its effect on a measure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon


class LexiconFlag(NamedTuple):
    """A word of a lexicon and its problem."""

    kind: str
    word: str
    problem: str


def check_lexicon(
    lexicon: Lexicon, *, tokenize: Callable[[str], Sequence[str]] | None = None
) -> list[LexiconFlag]:
    """Return all findings about a lexicon.

    Args:
        lexicon: lexicon to check.
        tokenize: tokenizer of a model; if given, words that it loses or splits are reported too.
    """
    flags = [*_flag_unpaired(lexicon), *_flag_shared(lexicon), *_flag_multi_word(lexicon)]
    if tokenize is not None:
        flags += _flag_split_words(lexicon, tokenize)
    return flags


def _flag_unpaired(lexicon: Lexicon) -> Iterator[LexiconFlag]:
    for term in lexicon.terms:
        for group in lexicon.groups[:2]:
            if term.word(group) is None:
                words = ", ".join(word for _, word in term.words)
                yield LexiconFlag("unpaired", words, f"{group} has no word for it")
    # Pronouns are excluded: her/his and her/him repeat a word on purpose.
    rows = Counter(tuple(sorted(term.words)) for term in lexicon.terms if term.role is None)
    for row, times in rows.items():
        if times > 1:
            yield LexiconFlag(
                "duplicate", ", ".join(word for _, word in row), f"occurs in {times} rows"
            )


def _flag_shared(lexicon: Lexicon) -> Iterator[LexiconFlag]:
    marks = {group: {fold_case(word) for word in lexicon.words(group)} for group in lexicon.groups}
    for i, first in enumerate(lexicon.groups):
        for second in lexicon.groups[i + 1 :]:
            for word in sorted(marks[first] & marks[second]):
                yield LexiconFlag("ambiguous", word, f"marks both {first} and {second}")
    for family in lexicon.families:
        words = [word for side in family.sides for word in side.words]
        for word, times in Counter(map(fold_case, words)).items():
            if times > 1:
                yield LexiconFlag("duplicate", word, f"occurs {times} times in {family.name}")
        for word in words:
            for group in lexicon.groups_of(word):
                yield LexiconFlag("both", word, f"is a target of {family.name} and marks {group}")


def _flag_multi_word(lexicon: Lexicon) -> Iterator[LexiconFlag]:
    for word in _all_words(lexicon):
        # Hyphens, apostrophes and full stops are part of single words: mother-in-law, Mr.
        if not word.replace("-", "").replace("'", "").replace(".", "").isalpha():
            yield LexiconFlag("multi-word", word, "cannot be used by measures of single words")


def _flag_split_words(
    lexicon: Lexicon, tokenize: Callable[[str], Sequence[str]]
) -> Iterator[LexiconFlag]:
    for word in _all_words(lexicon):
        # Measures average the tokens of a split word or drop it, so its result is less reliable.
        pieces = tokenize(word)
        if not pieces:
            yield LexiconFlag("lost", word, "the model has no token for it")
        elif len(pieces) > 1:
            yield LexiconFlag("cut", word, f"is {len(pieces)} tokens: {' '.join(pieces)}")


def _all_words(lexicon: Lexicon) -> list[str]:
    words = [word for group in lexicon.groups for word in lexicon.words(group)]
    words += [w for family in lexicon.families for side in family.sides for w in side.words]
    return list(dict.fromkeys(words))
