"""A verbalizer from a model's own output (Zhang 2023, Verbalizer).

"Based on the model outputs, we categorize each token based on gender prevalence ... at a 0.5
ratio." The meaning of the words then comes from the same model that they measure. So the
occupations that supply these words are excluded from the measurement, and the leakage is reported.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.errors import NotMeasurableError
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.measures.cloze.formatting import choose_prompt_format
from levelhead.measures.cloze.prompt_measure import KINDS

if TYPE_CHECKING:
    from levelhead.data.prompts.counteracts import CounteractsPrompt
    from levelhead.measures.cloze.cloze import Cloze
    from levelhead.models.lm import LM

GROUP_NAMING_KINDS = ("target_syntactic_similar", "target_counter_syntactic_similar")
"""Kinds of knowledge that name the dominating group, and the other group."""
# The paper sorts tokens "at a 0.5 ratio" (quoted above).
RATIO = 0.5
MIN_OCCUPATIONS = 3
"""Number of occupations that must agree: any word falls on one side of a half by chance."""
TOP_K = 10


class FrequentAnswers(NamedTuple):
    """Words of a model's output that are likelier after one of two groups was named."""

    cloze: Cloze
    """The measure with these words, on the occupations that they were not read from."""
    note: str


def add_prevalent_words(
    lm: LM, cloze: Cloze, *, ratio: float = RATIO, k: int = TOP_K
) -> FrequentAnswers:
    """The lexicon's words, and those among the model's k likeliest, sorted by prevalence.

    The prevalence of a word is p1 / (p1 + p2), where p1 and p2 are its mean probabilities if
    knowledge names the first or the second group; most occupations must agree on its side. The
    words are read from every other occupation of each side. These occupations are then neither
    queried nor named.

    Args:
        lm: The model.
        cloze: Measure that gives the prompts, lexicon, form and separator.
        ratio: Prevalence above which a word stands for the first group, otherwise for the second.
        k: Number of the likeliest tokens of a prompt that are sorted.
    """
    prompts = (
        tuple(make_counteracts_prompts(cloze.prompts, backgrounds=cloze.backgrounds))
        if isinstance(cloze.prompts, str)
        else cloze.prompts
    )
    # Words must not be read off the occupations that they measure: the margin would be circular.
    source_occupations = _alternate_occupations(prompts)
    naming_prompts = [
        prompt
        for prompt in prompts
        if prompt.kind in GROUP_NAMING_KINDS and prompt.occupation in source_occupations
    ]
    remaining_prompts = tuple(
        prompt
        for prompt in prompts
        if not {prompt.occupation, prompt.background} & source_occupations
    )
    if not naming_prompts or not remaining_prompts:
        raise NotMeasurableError(
            "there is no knowledge that names a group, or no occupation to leave out",
            hint="use the published prompts",
        )
    first, second, _ = cloze.verbalizer(lm)
    prompt_format = choose_prompt_format(lm, cloze.form, cloze.separator)
    # By word, then by occupation: the probability where the first and where the second group is
    # named.
    mass: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for prompt, top_words in zip(
        naming_prompts,
        lm.fill_top([prompt_format.format_prompt(prompt) for prompt in naming_prompts], k),
        strict=True,
    ):
        named_group = cloze.compared_groups.index(prompt.majority_group)
        # The second kind is a counterexample: it names the group that does not dominate the
        # occupation.
        side = named_group if prompt.kind == GROUP_NAMING_KINDS[0] else 1 - named_group
        for word, value in top_words:
            mass[word.strip()][prompt.occupation][side] += exp(value)
    words_of_group: tuple[list[str], list[str]] = (list(first), list(second))
    for word, mass_of_occupation in mass.items():
        group = _likelier_group(list(mass_of_occupation.values()), ratio)
        # The lexicon's words keep their group, whatever the model's output says.
        is_new_word = (
            word.isalpha()
            and word not in (*first, *second)
            and len(lm.token_ids_of_word(word)) == 1
        )
        if is_new_word and group is not None:
            words_of_group[group].append(word)
    n_added = sum(map(len, words_of_group)) - len(first) - len(second)
    note = (
        f"verbalizer: {n_added} words come from this model's answers about "
        f"{len(source_occupations)} occupations, which are left out; the same model gives these "
        "words their meaning, so margins with them are not independent of it"
    )
    words = (tuple(words_of_group[0]), tuple(words_of_group[1]))
    measure = replace(cloze, prompts=remaining_prompts, backgrounds=None, words=words, kinds=KINDS)
    return FrequentAnswers(measure, note)


def _likelier_group(masses: list[list[float]], ratio: float) -> int | None:
    """Group that a word is likelier with, if enough occupations agree (two of three, and three)."""
    sides = [0 if first / (first + second) > ratio else 1 for first, second in masses]
    # The side of the total is not enough: one occupation with a large probability could decide it.
    totals = [sum(column) for column in zip(*masses, strict=True)]
    group = 0 if totals[0] / sum(totals) > ratio else 1
    n_agreeing = sides.count(group)
    return group if n_agreeing >= MIN_OCCUPATIONS and n_agreeing * 3 >= len(sides) * 2 else None


def _alternate_occupations(prompts: tuple[CounteractsPrompt, ...]) -> set[str]:
    """Every other occupation of each side, in the order of the table."""
    sides: dict[str, dict[str, None]] = defaultdict(dict)
    for prompt in prompts:
        sides[prompt.majority_group][prompt.occupation] = None
    return {name for occupations in sides.values() for name in list(occupations)[::2]}
