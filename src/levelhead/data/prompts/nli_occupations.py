"""Inference pairs about occupations (Dev et al. 2020, NLI-CoAL), all with the label neutral.

An example is "An accountant bought a SUV." and "A man bought a SUV." All combinations of 164
occupations, 1,968 templates and 6 gendered words are 1,936,512 pairs, which are generated one at a
time; a fixed subset of 10,824 pairs has the size of that of Dawkins et al. 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError
from levelhead.data.catalog.datasets import dataset
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.data.records import Sentence, Template, TextPair

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# 164 x 66 = 10,824 pairs, the number in Dawkins et al. 2024.
PAIRS_PER_OCCUPATION = 66
COAL_PARTS = ("pro", "anti", "non")
"""Pairs with the stereotyped group of an occupation, the other group, or no stereotype."""


def load_dev2020_lists() -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Read the lists of Dev et al. 2020: occupations, templates, gendered words."""

    def read_part(part: str) -> list[str]:
        return [
            item.text for item in dataset("nli-words").items(part) if isinstance(item, Sentence)
        ]

    slots = [
        dict(item.slots)
        for item in dataset("nli-occupations").items("templates")
        if isinstance(item, Template)
    ]
    return (
        read_part("occupations"),
        [(row["verb"], row["object"]) for row in slots],
        read_part("gendered"),
    )


def load_nli_coal_pairs(part: str) -> list[TextPair]:
    """Read a part of NLI-CoAL (Anantaprayoon et al. 2024); ids are occupation/sentence/word.

    Args:
        part: pro, anti or non.
    """
    return [item for item in dataset("nli-coal").items(part) if isinstance(item, TextPair)]


def make_nli_pairs(
    occupations: Sequence[str], templates: Sequence[tuple[str, str]], gendered_words: Sequence[str]
) -> Iterator[TextPair]:
    """Yield all pairs, one at a time.

    Args:
        occupations: subjects of the premise.
        templates: (verb, object) of both sentences.
        gendered_words: subjects of the hypothesis.
    """
    for occupation in occupations:
        for t, (verb, thing) in enumerate(templates):
            for word in gendered_words:
                yield _make_pair(occupation, t, verb, thing, word)


def make_nli_subset(
    occupations: Sequence[str],
    templates: Sequence[tuple[str, str]],
    gendered_words: Sequence[str],
    *,
    size: int = PAIRS_PER_OCCUPATION,
) -> Iterator[TextPair]:
    """Yield the same `size` pairs of every occupation, with evenly spaced templates.

    164 occupations give 10,824 pairs. The 66 pairs of the paper are not known; these are determined
    by their positions in the lists, without random sampling.

    Args:
        occupations: subjects of the premise.
        templates: (verb, object) of both sentences.
        gendered_words: subjects of the hypothesis, all used equally often.
        size: number of pairs per occupation.
    """
    if size % len(gendered_words):
        raise LevelheadError(
            f"{size} pairs cannot use {len(gendered_words)} words equally often",
            hint=f"give a multiple of {len(gendered_words)}",
        )
    count = size // len(gendered_words)
    if not 0 < count <= len(templates):
        raise LevelheadError(
            f"{count} of {len(templates)} templates", hint="give more templates, or a smaller size"
        )
    # Even spacing, because the templates are ordered by verb.
    template_numbers = [i * len(templates) // count for i in range(count)]
    for occupation in occupations:
        for t in template_numbers:
            for word in gendered_words:
                yield _make_pair(occupation, t, *templates[t], word)


def _make_pair(occupation: str, number: int, verb: str, thing: str, word: str) -> TextPair:
    rest = f"{verb} {indefinite_article(thing)} {thing}."
    return TextPair(
        f"{occupation}/{number}/{word}",
        f"{indefinite_article(occupation).capitalize()} {occupation} {rest}",
        f"{indefinite_article(word).capitalize()} {word} {rest}",
        "neutral",
    )
