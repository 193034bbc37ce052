"""Prompts that are about one group each: those of BOLD and of HONEST, as published.

BOLD (Dhamala et al. 2021): the first words of sentences of Wikipedia about people, religions,
political ideologies and professions. HONEST (Nozza et al. 2021): sentences about a person, such as
"the woman should work as a", whose end is to be written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import require_option
from levelhead.data.catalog.datasets import Dataset, dataset
from levelhead.data.records import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BoldDomain = Literal["gender", "race", "religious_ideology", "political_ideology", "profession"]
BOLD_GROUPS: Mapping[BoldDomain, tuple[str, str]] = {
    "gender": ("American_actresses", "American_actors"),
    "race": ("African_Americans", "European_Americans"),
    "religious_ideology": ("islam", "christianity"),
    "political_ideology": ("left-wing", "right-wing"),
    "profession": ("nursing_specialties", "engineering_branches"),
}
"""Groups that are compared by default; the data set has more in most domains."""
NO_TEXT = "it has no text"
BLANK = "[M]"
"""Where a word of HONEST is missing."""
BOTH_GROUPS = "it is listed for both groups: "


class GroupPrompt(NamedTuple):
    """The beginning of a text about a group."""

    id: str
    group: str
    unit: str
    """Sampling unit, such as the article that the prompt is from."""
    text: str
    """What a model continues, without a space at its end."""
    reference: str = ""
    """How the published text goes on; empty if it is unknown."""
    template: str = ""
    """Template that the prompt is made from, if prompts of several units share it."""


def bold_hashes(domain: BoldDomain) -> dict[str, str]:
    """SHA-256 of the files of a domain."""
    (prompts, part), (texts, texts_part) = _prompts_of(domain), _texts_of(domain)
    return prompts.hashes(part) | texts.hashes(texts_part)


def bold_groups(domain: BoldDomain) -> tuple[str, ...]:
    """Groups of a domain."""
    require_option("domain of BOLD", domain, tuple(BOLD_GROUPS))
    rows = _read(*_prompts_of(domain))
    return tuple(dict.fromkeys(group for group, _ in rows))


def load_bold(domain: BoldDomain, groups: Sequence[str]) -> tuple[GroupPrompt, ...]:
    """Load the prompts about some groups of a domain, with the rest of Wikipedia's sentences.

    Args:
        domain: Domain of the groups.
        groups: Groups of the domain.
    """
    known = bold_groups(domain)
    for group in groups:
        require_option(f"group of {domain}", group, known)
    prompts, sentences = _read(*_prompts_of(domain)), _read(*_texts_of(domain))
    return tuple(
        GroupPrompt(
            f"{group}, {article} {number + 1}", group, article, text, _find_rest(text, sentence)
        )
        for (group, article), texts in prompts.items()
        if group in groups
        # The files list the sentences in the order of the prompts.
        for number, (text, sentence) in enumerate(
            zip(texts, sentences[group, article], strict=True)
        )
    )


def load_honest(source: Dataset, part: str) -> tuple[GroupPrompt, ...]:
    """Load the sentences about women and men, as far as their blank, each once.

    The unit is the word for the person, such as "the woman".

    Args:
        source: data set of the language.
        part: its part.
    """
    prompts: dict[tuple[str, str], GroupPrompt] = {}
    for row in source.records(part, Template):
        slots = dict(row.slots)
        text = row.text.partition(BLANK)[0].strip()
        # Some words are listed twice for a group, such as "the girls".
        prompts.setdefault(
            (text, slots["category"]),
            GroupPrompt(
                row.id, slots["category"], slots["identity"], text, template=slots["template"]
            ),
        )
    return tuple(prompts.values())


def find_faults(prompts: Sequence[GroupPrompt]) -> dict[str, str]:
    """Reasons why prompts cannot be used, by id: no text, or a unit that several groups have."""
    groups = defaultdict(set)
    for prompt in prompts:
        groups[prompt.unit].add(prompt.group)
    shared = [prompt for prompt in prompts if len(groups[prompt.unit]) > 1]
    faults = {prompt.id: BOTH_GROUPS + prompt.unit for prompt in shared}
    return faults | {prompt.id: NO_TEXT for prompt in prompts if not prompt.text}


def _prompts_of(domain: BoldDomain) -> tuple[Dataset, str]:
    return dataset("bold"), domain


def _texts_of(domain: BoldDomain) -> tuple[Dataset, str]:
    # The texts about people by gender are kept with the prompts.
    if domain == "gender":
        return dataset("bold"), "gender-texts"
    return dataset("bold-texts"), domain


def _read(data: Dataset, part: str) -> dict[tuple[str, str], list[str]]:
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in data.records(part, Template):
        slots = dict(row.slots)
        rows[slots["group"], slots["article"]].append(re.sub(r"\s+", " ", row.text).strip())
    return dict(rows)


def _find_rest(prompt: str, sentence: str) -> str:
    """The rest of the sentence that a prompt is the beginning of; empty if it is of another one.

    >>> _find_rest("Ada was", "Ada was there."), _find_rest("Ada was", "Bob was here.")
    ('there.', '')
    """
    return sentence.removeprefix(prompt).strip() if sentence.startswith(prompt) else ""
