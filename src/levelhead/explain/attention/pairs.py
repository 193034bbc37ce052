"""Pairs for the counter-stereotype experiment (Yang et al. 2025, section 5.2, steps 1 and 2).

A pair is a sentence with a word that marks a group (the attribute) and a word that is
stereotypically associated with it (the target), and its twin: the same sentence with the
attribute's counterpart. Both words must occur in it once, as whole words, and the twin may differ
in nothing else. Other sentences are left out and counted.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.errors import LevelheadError, NotMeasurableError, UnknownNameError
from levelhead.data.counterfactuals.swap import swap_within_groups
from levelhead.data.prompts.counteracts import indefinite_article
from levelhead.data.tokenize import fold_case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.data.lexicons.lexicon import Lexicon

Span = tuple[int, int]
ROLES = ("attribute", "target")

CONTROL_CATEGORIES: dict[str, tuple[str, ...]] = {
    # Targets that mostly are no opinion about anybody: blue jeans, a football match. In the
    # stand-in for the paper's corpus they are four sentences out of ten.
    "colours": ("blue", "pink"),
    "sports": ("baseball", "football", "softball", "rugby"),
}

ATTRIBUTE_AFTER_TARGET = (
    "its attribute comes after its target: a causal model does not see it from there"
)


class AnnotatedSentence(NamedTuple):
    """A text, with the positions of its attribute and its target."""

    text: str
    attribute: Span
    target: Span


class CounterPair(NamedTuple):
    """A sentence with one attribute and one target, and its counterfactual."""

    id: str
    group: str
    """Group that the attribute marks."""
    target_word: str
    """Target in lower case, by which sentences are clustered."""
    original: AnnotatedSentence
    counter: AnnotatedSentence


@final
@dataclass(frozen=True)
class CounterPairs:
    """Pairs with their sources, and the numbers and reasons of the sentences that were left out."""

    pairs: tuple[CounterPair, ...]
    data: tuple[tuple[str, str], ...]
    """Name and SHA-256 of every source."""
    exclusions: tuple[tuple[str, int], ...] = ()
    """(reason, number) of the sentences that were left out."""

    def __len__(self) -> int:
        return len(self.pairs)

    def exclude(self, reason_of: Callable[[CounterPair], str]) -> CounterPairs:
        """Keep the pairs without a reason to drop them; the others are counted by reason."""
        reasons = [reason_of(pair) for pair in self.pairs]
        remaining = tuple(
            pair for pair, reason in zip(self.pairs, reasons, strict=True) if not reason
        )
        counts = Counter(dict(self.exclusions)) + Counter(filter(None, reasons))
        return replace(self, pairs=remaining, exclusions=tuple(sorted(counts.items())))


def make_counter_pair(
    name: str, text: str, twin: str, *, group: str, attribute: str, target: str
) -> CounterPair | str:
    """Make a pair, or give the reason why it is none.

    >>> make_counter_pair("1", "A woman is a nurse.", "A man is a nurse.", group="f",
    ...        attribute="woman", target="nurse").counter
    AnnotatedSentence(text='A man is a nurse.', attribute=(2, 5), target=(11, 16))
    """
    spans_of_role = {
        role: find_word(word, text) for role, word in zip(ROLES, (attribute, target), strict=True)
    }
    for role, spans in spans_of_role.items():
        if len(spans) != 1:
            return (
                f"its {role} does not stand in it"
                if not spans
                else f"its {role} stands in it twice"
            )
    (attribute_span,), (target_span,) = spans_of_role.values()
    if attribute_span[0] < target_span[1] and target_span[0] < attribute_span[1]:
        return "its attribute and its target overlap"
    # What follows the attribute is the same in both texts, so the twin's attribute ends this far
    # from the end.
    end = len(twin) - (len(text) - attribute_span[1])
    if (
        end <= attribute_span[0]
        or twin[: attribute_span[0]] != text[: attribute_span[0]]
        or twin[end:] != text[attribute_span[1] :]
    ):
        return "its twin differs in more than the attribute"
    counterpart = twin[attribute_span[0] : end]
    if fold_case(counterpart) == fold_case(attribute):
        return "its twin is the same"
    # With both groups in one text, an exchange would give it two words of one group and none of the
    # other.
    if find_word(counterpart, text):
        return "it holds the attribute's counterpart too"
    # The counterpart may be longer or shorter, which moves a target behind it.
    shift = end - attribute_span[1] if target_span[0] > attribute_span[0] else 0
    return CounterPair(
        name,
        group,
        fold_case(target),
        AnnotatedSentence(text, attribute_span, target_span),
        AnnotatedSentence(
            twin, (attribute_span[0], end), (target_span[0] + shift, target_span[1] + shift)
        ),
    )


def find_word(word: str, text: str) -> list[Span]:
    """Find the positions of a whole word in a text, in upper or lower case.

    >>> find_word("men", "Men, women and men's things")
    [(0, 3), (15, 18)]
    """
    # Lookarounds instead of \b: a word that begins or ends with a sign has no \b there.
    pattern = re.compile(rf"(?<!\w){re.escape(fold_case(word))}(?!\w)")
    return [match.span() for match in pattern.finditer(fold_case(text))]


def attribute_first(pairs: CounterPairs) -> CounterPairs:
    """Select the pairs that a causal model can be queried with."""
    return pairs.exclude(
        lambda pair: (
            "" if pair.original.attribute < pair.original.target else ATTRIBUTE_AFTER_TARGET
        )
    )


def sample_pairs(
    pairs: CounterPairs,
    n: int = 500,
    *,
    seed: int = 0,
    control_categories: Sequence[str] = ("colours", "sports"),
) -> CounterPairs:
    """Sample up to n pairs, as evenly over the targets as possible.

    The paper does not describe how its 500 pairs were drawn. A proportional sample would consist
    mostly of a few frequent words. Here every target gives its first sentence before any target
    gives its second. A hash with the seed decides which sentence is first, so that the order of the
    source does not matter.

    Args:
        pairs: The pairs to sample from.
        n: Number of pairs.
        seed: Seed of the sample.
        control_categories: Kinds of targets to leave out, of `CONTROL_CATEGORIES`; () for none.
    """
    if n < 2:
        raise LevelheadError(f"{n} pairs are too few", hint="draw at least 2; the paper drew 500")
    for kind in control_categories:
        if kind not in CONTROL_CATEGORIES:
            raise UnknownNameError("kind of targets", kind, CONTROL_CATEGORIES)
    reason_of_word = {
        word: f"control category: {kind} ({word})"
        for kind in control_categories
        for word in CONTROL_CATEGORIES[kind]
    }
    remaining = pairs.exclude(lambda pair: reason_of_word.get(pair.target_word, ""))
    if not remaining.pairs:
        raise NotMeasurableError(
            "no pair is left: "
            f"{', '.join(f'{name} {count}' for name, count in remaining.exclusions)}",
            hint="give other pairs, or control_categories=()",
        )
    by_word: dict[str, list[tuple[str, CounterPair]]] = defaultdict(list)
    for pair in remaining.pairs:
        by_word[pair.target_word].append((_rank(seed, pair), pair))
    # First sentences of all targets, then second ones: no frequent target fills the sample.
    order = sorted(
        (order_in_word, rank, pair)
        for rows in by_word.values()
        for order_in_word, (rank, pair) in enumerate(sorted(rows))
    )
    selection = sorted((pair for _, _, pair in order[:n]), key=lambda pair: pair.id)
    return replace(remaining, pairs=tuple(selection))


def make_placebo_sentence(pair: CounterPair, lexicon: Lexicon) -> AnnotatedSentence | None:
    """Replace the attribute by another word of the same group; None if there is none.

    This changes the word, its frequency and its sense, but not the group.
    """
    text, attribute, target = pair.original
    swap = swap_within_groups(text, lexicon)
    if swap.counterfactual is None or len(swap.changes) != 1 or swap.changes[0][2:4] != attribute:
        return None
    change = swap.changes[0]
    # "an actress" must not become "an woman": the change would be one of grammar, not of the word.
    article_match = re.search(r"(?i)\b(an?)\s+$", text[: attribute[0]])
    if find_word(change.new, text) or (
        article_match and article_match[1].lower() != indefinite_article(change.new)
    ):
        return None
    shift = len(change.new) - len(change.old) if target > attribute else 0
    target_span = target[0] + shift, target[1] + shift
    return AnnotatedSentence(swap.counterfactual, (change.new_start, change.new_end), target_span)


def _rank(seed: int, pair: CounterPair) -> str:
    return hashlib.sha256(f"{seed} {pair.target_word} {pair.original.text}".encode()).hexdigest()
