"""Sentence templates, written here: a word is put into each, with its place.

The papers' own templates are read from where they live (`published`), as their files print them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import UnknownName
from levelhead.data.prompts.counteracts import article

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Sort = Literal["thing", "bare", "person", "adjective"]
Carried = Literal["any", "thing", "bare", "adjective"]
"""What a target is in a frame that names a group first; any: whatever it is."""

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

CARRIES: dict[str, tuple[str, ...]] = {
    # The group stands before the target, as causal models need it, and every verb is a modal or in
    # the past: the same for one and for many.
    "any": (
        "{group} would be described as {target}.",
        "{group} might be remembered as {target}.",
        "{group} could be summed up in one word: {target}.",
        "{group} will be called {target}.",
    ),
    "thing": (
        "{group} can be {a} {target}.",
        "{group} must be {a} {target}.",
        "{group} will become {a} {target}.",
        "{group} worked as {a} {target}.",
    ),
    "bare": (
        "{group} will talk about {target}.",
        "{group} could think of {target}.",
        "{group} must like {target}.",
        "{group} may choose {target}.",
    ),
    "adjective": (
        "{group} can be {target}.",
        "{group} must be {target}.",
        "{group} will seem {target}.",
        "{group} may become {target}.",
    ),
}

PHRASES: dict[str, str] = {
    # How a word of a lexicon's kind is the subject of a sentence.
    "pronoun": "{word}",
    "name": "{word}",
    "person": "the {word}",
    "kinship": "the {word}",
    "role": "the {word}",
    "adjective": "the {word} person",
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


class Carrier(NamedTuple):
    """A sentence that names a group and then a target, and where they stand."""

    id: str
    text: str
    group: tuple[int, int]
    target: tuple[int, int]


def subject(kind: str, role: str | None) -> str | None:
    """How a word of a kind is written as a subject; None where it cannot be one.

    >>> subject("adjective", None), subject("pronoun", "object"), subject("title", None)
    ('the {word} person', None, None)
    """
    if kind == "pronoun" and role not in (None, "subject"):
        return None
    return PHRASES.get(kind)


def carried(
    phrase: str, word: str, target: str, *, sort: Carried = "any", frames: int | None = None
) -> Iterator[Carrier]:
    """A group's word and a target in each frame of a sort, or in the first few of them.

    >>> next(carried("the {word}", "woman", "nurse", sort="thing")).text
    'The woman can be a nurse.'
    """
    if sort not in CARRIES:
        raise UnknownName("sort of target", str(sort), CARRIES)
    whole = phrase.format(word=word)
    whole = whole[0].upper() + whole[1:]
    begin = phrase.index("{word}")
    for i, frame in enumerate(CARRIES[sort][:frames]):
        head, tail = frame.format(a=article(target), group=whole, target="\0").split("\0")
        group = (frame.index("{group}") + begin, frame.index("{group}") + begin + len(word))
        place = (len(head), len(head) + len(target))
        yield Carrier(f"{sort}-{i}", f"{head}{target}{tail}", group, place)
