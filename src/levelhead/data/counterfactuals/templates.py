"""Sentence templates of levelhead, filled with a word whose position is returned.

`data.lexicons.published` reads the templates of papers from their published files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import UnknownNameError
from levelhead.data.prompts.counteracts import indefinite_article

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TemplateKind = Literal["thing", "bare", "person", "adjective"]
CarrierKind = Literal["any", "thing", "bare", "adjective"]
"""Kind of target in a frame that names a group first; any: every kind."""

TEMPLATES: dict[str, tuple[str, ...]] = {
    # Semantically bleached frames as in May et al. 2019: they add almost no meaning to the word.
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

CARRIER_FRAMES: dict[str, tuple[str, ...]] = {
    # The group comes before the target, because causal models see only earlier words. Verbs are
    # modal or in the past tense, so that they are equal for singular and plural groups.
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
    # How a word of each kind of the lexicon is written as the subject of a sentence.
    "pronoun": "{word}",
    "name": "{word}",
    "person": "the {word}",
    "kinship": "the {word}",
    "role": "the {word}",
    "adjective": "the {word} person",
}


class FramedWord(NamedTuple):
    """A word in a sentence, with its position."""

    id: str
    word: str
    text: str
    start: int
    end: int


def fill_templates(
    words: Sequence[str], template_kind: TemplateKind = "thing"
) -> Iterator[FramedWord]:
    """Yield each word in each template of its kind.

    >>> next(fill_templates(["apple"])).text
    'This is an apple.'

    Args:
        words: the words.
        template_kind: kind of all words.
    """
    if template_kind not in TEMPLATES:
        raise UnknownNameError("kind of word", str(template_kind), TEMPLATES)
    for word in words:
        for i, template in enumerate(TEMPLATES[template_kind]):
            # A search for the word in the text could find it in the frame.
            start = len(template[: template.index("{word}")].format(a=indefinite_article(word)))
            text = template.format(a=indefinite_article(word), word=word)
            yield FramedWord(f"{word}/{template_kind}-{i}", word, text, start, start + len(word))


class CarrierSentence(NamedTuple):
    """A sentence that names a group and then a target, with their positions."""

    id: str
    text: str
    group: tuple[int, int]
    target: tuple[int, int]


def subject_phrase(kind: str, role: str | None) -> str | None:
    """Return the phrase of a word as a subject; None if it cannot be a subject.

    >>> subject_phrase("adjective", None), subject_phrase("pronoun", "object")
    ('the {word} person', None)
    >>> subject_phrase("title", None) is None
    True

    Args:
        kind: kind of the word.
        role: grammatical role of a pronoun.
    """
    if kind == "pronoun" and role not in (None, "subject"):
        return None
    return PHRASES.get(kind)


def fill_carrier_frames(
    phrase: str,
    word: str,
    target: str,
    *,
    carrier_kind: CarrierKind = "any",
    max_frames: int | None = None,
) -> Iterator[CarrierSentence]:
    """Yield a group word and a target in the frames of a kind.

    >>> next(fill_carrier_frames("the {word}", "woman", "nurse", carrier_kind="thing")).text
    'The woman can be a nurse.'

    Args:
        phrase: phrase of the group word, from `subject_phrase`.
        word: word of the group.
        target: the target.
        carrier_kind: kind of the target.
        max_frames: number of frames; by default all.
    """
    if carrier_kind not in CARRIER_FRAMES:
        raise UnknownNameError("kind of target", str(carrier_kind), CARRIER_FRAMES)
    group_phrase = phrase.format(word=word)
    group_phrase = group_phrase[0].upper() + group_phrase[1:]
    begin = phrase.index("{word}")
    for i, frame in enumerate(CARRIER_FRAMES[carrier_kind][:max_frames]):
        head, tail = frame.format(
            # \0 cannot occur in a word, so the split finds the position of the target.
            a=indefinite_article(target),
            group=group_phrase,
            target="\0",
        ).split("\0")
        group_span = (frame.index("{group}") + begin, frame.index("{group}") + begin + len(word))
        target_span = (len(head), len(head) + len(target))
        yield CarrierSentence(
            f"{carrier_kind}-{i}", f"{head}{target}{tail}", group_span, target_span
        )
