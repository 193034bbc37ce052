"""Sentence templates, written here: a word is put into each, with its place.

The papers' own templates are read from where they live (`published`), as their files print them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import UnknownName
from levelhead.data.prompts import article

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Sort = Literal["thing", "bare", "person", "adjective"]

TEMPLATES: dict[str, tuple[str, ...]] = {
    # Semantically bleached frames in the manner of May et al. 2019: they say next to nothing.
    "thing": (
        "This is {a} {word}.",
        "That is {a} {word}.",
        "Here is {a} {word}.",
        "It is {a} {word}.",
    ),
    "bare": ("This is {word}.", "That is {word}.", "There is {word}.", "It is {word}."),
    "person": ("This is {word}.", "That is {word}.", "{word} is here.", "Here is {word}."),
    "adjective": ("This is {word}.", "It is {word}.", "They are {word}.", "That was {word}."),
}


class Framed(NamedTuple):
    """A word in a sentence, and where it stands."""

    id: str
    word: str
    text: str
    start: int
    end: int


def framed(words: Sequence[str], sort: Sort = "thing") -> Iterator[Framed]:
    """Each word in each template of its sort.

    >>> next(framed(["apple"])).text
    'This is an apple.'
    """
    if sort not in TEMPLATES:
        raise UnknownName("sort of word", str(sort), TEMPLATES)
    for word in words:
        for i, template in enumerate(TEMPLATES[sort]):
            start = len(template[: template.index("{word}")].format(a=article(word)))
            text = template.format(a=article(word), word=word)
            yield Framed(f"{word}/{sort}-{i}", word, text, start, start + len(word))
