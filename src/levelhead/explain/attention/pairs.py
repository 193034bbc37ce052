"""Pairs for the counter-stereotype experiment (Yang et al. 2025, section 5.2, steps 1 and 2).

A sentence with one word that marks a group (the attribute) and one word that opinion joins with it
(the target), and its twin: the same sentence with the attribute's counterpart. Both words must
stand in it once, as whole words, and the twin may differ in nothing else; what does not fit is left
out and counted.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.data.counterfactuals.swap import placebo
from levelhead.data.prompts.counteracts import article
from levelhead.data.tokenize import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon

Span = tuple[int, int]
WHAT = ("attribute", "target")

OFF: dict[str, tuple[str, ...]] = {
    # Targets that mostly are no opinion about anybody: blue jeans, a football match. In the
    # stand-in for the paper's corpus they are four sentences out of ten.
    "colours": ("blue", "pink"),
    "sports": ("baseball", "football", "softball", "rugby"),
}

AFTER = "its attribute comes after its target: a causal model does not see it from there"


class Question(NamedTuple):
    """A text, and where its attribute and its target stand."""

    text: str
    attribute: Span
    target: Span


class CounterPair(NamedTuple):
    """A sentence with one attribute and one target, and its twin."""

    id: str
    group: str
    """The group that the attribute marks."""
    word: str
    """The target, in small letters: what sentences are clustered by."""
    original: Question
    counter: Question


@final
@dataclass(frozen=True)
class Pairs:
    """Pairs, what they were made of, and how many sentences were left out of them, and why."""

    pairs: tuple[CounterPair, ...]
    data: tuple[tuple[str, str], ...]
    """Name and SHA-256 of every source."""
    left_out: tuple[tuple[str, int], ...] = ()
    """(reason, how many), by reason."""

    def __len__(self) -> int:
        return len(self.pairs)

    def without(self, why: Callable[[CounterPair], str]) -> Pairs:
        """The pairs that no reason is given against; the others are counted by their reason."""
        reasons = [why(pair) for pair in self.pairs]
        kept = tuple(pair for pair, reason in zip(self.pairs, reasons, strict=True) if not reason)
        counts = Counter(dict(self.left_out)) + Counter(filter(None, reasons))
        return replace(self, pairs=kept, left_out=tuple(sorted(counts.items())))


def paired(
    name: str, text: str, twin: str, *, group: str, attribute: str, target: str
) -> CounterPair | str:
    """A pair, or why it is none.

    >>> paired("1", "A woman is a nurse.", "A man is a nurse.", group="f",
    ...        attribute="woman", target="nurse").counter
    Question(text='A man is a nurse.', attribute=(2, 5), target=(11, 16))
    """
    found = {what: places(word, text) for what, word in zip(WHAT, (attribute, target), strict=True)}
    for what, spans in found.items():
        if len(spans) != 1:
            return (
                f"its {what} does not stand in it"
                if not spans
                else f"its {what} stands in it twice"
            )
    (here,), (there,) = found.values()
    if here[0] < there[1] and there[0] < here[1]:
        return "its attribute and its target overlap"
    end = len(twin) - (len(text) - here[1])
    if end <= here[0] or twin[: here[0]] != text[: here[0]] or twin[end:] != text[here[1] :]:
        return "its twin differs in more than the attribute"
    counterpart = twin[here[0] : end]
    if folded(counterpart) == folded(attribute):
        return "its twin is the same"
    if places(counterpart, text):
        return "it holds the attribute's counterpart too"
    moved = end - here[1] if there[0] > here[0] else 0
    return CounterPair(
        name,
        group,
        folded(target),
        Question(text, here, there),
        Question(twin, (here[0], end), (there[0] + moved, there[1] + moved)),
    )


def places(word: str, text: str) -> list[Span]:
    """Where a word stands in a text: whole, in letters of any case.

    >>> places("men", "Men, women and men's things")
    [(0, 3), (15, 18)]
    """
    whole = re.compile(rf"(?<!\w){re.escape(folded(word))}(?!\w)")
    return [match.span() for match in whole.finditer(folded(text))]


def attribute_first(pairs: Pairs) -> Pairs:
    """The pairs that a causal model can be asked about."""
    return pairs.without(
        lambda pair: "" if pair.original.attribute < pair.original.target else AFTER
    )


def drawn(
    pairs: Pairs, n: int = 500, *, seed: int = 0, off: Sequence[str] = ("colours", "sports")
) -> Pairs:
    """Up to n pairs, as evenly spread over the targets as there are sentences.

    The paper says nothing of how its 500 were drawn. In proportion, a few frequent words would be
    most of them: here every target gives its first sentence before any gives its second. Which is
    first is decided by a hash with the seed, so that the order of the source does not matter.

    Args:
        pairs: to draw from.
        n: how many.
        seed: of the draw.
        off: kinds of targets to leave out, of `OFF`; none: ().
    """
    if n < 2:
        raise LevelheadError(f"{n} pairs are too few", mend="draw at least 2; the paper drew 500")
    for kind in off:
        if kind not in OFF:
            raise UnknownName("kind of targets", kind, OFF)
    why = {word: f"off: {kind} ({word})" for kind in off for word in OFF[kind]}
    left = pairs.without(lambda pair: why.get(pair.word, ""))
    if not left.pairs:
        raise NotMeasurable(
            f"no pair is left: {', '.join(f'{name} {count}' for name, count in left.left_out)}",
            mend="give other pairs, or off=()",
        )
    by_word: dict[str, list[tuple[str, CounterPair]]] = defaultdict(list)
    for pair in left.pairs:
        by_word[pair.word].append((_rank(seed, pair), pair))
    order = sorted(
        (place, rank, pair)
        for rows in by_word.values()
        for place, (rank, pair) in enumerate(sorted(rows))
    )
    kept = sorted((pair for _, _, pair in order[:n]), key=lambda pair: pair.id)
    return replace(left, pairs=tuple(kept))


def placebo_of(pair: CounterPair, lexicon: Lexicon) -> Question | None:
    """The sentence with its attribute replaced by another word of the same group; None if none is.

    What changes then is the word, its frequency and its sense, but not the group.
    """
    text, attribute, target = pair.original
    found = placebo(text, lexicon)
    if found.twin is None or len(found.changes) != 1 or found.changes[0][2:4] != attribute:
        return None
    change = found.changes[0]
    before = re.search(r"(?i)\b(an?)\s+$", text[: attribute[0]])
    if places(change.new, text) or (before and before[1].lower() != article(change.new)):
        return None
    moved = len(change.new) - len(change.old) if target > attribute else 0
    place = target[0] + moved, target[1] + moved
    return Question(found.twin, (change.new_start, change.new_end), place)


def _rank(seed: int, pair: CounterPair) -> str:
    return hashlib.sha256(f"{seed} {pair.word} {pair.original.text}".encode()).hexdigest()
