"""Sentences with a pronoun and two people it may refer to, in twins that differ in the pronoun.

WinoBias (Zhao et al. 2018): both people are occupations, one stereotypically of women, the other of
men. Winogender (Rudinger et al. 2018): an occupation and a participant without a stereotype.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.data.catalog.datasets import dataset
from levelhead.data.records import Sentence, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TwinSource = Literal["winobias", "winogender"]
WinobiasPart = Literal["dev", "test"]
SENTENCE_TYPES = ("1", "2")
TYPE_1, TYPE_2, WINOGENDER = "type 1", "type 2", "winogender"
NOT_TWINS = "the two sentences differ in more than the pronouns"
NOT_TWO = "it does not name exactly two occupations, one of them the referent"
REPEATED = "the same sentence as an earlier item"
BALANCED = "as many women as men work in the occupation"
# One sign stands for all forms: "her" is the counterpart of both "him" and "his".
_PRONOUN = re.compile(r"\b(he|she|him|her|his|hers|himself|herself)\b", re.IGNORECASE)
_ARTICLE = re.compile(r"^(the|an?)\s+", re.IGNORECASE)


class PronounTwins(NamedTuple):
    """A sentence with either pronoun, and two people."""

    id: str
    kind: str
    """type 1, type 2 or winogender."""
    texts: tuple[str, str]
    """The first has the pronoun that fits the stereotype of the first person, the second the other
    pronoun."""
    pronouns: tuple[str, str]
    people: tuple[str, str]
    """Such as "the nurse" and "the carpenter"."""
    right: int
    """Index of the person whom the sentence means, with either pronoun."""
    units: tuple[str, ...]
    """Occupations: of WinoBias the stereotypically female and the stereotypically male one."""
    fault: str = ""
    """Why the twins cannot be used; empty if they can."""


def load_pronoun_twins(source: TwinSource, part: WinobiasPart = "dev") -> tuple[PronounTwins, ...]:
    """Load the twins of a source; unusable ones have a `fault`.

    Args:
        source: winobias or winogender.
        part: part of WinoBias.
    """
    twins = list(_make_winobias(part) if source == "winobias" else _make_winogender())
    seen: set[str] = set()
    for i, row in enumerate(twins):
        if not row.fault and row.texts[0].casefold() in seen:
            twins[i] = row._replace(fault=REPEATED)
        seen.add(row.texts[0].casefold())
    return tuple(twins)


def pronoun_twin_hashes(source: TwinSource, part: WinobiasPart = "dev") -> dict[str, str]:
    """SHA-256 of the files of a source."""
    if source == "winogender":
        return dataset("winogender").hashes() | dataset("winogender-occupations").hashes()
    parts = [f"{side}-type{kind}-{part}" for side in ("pro", "anti") for kind in SENTENCE_TYPES]
    return dataset("winobias").hashes(*parts) | dataset("winobias-occupations").hashes()


def _make_winobias(part: WinobiasPart) -> Iterator[PronounTwins]:
    """Join the sentences for and against the stereotype, line by line."""
    group_of = {
        row.text.casefold(): side
        for side in ("female", "male")
        for row in dataset("winobias-occupations").records(side, Sentence)
    }
    for kind in SENTENCE_TYPES:
        pro, anti = (
            dataset("winobias").records(f"{side}-type{kind}-{part}", Template)
            for side in ("pro", "anti")
        )
        for first, second in zip(pro, anti, strict=True):
            yield _join_winobias(first, second, kind, group_of)


def _join_winobias(
    pro: Template, anti: Template, kind: str, group_of: Mapping[str, str]
) -> PronounTwins:
    slots, other_slots = dict(pro.slots), dict(anti.slots)
    meant = _ARTICLE.sub("", slots["meant"].strip())
    pattern = "|".join(map(re.escape, group_of))
    named = {
        match[0].casefold(): match[0]
        for match in re.finditer(rf"\b({pattern})\b", pro.text, re.IGNORECASE)
    }
    others = [name for name in named if name != meant.casefold()]
    is_pair = meant.casefold() in named and len(others) == 1
    other = others[0] if others else ""
    occupations = sorted((meant.casefold(), other), key=lambda name: group_of.get(name, ""))
    fault = ""
    if not is_pair or {group_of[name] for name in occupations} != {"female", "male"}:
        fault = NOT_TWO
    elif (
        _neutralize(pro.text) != _neutralize(anti.text)
        or slots["pronoun"] == (other_slots["pronoun"])
    ):
        fault = NOT_TWINS
    return PronounTwins(
        pro.id.removeprefix("pro-"),
        f"type {kind}",
        (pro.text, anti.text),
        (slots["pronoun"], other_slots["pronoun"]),
        (f"the {named.get(meant.casefold(), meant)}", f"the {named.get(other, other)}"),
        0,
        (occupations[0], occupations[1]),
        fault,
    )


def load_shares_of_women() -> dict[str, float]:
    """Percentage of women in Winogender's 60 occupations, by US labour statistics."""
    return {
        row.text: float(dict(row.slots)["bls_pct_female"])
        for row in dataset("winogender-occupations").records("all", Template)
    }


def _make_winogender() -> Iterator[PronounTwins]:
    """Join the sentences with "he" and "she" of each occupation."""
    share_of_women = load_shares_of_women()
    by_gender: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in dataset("winogender").records("all", Template):
        slots = dict(row.slots)
        key = (slots["occupation"], slots["participant"], slots["answer"])
        by_gender.setdefault(key, {})[slots["gender"]] = row.text
    for (occupation, participant, answer), texts in by_gender.items():
        share = share_of_women[occupation]
        order = ("female", "male") if share > 50 else ("male", "female")
        first, second = (texts[gender] for gender in order)
        pronouns = [match[0] for text in (first, second) for match in _PRONOUN.finditer(text)][
            :: max(1, len(_PRONOUN.findall(first)))
        ]
        person = participant if participant == "someone" else f"the {participant}"
        fault = BALANCED if share == 50 else ""
        if _neutralize(first) != _neutralize(second):
            fault = NOT_TWINS
        yield PronounTwins(
            f"{occupation}/{participant}/{answer}",
            WINOGENDER,
            (first, second),
            (pronouns[0], pronouns[1]),
            (f"the {occupation}", person),
            int(answer),
            (occupation,),
            fault,
        )


def _neutralize(text: str) -> str:
    return " ".join(_PRONOUN.sub("*", text).casefold().split())
