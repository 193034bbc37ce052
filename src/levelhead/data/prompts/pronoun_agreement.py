"""Sentences with an unambiguous pronoun: all people in a sentence belong to one group.

Winogender and WinoBias test to whom a pronoun refers, which may be ambiguous. Here both people are
replaced by words of one group (the man, the father), so that the pronoun does not depend on its
referent, and no occupation remains. Every sentence is used with both groups: a constant answer is
right in half of them. GAP's passages are used if they contain another word of the pronoun's group
and none of the other group; they contain real names and are not swapped, and the same number is
used for each group.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.catalog.datasets import dataset
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.data.records import GapPassage, Sentence, Template
from levelhead.data.tokenize import WORD, fold_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from levelhead.data.counterfactuals.replacement import SwapResult
    from levelhead.data.lexicons.lexicon import Lexicon

AgreementSource = Literal["winogender", "winobias", "gap"]
PERSON_WORDS = ("woman", "girl", "lady", "mother", "sister", "daughter", "aunt", "wife")
"""Words for people, valid before every verb; the lexicon gives their counterparts."""
WINOBIAS_PARTS = ("pro-type1-dev", "anti-type1-dev", "pro-type2-dev", "anti-type2-dev")
SOURCE_PARTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "winogender": (("winogender", ("all",)),),
    "winobias": (("winobias", WINOBIAS_PARTS), ("winobias-occupations", ("female", "male"))),
    "gap": (("gap", ("dev",)),),
}
"""Data sets and parts of each source."""
OVER_LIMIT = "more of one group than of the other, or beyond the limit"
"""Reason for leaving out a suitable passage."""
# Control characters, which occur in no text of the data sets.
_FIRST, _SECOND = "\x01", "\x02"


class AgreementSentence(NamedTuple):
    """A sentence, its pronoun, and the pronoun of the other group, which would be wrong."""

    id: str
    source: str
    text: str
    span: tuple[int, int]
    """Character range of the pronoun."""
    wrong_pronoun: str
    group: str
    unit: str
    """The sentence without its people, which is the sampling unit."""

    @property
    def correct_pronoun(self) -> str:
        """The pronoun that agrees."""
        return self.text[slice(*self.span)]


class AgreementSentenceSet(NamedTuple):
    """Sentences, and the number left out, by reason."""

    sentences: tuple[AgreementSentence, ...]
    left_out: tuple[tuple[str, int], ...]


def load_agreement_sentences(
    source: AgreementSource,
    lexicon: Lexicon,
    *,
    groups: Sequence[str] | None = None,
    people: Sequence[str] = PERSON_WORDS,
    limit: int | None = None,
) -> AgreementSentenceSet:
    """Load the sentences of a source.

    Args:
        source: winogender, winobias or gap.
        lexicon: lexicon with pronouns and words for people.
        groups: the two groups; by default the first two of the lexicon.
        people: words for people of the first group, at least two.
        limit: number of passages of GAP, for both groups together; by default all.
    """
    group_pair = lexicon.resolve_group_pair(groups)
    left_out: Counter[str] = Counter()
    if source == "gap":
        sentences = _gap_sentences(lexicon, group_pair, left_out, limit)
    else:
        words = _person_words(lexicon, group_pair, people)
        skeletons = (
            _winogender_skeletons() if source == "winogender" else _winobias_skeletons(left_out)
        )
        sentences = list(_recast_skeletons(source, skeletons, words, lexicon, group_pair, left_out))
    if not sentences:
        raise NotMeasurableError(
            f"{source} has no sentence with unambiguous pronouns of {group_pair[0]} and "
            f"{group_pair[1]}",
            hint="give another lexicon or other groups",
        )
    return AgreementSentenceSet(tuple(sentences), tuple(sorted(left_out.items())))


def agreement_source_hashes(sources: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of every file of some sources, by name.

    Args:
        sources: names of sources.
    """
    return {
        name: digest
        for source in sources
        for set_name, parts in SOURCE_PARTS[source]
        for name, digest in dataset(set_name).hashes(*parts).items()
    }


def _person_words(
    lexicon: Lexicon, group_pair: tuple[str, str], people: Sequence[str]
) -> list[Mapping[str, str]]:
    """Return the word of each group for every person."""
    pairs_by_word = {
        fold_case(first_word): (first_word, second_word)
        # Reversed, so that the first pair of a word in the lexicon decides.
        for first_word, second_word in reversed(lexicon.pairs(*group_pair))
    }
    missing = [word for word in people if fold_case(word) not in pairs_by_word]
    if missing or len(set(people)) < 2:
        raise LevelheadError(
            f"{lexicon.name} has no pair with {missing[0]!r} for {' and '.join(group_pair)}"
            if missing
            else f"{len(set(people))} words for people, but a sentence needs two",
            hint="give two or more words of the first group that the lexicon pairs",
        )
    return [dict(zip(group_pair, pairs_by_word[fold_case(word)], strict=True)) for word in people]


def _winogender_skeletons() -> Iterator[tuple[str, str]]:
    """Yield (id, skeleton) of every sentence with an occupation and a participant."""
    for item in dataset("winogender").items("all"):
        assert isinstance(item, Template)  # noqa: S101  # the only type of its reader
        slots = dict(item.slots)
        # "Someone" cannot be replaced by a word of a group with an article.
        if slots["participant"] != "someone":
            yield item.id, _skeleton(item.text, (slots["occupation"], slots["participant"]))


def _winobias_skeletons(left_out: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (id, skeleton) of every sentence with two occupations."""
    lists = dataset("winobias-occupations")
    occupations = {
        fold_case(item.text)
        for part in ("female", "male")
        for item in lists.items(part)
        if isinstance(item, Sentence)
    }
    for part in WINOBIAS_PARTS:
        for item in dataset("winobias").items(part):
            assert isinstance(item, Template)  # noqa: S101
            named_occupations = [
                word for word in occupations if re.search(rf"(?i)\b{re.escape(word)}\b", item.text)
            ]
            if len(named_occupations) == 2:
                yield item.id, _skeleton(item.text, named_occupations)
            else:
                left_out["not two occupations of the list"] += 1


def _skeleton(text: str, people: Sequence[str]) -> str:
    """Replace the people of a sentence by placeholders, in their order."""
    order = sorted(people, key=lambda word: text.lower().find(word.lower()))
    for word, sign in zip(order, (_FIRST, _SECOND), strict=True):
        text = re.sub(rf"(?i)\b{re.escape(word)}\b", sign, text)
    return text


def _recast_skeletons(
    source: str,
    skeletons: Iterable[tuple[str, str]],
    words: Sequence[Mapping[str, str]],
    lexicon: Lexicon,
    group_pair: tuple[str, str],
    left_out: Counter[str],
) -> Iterator[AgreementSentence]:
    """Yield every skeleton once, with people of both groups."""
    pronouns = _unambiguous_pronouns(lexicon, group_pair)
    used_units: set[str] = set()
    for name, skeleton in skeletons:
        pronoun_matches = [
            match for match in WORD.finditer(skeleton) if fold_case(match[0]) in pronouns
        ]
        if len(pronoun_matches) != 1 or not {_FIRST, _SECOND} <= set(skeleton):
            # "They" belongs to neither group, and with two pronouns the answer is not unique.
            left_out["not two people and one pronoun of these groups"] += 1
            continue
        # The group of the original pronoun comes first; the swap gives the other version.
        (group,) = pronouns[fold_case(pronoun_matches[0][0])]
        # Rotating through the words keeps any single word from dominating.
        number = len(used_units)
        person_words = [words[(number + i) % len(words)][group] for i in (0, 1)]
        text, start = _insert_people(skeleton, person_words, pronoun_matches[0].start())
        swapped = swap(text, lexicon, groups=group_pair)
        unit = _agreement_unit(swapped, skeleton, pronoun_matches[0].span(), start)
        if unit is None:
            left_out["its words cannot be exchanged"] += 1
        # Versions of a sentence with other occupations are equal without their people.
        elif unit in used_units:
            left_out["the same sentence of other people stands there already"] += 1
        else:
            used_units.add(unit)
            yield from _both_versions(
                f"{source} {name}", source, swapped, start, group, group_pair, unit
            )


def _unambiguous_pronouns(
    lexicon: Lexicon, group_pair: tuple[str, str]
) -> dict[str, frozenset[str]]:
    """Return the pronouns that mark exactly one group, with this group."""
    groups_by_pronoun: dict[str, frozenset[str]] = {}
    for term in lexicon.terms:
        for group in group_pair:
            if term.kind == "pronoun" and term.is_marker_of(group):
                word = fold_case(str(term.word(group)))
                groups_by_pronoun[word] = groups_by_pronoun.get(word, frozenset()) | {group}
    return {
        word: pronoun_groups
        for word, pronoun_groups in groups_by_pronoun.items()
        if len(pronoun_groups) == 1
    }


def _insert_people(skeleton: str, person_words: Sequence[str], start: int) -> tuple[str, int]:
    """Insert people with correct articles; return the sentence and the pronoun's position."""

    def insert_words(text: str) -> str:
        for sign, word in zip((_FIRST, _SECOND), person_words, strict=True):
            text = re.sub(
                rf"\b([Aa])n? {sign}", rf"\g<1>{indefinite_article(word)[1:]} {word}", text
            )
            text = text.replace(sign, word)
        return text

    before = insert_words(skeleton[:start])
    return before + insert_words(skeleton[start:]), len(before)


def _agreement_unit(
    swapped: SwapResult, skeleton: str, pronoun: tuple[int, int], start: int
) -> str | None:
    """Return the skeleton without its pronoun; None if a word cannot be exchanged."""
    starts = [change.start for change in swapped.changes]
    # Only the people and the pronoun may change: other changes add a second contrast.
    people = skeleton.count(_FIRST) + skeleton.count(_SECOND)
    if swapped.refusals or start not in starts or len(starts) != people + 1:
        return None
    bare = f"{skeleton[: pronoun[0]]}-{skeleton[pronoun[1] :]}"
    return re.sub(r"\s+", " ", bare.replace(_FIRST, "-").replace(_SECOND, "-")).strip()


def _both_versions(
    name: str,
    source: str,
    swapped: SwapResult,
    start: int,
    group: str,
    group_pair: tuple[str, str],
    unit: str,
) -> Iterator[AgreementSentence]:
    change = next(word_swap for word_swap in swapped.changes if word_swap.start == start)
    other = group_pair[1 - group_pair.index(group)]
    span, counterfactual_span = (change.start, change.end), (change.new_start, change.new_end)
    yield AgreementSentence(
        f"{name} {group}", source, swapped.original, span, change.new, group, unit
    )
    yield AgreementSentence(
        f"{name} {other}", source, swapped.text, counterfactual_span, change.old, other, unit
    )


def _gap_sentences(
    lexicon: Lexicon, group_pair: tuple[str, str], left_out: Counter[str], limit: int | None
) -> list[AgreementSentence]:
    """Return passages of GAP that name only one group, at least twice; balanced by group."""
    sentences_by_group: dict[str, list[AgreementSentence]] = {group: [] for group in group_pair}
    for item in dataset("gap").items("dev"):
        assert isinstance(item, GapPassage)  # noqa: S101
        swapped = swap(item.text, lexicon, groups=group_pair)
        pronoun_swap = next(
            (word_swap for word_swap in swapped.changes if word_swap.start == item.start), None
        )
        # Words that cannot be exchanged, such as an ambiguous `her`, still mark their group.
        marks = [word_swap.old for word_swap in swapped.changes] + [
            word_swap.word for word_swap in swapped.refusals
        ]
        sides = {side for word in marks for side in lexicon.groups_of(word) if side in group_pair}
        if pronoun_swap is None:
            left_out["its pronoun cannot be exchanged"] += 1
        elif len(sides) != 1 or len(marks) < 2:
            left_out["it names both groups, or its pronoun's nowhere else"] += 1
        else:
            (group,) = sides
            span = (pronoun_swap.start, pronoun_swap.end)
            sentences_by_group[group].append(
                AgreementSentence(
                    f"gap {item.id}", "gap", item.text, span, pronoun_swap.new, group, item.id
                )
            )
    # Equal numbers, so that a constant answer is right in half of the passages.
    n_per_group = min(map(len, sentences_by_group.values()))
    n_kept = n_per_group if limit is None else min(n_per_group, limit // 2)
    # Suitable passages beyond the limit are reported too, so that counts add up.
    left_out[OVER_LIMIT] += sum(
        len(group_sentences) - n_kept for group_sentences in sentences_by_group.values()
    )
    return [
        sentence
        for group_sentences in sentences_by_group.values()
        for sentence in group_sentences[:n_kept]
    ]
