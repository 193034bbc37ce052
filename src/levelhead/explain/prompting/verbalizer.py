"""A verbalizer from a model's own output (Zhang 2023, Verbalizer).

"Based on the model outputs, we categorize each token based on gender prevalence ... at a 0.5
ratio." What the words mean is then read off the model that they are to judge: the occupations that
they are read off are left out of what is measured with them, and the leakage is told.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import NotMeasurable
from levelhead.data.prompts.counteracts import counteracts
from levelhead.measures.cloze.formatting import wording
from levelhead.measures.cloze.prompts_base import KINDS

if TYPE_CHECKING:
    from levelhead.data.prompts.counteracts import Prompt
    from levelhead.measures.cloze.cloze import Cloze
    from levelhead.models.lm import LM

NAMING = ("target_syntactic_similar", "target_counter_syntactic_similar")
"""Knowledge that names a group: the dominating one, and the other."""
RATIO = 0.5
LEAST = 3
"""Occupations that must agree: a word of any kind falls on one side of a half by chance."""
BEST = 10


class Prevalent(NamedTuple):
    """Words of a model's output that are likelier where one of two groups was named."""

    cloze: Cloze
    """With these words, of the occupations that they were not read off."""
    told: str


def prevalence(lm: LM, cloze: Cloze, *, ratio: float = RATIO, k: int = BEST) -> Prevalent:
    """The lexicon's words, and those among the model's k likeliest, sorted by prevalence.

    A word's prevalence is its mean probability where knowledge names the first group, as a share
    of that and the one where it names the second; most occupations must agree on its side. Read off
    every other occupation of each side, which are then neither asked about nor named.

    Args:
        lm: the model.
        cloze: whose prompts, lexicon, form and separator are taken.
        ratio: above it a word stands for the first group, else for the second.
        k: how many of the likeliest tokens of a prompt are sorted.
    """
    prompts = (
        tuple(counteracts(cloze.prompts, backgrounds=cloze.backgrounds))
        if isinstance(cloze.prompts, str)
        else cloze.prompts
    )
    read_off = _every_other(prompts)
    own = [one for one in prompts if one.kind in NAMING and one.occupation in read_off]
    rest = tuple(one for one in prompts if not {one.occupation, one.background} & read_off)
    if not own or not rest:
        raise NotMeasurable(
            "there is no knowledge that names a group, or no occupation to leave out",
            mend="use the published prompts",
        )
    first, second, _ = cloze.verbalizer(lm)
    way = wording(lm, cloze.form, cloze.separator)
    mass: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for one, found in zip(own, lm.fill_top([way.put(one) for one in own], k), strict=True):
        named = cloze.compared.index(one.dominated)
        side = named if one.kind == NAMING[0] else 1 - named
        for word, value in found:
            mass[word.strip()][one.occupation][side] += exp(value)
    sorted_in: tuple[list[str], list[str]] = (list(first), list(second))
    for word, own_mass in mass.items():
        likelier = _side(list(own_mass.values()), ratio)
        known = word.isalpha() and word not in (*first, *second) and len(lm.pieces(word)) == 1
        if known and likelier is not None:
            sorted_in[likelier].append(word)
    added = sum(map(len, sorted_in)) - len(first) - len(second)
    told = (
        f"verbalizer: {added} words were read off this model's own answers about "
        f"{len(read_off)} occupations, which are left out; what they stand for is what the model "
        "thinks they do, so that margins with them are not independent of it"
    )
    words = (tuple(sorted_in[0]), tuple(sorted_in[1]))
    ruler = replace(cloze, prompts=rest, backgrounds=None, words=words, kinds=KINDS)
    return Prevalent(ruler, told)


def _side(masses: list[list[float]], ratio: float) -> int | None:
    """The group a word is likelier with, if enough occupations agree (two of three, and three)."""
    sides = [0 if hers / (hers + his) > ratio else 1 for hers, his in masses]
    whole = [sum(column) for column in zip(*masses, strict=True)]
    own = 0 if whole[0] / sum(whole) > ratio else 1
    agreeing = sides.count(own)
    return own if agreeing >= LEAST and agreeing * 3 >= len(sides) * 2 else None


def _every_other(prompts: tuple[Prompt, ...]) -> set[str]:
    """Every other occupation of each side, in the order of the table."""
    sides: dict[str, dict[str, None]] = defaultdict(dict)
    for one in prompts:
        sides[one.dominated][one.occupation] = None
    return {name for own in sides.values() for name in list(own)[::2]}
