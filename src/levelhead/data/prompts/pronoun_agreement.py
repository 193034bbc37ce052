"""Sentences whose pronoun is beyond doubt: everybody in them is of one group.

Winogender and WinoBias ask whom a pronoun means, which may be doubtful; here both people are given
words of one group (the man, the father), so that the pronoun is the same whomever it means, and no
occupation is left. Every sentence is asked of both groups: who always says the same is right in
half of them. Of GAP's passages those are taken that hold another word of the pronoun's group and
none of the other; their names are those of their people, so they are not swapped, and as many are
taken of either group.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.data.catalog.datasets import dataset
from levelhead.data.counterfactuals.swap import swap
from levelhead.data.prompts.counteracts import article
from levelhead.data.records import Passage, Sentence, Template
from levelhead.data.tokenize import WORD, folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from levelhead.data.counterfactuals.swap import Swapped
    from levelhead.data.lexicons.lexicon import Lexicon

Source = Literal["winogender", "winobias", "gap"]
PEOPLE = ("woman", "girl", "lady", "mother", "sister", "daughter", "aunt", "wife")
"""Words that stand for a person before any verb; their twins are the lexicon's."""
WINOBIAS = ("pro-type1-dev", "anti-type1-dev", "pro-type2-dev", "anti-type2-dev")
PARTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "winogender": (("winogender", ("all",)),),
    "winobias": (("winobias", WINOBIAS), ("winobias-occupations", ("female", "male"))),
    "gap": (("gap", ("dev",)),),
}
"""The data sets and parts that a source is read from."""
BEYOND = "more of one group than of the other, or beyond the limit"
"""Why a passage that fits is left out."""
_FIRST, _SECOND = "\x01", "\x02"


class Agreeing(NamedTuple):
    """A sentence, its pronoun, and the other group's pronoun that would be wrong there."""

    id: str
    source: str
    text: str
    span: tuple[int, int]
    """Of the pronoun."""
    other: str
    group: str
    unit: str
    """The sentence without its people: what was sampled."""

    @property
    def own(self) -> str:
        """The pronoun that agrees."""
        return self.text[slice(*self.span)]


class Agreement(NamedTuple):
    """The sentences, and how many were left out, by reason."""

    sentences: tuple[Agreeing, ...]
    left_out: tuple[tuple[str, int], ...]


def agreeing(
    source: Source,
    lexicon: Lexicon,
    *,
    groups: Sequence[str] | None = None,
    people: Sequence[str] = PEOPLE,
    limit: int | None = None,
) -> Agreement:
    """The sentences of a source.

    Args:
        source: winogender, winobias or gap.
        lexicon: whose pronouns and words for people.
        groups: which two; by default its first two.
        people: words of the first group that stand for people, at least two.
        limit: how many of GAP's passages, of both groups together; by default all.
    """
    two = lexicon.two(groups)
    left_out: Counter[str] = Counter()
    if source == "gap":
        found = _passages(lexicon, two, left_out, limit)
    else:
        words = _twins(lexicon, two, people)
        skeletons = _winogender() if source == "winogender" else _winobias(left_out)
        found = list(_recast(source, skeletons, words, lexicon, two, left_out))
    if not found:
        raise NotMeasurable(
            f"{source} holds no sentence in which the pronouns of {two[0]} and {two[1]} "
            "are beyond doubt",
            mend="give another lexicon, or other groups",
        )
    return Agreement(tuple(found), tuple(sorted(left_out.items())))


def data_of(sources: Iterable[str]) -> dict[str, str]:
    """SHA-256 of every file that sources are read from, by name."""
    return {
        f"{name}/{file.path}": file.sha256
        for source in sources
        for name, parts in PARTS[source]
        for file in map(dataset(name).file, parts)
    }


def _twins(
    lexicon: Lexicon, two: tuple[str, str], people: Sequence[str]
) -> list[Mapping[str, str]]:
    """Each group's word for every person."""
    known = {folded(one): (one, other) for one, other in reversed(lexicon.pairs(*two))}
    missing = [word for word in people if folded(word) not in known]
    if missing or len(set(people)) < 2:
        raise LevelheadError(
            f"{lexicon.name} has no pair with {missing[0]!r} for {two[0]} and {two[1]}"
            if missing
            else f"{len(set(people))} words for people where a sentence has two",
            mend="give two or more words of the first group that the lexicon pairs",
        )
    return [dict(zip(two, known[folded(word)], strict=True)) for word in people]


def _winogender() -> Iterator[tuple[str, str]]:
    """(id, skeleton) of every sentence with an occupation and a participant."""
    for item in dataset("winogender").items("all"):
        assert isinstance(item, Template)  # noqa: S101  # its reader gives no other
        slots = dict(item.slots)
        if slots["participant"] != "someone":
            yield item.id, _skeleton(item.text, (slots["occupation"], slots["participant"]))


def _winobias(left_out: Counter[str]) -> Iterator[tuple[str, str]]:
    """The same of sentences with two occupations."""
    lists = dataset("winobias-occupations")
    known = {
        folded(item.text)
        for part in ("female", "male")
        for item in lists.items(part)
        if isinstance(item, Sentence)
    }
    for part in WINOBIAS:
        for item in dataset("winobias").items(part):
            assert isinstance(item, Template)  # noqa: S101
            named = [word for word in known if re.search(rf"(?i)\b{re.escape(word)}\b", item.text)]
            if len(named) == 2:
                yield item.id, _skeleton(item.text, named)
            else:
                left_out["not two occupations of the list"] += 1


def _skeleton(text: str, people: Sequence[str]) -> str:
    """A sentence with signs for its people, in the order in which they stand."""
    order = sorted(people, key=lambda word: text.lower().find(word.lower()))
    for word, sign in zip(order, (_FIRST, _SECOND), strict=True):
        text = re.sub(rf"(?i)\b{re.escape(word)}\b", sign, text)
    return text


def _recast(
    source: str,
    skeletons: Iterable[tuple[str, str]],
    words: Sequence[Mapping[str, str]],
    lexicon: Lexicon,
    two: tuple[str, str],
    left_out: Counter[str],
) -> Iterator[Agreeing]:
    """Every skeleton once, with people of either group in turn."""
    pronouns = _pronouns(lexicon, two)
    seen: set[str] = set()
    for name, skeleton in skeletons:
        found = [match for match in WORD.finditer(skeleton) if folded(match[0]) in pronouns]
        if len(found) != 1 or not {_FIRST, _SECOND} <= set(skeleton):
            # They, in a lexicon's first two groups, is nobody's; two pronouns are two questions.
            left_out["not two people and one pronoun of these groups"] += 1
            continue
        (group,) = pronouns[folded(found[0][0])]
        number = len(seen)
        chosen = [words[(number + i) % len(words)][group] for i in (0, 1)]
        text, start = _peopled(skeleton, chosen, found[0].start())
        twin = swap(text, lexicon, groups=two)
        unit = _unit(twin, skeleton, found[0].span(), start)
        if unit is None:
            left_out["its words cannot be exchanged"] += 1
        elif unit in seen:
            left_out["the same sentence of other people stands there already"] += 1
        else:
            seen.add(unit)
            yield from _both(f"{source} {name}", source, twin, start, group, two, unit)


def _pronouns(lexicon: Lexicon, two: tuple[str, str]) -> dict[str, frozenset[str]]:
    """Pronouns, and the one group each is of."""
    found: dict[str, frozenset[str]] = {}
    for term in lexicon.terms:
        for group in two:
            if term.kind == "pronoun" and term.marks(group):
                word = folded(str(term.word(group)))
                found[word] = found.get(word, frozenset()) | {group}
    return {word: own for word, own in found.items() if len(own) == 1}


def _peopled(skeleton: str, chosen: Sequence[str], start: int) -> tuple[str, int]:
    """The sentence with people, their articles set right, and where its pronoun stands now."""

    def put(text: str) -> str:
        for sign, word in zip((_FIRST, _SECOND), chosen, strict=True):
            text = re.sub(rf"\b([Aa])n? {sign}", rf"\g<1>{article(word)[1:]} {word}", text)
            text = text.replace(sign, word)
        return text

    before = put(skeleton[:start])
    return before + put(skeleton[start:]), len(before)


def _unit(twin: Swapped, skeleton: str, pronoun: tuple[int, int], start: int) -> str | None:
    """The skeleton without its pronoun; None if the pronoun or a person cannot be exchanged."""
    places = [change.start for change in twin.changes]
    people = skeleton.count(_FIRST) + skeleton.count(_SECOND)
    if twin.refusals or start not in places or len(places) != people + 1:
        return None
    bare = f"{skeleton[: pronoun[0]]}-{skeleton[pronoun[1] :]}"
    return re.sub(r"\s+", " ", bare.replace(_FIRST, "-").replace(_SECOND, "-")).strip()


def _both(
    name: str,
    source: str,
    twin: Swapped,
    start: int,
    group: str,
    two: tuple[str, str],
    unit: str,
) -> Iterator[Agreeing]:
    change = next(one for one in twin.changes if one.start == start)
    other = two[1 - two.index(group)]
    span, spanned = (change.start, change.end), (change.new_start, change.new_end)
    yield Agreeing(f"{name} {group}", source, twin.original, span, change.new, group, unit)
    yield Agreeing(f"{name} {other}", source, twin.text, spanned, change.old, other, unit)


def _passages(
    lexicon: Lexicon, two: tuple[str, str], left_out: Counter[str], limit: int | None
) -> list[Agreeing]:
    """GAP's passages that name one group only, and it twice; as many of either."""
    found: dict[str, list[Agreeing]] = {group: [] for group in two}
    for item in dataset("gap").items("dev"):
        assert isinstance(item, Passage)  # noqa: S101
        twin = swap(item.text, lexicon, groups=two)
        own = next((one for one in twin.changes if one.start == item.start), None)
        # Words that cannot be exchanged, such as a doubtful `her`, tell their group all the same.
        marks = [one.old for one in twin.changes] + [one.word for one in twin.refusals]
        sides = {side for word in marks for side in lexicon.groups_of(word) if side in two}
        if own is None:
            left_out["its pronoun cannot be exchanged"] += 1
        elif len(sides) != 1 or len(marks) < 2:
            left_out["it names both groups, or its pronoun's nowhere else"] += 1
        else:
            (group,) = sides
            span = (own.start, own.end)
            found[group].append(
                Agreeing(f"gap {item.id}", "gap", item.text, span, own.new, group, item.id)
            )
    many = min(map(len, found.values()))
    kept = many if limit is None else min(many, limit // 2)
    left_out[BEYOND] += sum(len(own) - kept for own in found.values())
    return [one for own in found.values() for one in own[:kept]]
