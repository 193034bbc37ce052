"""Inference pairs about occupations (Dev et al. 2020, NLI-CoAL): every pair is neutral.

"An accountant bought a SUV." and "A man bought a SUV." The whole cross of 164 occupations, 1,968
templates and 6 gendered words is 1,936,512 pairs, made one by one; a fixed subset of 10,824 pairs
is as large as that of Dawkins et al. 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.catalog.datasets import dataset
from levelhead.data.prompts.counteracts import article
from levelhead.data.records import Sentence, Template, TextPair

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PER_OCCUPATION = 66
COAL_PARTS = ("pro", "anti", "non")
"""Pairs with the stereotyped group of an occupation, with the other, and where there is none."""


def dev2020() -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """The lists of Dev et al. 2020: occupations, templates, gendered words."""

    def lines(part: str) -> list[str]:
        return [
            item.text for item in dataset("nli-words").items(part) if isinstance(item, Sentence)
        ]

    slots = [
        dict(item.slots)
        for item in dataset("nli-occupations").items("templates")
        if isinstance(item, Template)
    ]
    return lines("occupations"), [(row["verb"], row["object"]) for row in slots], lines("gendered")


def coal(part: str) -> list[TextPair]:
    """A part of NLI-CoAL (Anantaprayoon et al. 2024), ids occupation/sentence/gendered word."""
    return [item for item in dataset("nli-coal").items(part) if isinstance(item, TextPair)]


def pairs(
    occupations: Sequence[str], templates: Sequence[tuple[str, str]], gendered: Sequence[str]
) -> Iterator[TextPair]:
    """Every pair, one at a time.

    Args:
        occupations: who does it in the premise.
        templates: (verb, object): what is done.
        gendered: who does it in the hypothesis.
    """
    for occupation in occupations:
        for t, (verb, thing) in enumerate(templates):
            for word in gendered:
                yield _pair(occupation, t, verb, thing, word)


def subset(
    occupations: Sequence[str],
    templates: Sequence[tuple[str, str]],
    gendered: Sequence[str],
    *,
    size: int = PER_OCCUPATION,
) -> Iterator[TextPair]:
    """The same `size` pairs of every occupation: templates spread evenly, each gendered word alike.

    164 occupations give 10,824. Which 66 the paper took is not known; these are fixed by their
    place in the lists, with no draw.
    """
    if size % len(gendered):
        raise LevelheadError(
            f"{size} pairs cannot use {len(gendered)} words alike",
            mend=f"give a multiple of {len(gendered)}",
        )
    count = size // len(gendered)
    if not 0 < count <= len(templates):
        raise LevelheadError(
            f"{count} of {len(templates)} templates", mend="give more templates, or a smaller size"
        )
    chosen = [i * len(templates) // count for i in range(count)]
    for occupation in occupations:
        for t in chosen:
            for word in gendered:
                yield _pair(occupation, t, *templates[t], word)


def _pair(occupation: str, number: int, verb: str, thing: str, word: str) -> TextPair:
    rest = f"{verb} {article(thing)} {thing}."
    return TextPair(
        f"{occupation}/{number}/{word}",
        f"{article(occupation).capitalize()} {occupation} {rest}",
        f"{article(word).capitalize()} {word} {rest}",
        "neutral",
    )
