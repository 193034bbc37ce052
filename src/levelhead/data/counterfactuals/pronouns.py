"""Disambiguation of pronouns: her -> him or his, his -> her or hers.

Two English pronouns are ambiguous on one side: her (him, his) and his (her, hers). Grammatical
rules decide the clear cases; a logistic regression on neighbouring words decides the others, and
below a minimum confidence there is no decision. `tools/train_pronouns.py` trained its weights
(`pronouns.json`) on sentences with my/me, our/us, their/them and his/him, which English
distinguishes.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from levelhead.data.tokenize import strip_clitic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MIN_CONFIDENCE = 0.75
"""Smallest probability for a decision."""

CLOSED_CLASS_WORDS = frozenset(
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
"""Words of closed classes: determiners, pronouns, prepositions, conjunctions, auxiliaries."""
_POSSESSED_NOUNS = frozenset(
    "own mother mothers father fathers parent parents mom mum dad mommy daddy mama papa brother "
    "brothers sister sisters son sons daughter daughters child children baby wife husband fiance "
    "fiancee girlfriend boyfriend partner family grandmother grandfather grandma grandpa aunt "
    "uncle cousin niece nephew stepmother stepfather stepson stepdaughter bride groom friend "
    "friends boss name life career hand hands head eyes face hair heart body mind voice house "
    "birthday childhood death age dress shirt pants suit clothes shoes car job room bedroom".split()
)
"""Nouns that are usually possessed and rarely the second object of a verb."""
_FORMS_OF_ADDRESS = frozenset({"ma'am", "ma\u2019am", "madam", "sir"})
BEGIN, END = "<begin>", "<end>"


def is_object(words: Sequence[str], i: int) -> bool | None:
    """Return whether an ambiguous pronoun is an object (her = him); None if uncertain.

    >>> is_object(["I", "saw", "her", "yesterday", "."], 2)
    True
    >>> is_object(["I", "saw", "her", "brother", "."], 2)
    False

    Args:
        words: words and signs of a sentence.
        i: position of the pronoun.
    """
    after = strip_clitic(_word_at(words, i + 1))[0]
    if after == END or (not after[0].isalnum() and after not in _OPENING_SIGNS):
        # No noun follows that could be possessed.
        return True
    if after in _POSSESSED_NOUNS:
        return False
    if {after, _word_at(words, i + 2)} & _FORMS_OF_ADDRESS:
        # As in: they called her "ma'am".
        return True
    probability = _probability(words, i)
    if max(probability, 1 - probability) < MIN_CONFIDENCE:
        return None
    return probability > 0.5


def is_standalone_possessive(words: Sequence[str], i: int) -> bool | None:
    """Return whether "his" has no noun after it (his = hers); None if uncertain.

    Examples are "A friend of his." and "The choice was his.": the next word ends the phrase, while
    a noun or an adjective would continue it. "His or her book" continues after the other
    possessive, and "a friend of his left" looks like "a picture of his mother".

    >>> is_standalone_possessive(["It", "was", "his", "."], 2)
    True
    >>> is_standalone_possessive(["It", "was", "his", "dog"], 2)
    False

    Args:
        words: words and signs of a sentence.
        i: position of the pronoun.
    """
    after, later, before = (_word_at(words, j) for j in (i + 1, i + 2, i - 1))
    if after in _CONJUNCTIONS:
        if later in _DETERMINERS:
            return False
        return True if before in _BEFORE_STANDALONE else None
    if after == END or not after[0].isalnum():
        return None if after in _OPENING_SIGNS else True
    if after in _PHRASE_ENDING_WORDS or after == "alone":
        return True
    if (
        # "a friend of his left" or "a picture of his mother": undecidable here.
        before == "of"
        and _word_at(words, i - 3) in _PARTITIVE_DETERMINERS
        and after not in _POSSESSED_NOUNS
    ):
        return None
    return False


_CONJUNCTIONS = frozenset({"and", "or", "/", ",", "&", "-", "\u2013", "\u2014"})
_DETERMINERS = frozenset({"her", "his", "my", "your", "our", "their", "its"})
_BEFORE_STANDALONE = frozenset("is was were are be been of became remained".split())
_PARTITIVE_DETERMINERS = frozenset(
    "a an another some any no this that these those two three one".split()
)


_OPENING_SIGNS = frozenset("\"'\u201c\u2018([`$\u00a3\u20ac")
"""Signs after which a phrase may continue: his "friend", his (late) father."""
_PHRASE_ENDING_WORDS = CLOSED_CLASS_WORDS - frozenset(
    "a an the my your his its our their whose what more much very well then once only even ever "
    "now still always never often perhaps quite rather past like home back near inside outside "
    "being having will may might can must within down up out off under over".split()
)


def extract_pronoun_features(words: Sequence[str], i: int) -> Iterator[tuple[str, float]]:
    """Yield the features of the word at i: its neighbours, not the word itself.

    Args:
        words: words and signs of a sentence.
        i: position of the word.
    """
    after, later = _word_at(words, i + 1), _word_at(words, i + 2)
    before, earlier = _word_at(words, i - 1), _word_at(words, i - 2)
    for position, word, endings in (
        ("n", after, (1, 2, 3, 4)),
        ("p", before, (2, 3)),
        ("m", later, (2, 3)),
    ):
        yield f"{position}={word}", 1
        for size in endings:
            yield f"{position}{size}={word[-size:]}", 1
        # Classes and endings let rare words share weights with frequent ones.
        yield f"{position}:{_word_class(word)}", 1
    # Lower values regularise the sparse word pairs more strongly than single words.
    yield f"pn={before}_{after}", 0.7
    yield f"nm={after}_{later}", 0.7
    yield f"qp={earlier}_{before}", 0.5
    shape = later if later in CLOSED_CLASS_WORDS or not later[0].isalnum() else _word_class(later)
    yield f"nm:{_word_class(after)}_{shape}", 1
    yield f"pn:{before if before in CLOSED_CLASS_WORDS else 'x'}_{_word_class(after)}", 1
    if i + 1 < len(words) and words[i + 1][0].isupper():
        yield "capital", 1


def _word_class(word: str) -> str:
    """Return a rough class of a word, from its form."""
    if not word[0].isalnum():
        return "end" if word == END else "sign"
    if word in CLOSED_CLASS_WORDS:
        return "closed"
    for ending in ("ly", "ing", "ed", "s"):
        if word.endswith(ending):
            return ending
    return "word"


def _word_at(words: Sequence[str], i: int) -> str:
    if i < 0:
        return BEGIN
    return words[i].lower() if i < len(words) else END


def _probability(words: Sequence[str], i: int) -> float:
    weights = load_pronoun_weights()
    score = weights["bias"] + sum(
        weights.get(name, 0.0) * value for name, value in extract_pronoun_features(words, i)
    )
    return 1 / (1 + math.exp(-score))


@cache
def load_pronoun_weights() -> Mapping[str, float]:
    """Read the trained weights, by feature."""
    text = files("levelhead.data").joinpath("pronouns.json").read_text(encoding="utf-8")
    weights: Mapping[str, float] = json.loads(text)["weights"]
    return weights
