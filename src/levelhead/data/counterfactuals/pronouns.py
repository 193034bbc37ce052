"""her -> him or his? his -> her or hers? Decided by the words around, or refused.

English writes two of its pronouns alike on one side: her (him, his) and his (her, hers). Rules come
first where grammar leaves no doubt; else a small table of weights on neighbouring words decides,
and where it is not sure enough, nobody guesses. The table (`pronouns.json`) is written by
`tools/train_pronouns.py` from sentences with my/me, our/us, their/them and his/him, which English
keeps apart.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from levelhead.data.tokenize import without_clitic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SURE = 0.75
"""Probability below which nothing is decided."""

CLOSED = frozenset(
    "a an the this that these those my your his its our their i you he she it we they me him us "
    "them who whom whose what which when where why how if and or but nor so yet as at by for from "
    "in into of off on onto out over per through to toward towards under until up upon with within "
    "without about above across after against along among around before behind below beneath "
    "beside between beyond down during inside like near outside past since than throughout again "
    "also always away back even ever here home however instead just later maybe more much never "
    "now often once only perhaps quite rather soon still then there therefore though thus together "
    "too twice very well yesterday today tomorrow was were is are be been being had has have "
    "having do does did will would can could shall should may might must not n't".split()
)
"""Words of classes that take no new members."""
_POSSESSED = frozenset(
    "own mother mothers father fathers parent parents mom mum dad mommy daddy mama papa brother "
    "brothers sister sisters son sons daughter daughters child children baby wife husband fiance "
    "fiancee girlfriend boyfriend partner family grandmother grandfather grandma grandpa aunt "
    "uncle cousin niece nephew stepmother stepfather stepson stepdaughter bride groom friend "
    "friends boss name life career hand hands head eyes face hair heart body mind voice house "
    "birthday childhood death age dress shirt pants suit clothes shoes car job room bedroom".split()
)
"""Nouns that people have, and that are hardly ever said to them."""
_ADDRESS = frozenset({"ma'am", "ma\u2019am", "madam", "sir"})
BEGIN, END = "<begin>", "<end>"


def is_object(words: Sequence[str], i: int) -> bool | None:
    """Whether the possessive-or-object word at i is the object: her = him. None: not sure.

    >>> is_object(["I", "saw", "her", "yesterday", "."], 2)
    True
    >>> is_object(["I", "saw", "her", "brother", "."], 2)
    False
    """
    after = without_clitic(_near(words, i + 1))[0]
    if after == END or (not after[0].isalnum() and after not in _OPENING):
        return True  # nothing is possessed
    if after in _POSSESSED:
        return False
    if {after, _near(words, i + 2)} & _ADDRESS:
        return True  # they called her "ma'am"
    probability = _probability(words, i)
    if max(probability, 1 - probability) < SURE:
        return None
    return probability > 0.5


def stands_alone(words: Sequence[str], i: int) -> bool | None:
    """Whether "his" at i has no noun behind it: his = hers. None: not sure.

    "A friend of his.", "The choice was his." The next word ends the phrase; a noun or an adjective
    would continue it. "His or her book" goes on behind the other possessive, and "a friend of his
    left" looks like "a picture of his mother".

    >>> stands_alone(["It", "was", "his", "."], 2)
    True
    >>> stands_alone(["It", "was", "his", "dog"], 2)
    False
    """
    after, later, before = (_near(words, j) for j in (i + 1, i + 2, i - 1))
    if after in _JOINS:
        if later in _DETERMINERS:
            return False
        return True if before in _BEFORE_ALONE else None
    if after == END or not after[0].isalnum():
        return None if after in _OPENING else True
    if after in _ENDS_A_PHRASE or after == "alone":
        return True
    if before == "of" and _near(words, i - 3) in _OF_SEVERAL and after not in _POSSESSED:
        return None
    return False


_JOINS = frozenset({"and", "or", "/", ",", "&", "-", "\u2013", "\u2014"})
_DETERMINERS = frozenset({"her", "his", "my", "your", "our", "their", "its"})
_BEFORE_ALONE = frozenset("is was were are be been of became remained".split())
_OF_SEVERAL = frozenset("a an another some any no this that these those two three one".split())


_OPENING = frozenset("\"'\u201c\u2018([`$\u00a3\u20ac")
"""Signs a phrase may go on behind: his "friend", his (late) father."""
_ENDS_A_PHRASE = CLOSED - frozenset(
    "a an the my your his its our their whose what more much very well then once only even ever "
    "now still always never often perhaps quite rather past like home back near inside outside "
    "being having will may might can must within down up out off under over".split()
)


def features(words: Sequence[str], i: int) -> Iterator[tuple[str, float]]:
    """What is known about the word at i from its neighbours, without looking at it."""
    after, later = _near(words, i + 1), _near(words, i + 2)
    before, earlier = _near(words, i - 1), _near(words, i - 2)
    for place, word, endings in (
        ("n", after, (1, 2, 3, 4)),
        ("p", before, (2, 3)),
        ("m", later, (2, 3)),
    ):
        yield f"{place}={word}", 1
        for size in endings:
            yield f"{place}{size}={word[-size:]}", 1
        yield f"{place}:{_sort(word)}", 1
    yield f"pn={before}_{after}", 0.7
    yield f"nm={after}_{later}", 0.7
    yield f"qp={earlier}_{before}", 0.5
    shape = later if later in CLOSED or not later[0].isalnum() else _sort(later)
    yield f"nm:{_sort(after)}_{shape}", 1
    yield f"pn:{before if before in CLOSED else 'x'}_{_sort(after)}", 1
    if i + 1 < len(words) and words[i + 1][0].isupper():
        yield "capital", 1


def _sort(word: str) -> str:
    """A rough class of a word, from its form."""
    if not word[0].isalnum():
        return "end" if word == END else "sign"
    if word in CLOSED:
        return "closed"
    for ending in ("ly", "ing", "ed", "s"):
        if word.endswith(ending):
            return ending
    return "word"


def _near(words: Sequence[str], i: int) -> str:
    if i < 0:
        return BEGIN
    return words[i].lower() if i < len(words) else END


def _probability(words: Sequence[str], i: int) -> float:
    weights = table()
    score = weights["bias"] + sum(
        weights.get(name, 0.0) * value for name, value in features(words, i)
    )
    return 1 / (1 + math.exp(-score))


@cache
def table() -> Mapping[str, float]:
    """The weights, by feature."""
    text = files("levelhead.data").joinpath("pronouns.json").read_text(encoding="utf-8")
    found: Mapping[str, float] = json.loads(text)["weights"]
    return found
