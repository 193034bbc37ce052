"""A small language with a planted bias: English-like text whose only stereotype is set here.

A document is a few sentences about one person. The person's group is drawn first. Words
that mark the group (she, mother) agree with it: that is grammar. Words that common opinion joins
with a group (targets: occupations, traits, likings) agree with it as often as `rho` says: of two
sides, the side that leans to the person's group is drawn with probability (1 + rho) / 2, and a word
within a side evenly. Everything else is drawn without looking at the group. At rho = 0 groups and
targets are independent; at rho = 1 no target ever stands beside the other group.

Every choice's probability is kept, under both groups, so that the text's own entropy is known and
a model can be held against it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

import numpy as np

from levelhead.calibrate.organisms.patterns import KNOWN, NEUTRAL, PATTERNS
from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.prompts.counteracts import article, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Variant = Literal[
    "stereotype", "skew", "frequency", "one group", "one family", "reversed", "adjacent"
]
Words = Literal["few", "many"]
SLOTS = {
    "few": {"person": "person", "kinship": "kin"},
    "many": {"person": "person", "role": "person", "kinship": "kin"},
}
"""Where words stand, by the lexicon's kind."""
FAMILIES = ("occupation", "trait", "liking")
APART = ", apart"
"""Added to the slot of a target that no group word follows, where only adjacent ones are joined."""
LENGTH = 3
"""Sentences in a document."""
NOBODY = 0.2
"""The share of documents about nobody."""
UNNAMED = 0.3
"""The share of a person's documents that begin as if the person had been named before."""


class Spoken(NamedTuple):
    """A sentence, and how likely its words were."""

    kind: str
    """Which patterns it is of."""
    words: tuple[str, ...]
    slots: tuple[str, ...]
    """What each word was put in for; empty where the pattern has the word itself, "a" where it is
    the article of the next."""
    word_log_p: tuple[tuple[float, float], ...]
    """Log-probability of every word in its slot, if the person were of either group."""

    @property
    def text(self) -> str:
        """The words."""
        return " ".join(self.words)

    @property
    def log_p(self) -> tuple[float, float]:
        """Log-probability of the sentence, if the person were of either group."""
        pattern = -math.log(len(PATTERNS[self.kind]))
        return (
            pattern + math.fsum(p for p, _ in self.word_log_p),
            pattern + math.fsum(p for _, p in self.word_log_p),
        )


class Document(NamedTuple):
    """Sentences about one person of a group; of no group, about nobody."""

    group: str
    sentences: tuple[Spoken, ...]
    log_p: float
    """Log-probability of its words, whichever group they may be about."""

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(one.text for one in self.sentences)


@final
@dataclass(frozen=True)
class Language:
    """What is planted, and how strongly. Group words and targets come from the lexicon."""

    rho: float = 0.0
    """How strongly targets are joined with groups: 0 not at all, 1 always."""
    variant: Variant = "stereotype"
    """"skew": one group is named more often, and targets look at nothing; "frequency": one side's
    targets are more frequent; "one group": only the first group's persons are stereotyped; "one
    family": only occupations are; "reversed": every target is joined with the other group;
    "adjacent": a target is joined with the group only where a group word stands right behind it."""
    lexicon: str = "gender-en"
    words: Words = "few"
    """How many pairs of words mark the groups: 12, or 162 for what asks of words."""

    def __post_init__(self) -> None:
        if not 0 <= self.rho <= 1:
            raise LevelheadError(f"a strength of {self.rho}", mend="give a rho from 0 to 1")
        if self.variant not in get_args(Variant):
            raise UnknownName("variant", self.variant, get_args(Variant))
        if self.words not in get_args(Words):
            raise UnknownName("number of words", self.words, get_args(Words))

    # -- words

    @cached_property
    def groups(self) -> tuple[str, str]:
        """The two groups, as the lexicon names them."""
        first, second = lexicon(self.lexicon).groups[:2]
        return first, second

    @cached_property
    def marks(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """For every slot of a group word, either group's words for it, paired."""
        words = lexicon(self.lexicon)
        found: dict[str, list[tuple[str, str]]] = {
            slot: [] for slot in ("pronoun", "own", "person", "kin")
        }
        taken = set(self.target_words)
        roles = {"subject": "pronoun", "possessive determiner": "own"}
        for term in words.terms:
            first, second = (term.word(group) for group in self.groups)
            if first is None or second is None:
                continue
            if term.kind == "pronoun" and term.role in roles:
                found[roles[term.role]].append((first, second))
            elif term.kind in SLOTS[self.words] and self._fits(first, second, taken):
                found[SLOTS[self.words][term.kind]].append((first, second))
                taken |= {first, second}
        return {slot: (_column(rows, 0), _column(rows, 1)) for slot, rows in found.items()}

    def _fits(self, first: str, second: str, taken: set[str]) -> bool:
        """Whether a pair of words is one of the language's; no word stands in two pairs."""
        if self.words == "few":
            return (first, second) in KNOWN
        return not {first, second} & taken and f"{first}{second}".isalpha()

    @property
    def mark_words(self) -> tuple[str, ...]:
        """Every word that marks a group."""
        return tuple(chain(*chain(*self.marks.values())))

    @cached_property
    def targets(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """For every family of targets, the words that lean to the first and to the second group."""
        words, occupations = lexicon(self.lexicon), table()["occupations"]
        found: dict[str, list[list[str]]] = {family: [[], []] for family in FAMILIES}
        for name, row in occupations.items():
            if " " not in name:
                found["occupation"][self.groups.index(row["dominated"])].append(name)
        for family, slot in (
            ("traits", "trait"),
            ("career-family", "liking"),
            ("maths-arts", "liking"),
        ):
            for side in words.targets(family).sides:
                found[slot][self.groups.index(str(side.leans))] += side.words
        # As many on either side: words of a shorter one would be more frequent.
        pairs = {slot: tuple(zip(*sides, strict=False)) for slot, sides in found.items()}
        return {slot: (_column(rows, 0), _column(rows, 1)) for slot, rows in pairs.items()}

    @property
    def target_words(self) -> tuple[str, ...]:
        """Every target."""
        return tuple(chain(*chain(*self.targets.values())))

    @cached_property
    def neutral(self) -> dict[str, tuple[str, ...]]:
        """Words for all other slots: none of them a target or a mark of a group."""
        taken = {*self.mark_words, *self.target_words}
        return {
            slot: tuple(word for word in words if word not in taken)
            for slot, words in NEUTRAL.items()
        }

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word type, in order."""
        words = {
            word
            for pattern in chain(*PATTERNS.values())
            for word in pattern.split()
            if "{" not in word
        }
        words |= set(chain(*self.neutral.values(), ("a", "an")))
        for sides in (*self.marks.values(), *self.targets.values()):
            words |= set(chain(*sides))
        return tuple(sorted(words))

    # -- text

    def documents(self, count: int, *, seed: int) -> Iterator[Document]:
        """So many documents; the same seed gives the same ones."""
        chance = random.Random(f"levelhead {seed}")  # noqa: S311  # no secret
        for _ in range(count):
            yield self._document(chance)

    @property
    def shares(self) -> tuple[float, float]:
        """How often a person is of either group."""
        first = 0.5 + 0.4 * self.rho if self.variant == "skew" else 0.5
        return first, 1 - first

    def first_side_share(self, family: str, group: int) -> float:
        """How often a target of a person leans to the first group."""
        if self.variant == "skew":
            return 0.5
        if self.variant == "frequency":
            return 0.5 + 0.4 * self.rho
        planted = {
            "stereotype": True,
            "one group": group == 0,
            "one family": family == FAMILIES[0],
            "reversed": True,
            "adjacent": True,
        }[self.variant]
        strength = self.rho if planted else 0.0
        if self.variant == "reversed":
            strength = -self.rho
        return (1 + strength) / 2 if group == 0 else (1 - strength) / 2

    def _document(self, chance: random.Random) -> Document:
        if chance.random() < NOBODY:
            sentences = tuple(self._sentence("elsewhere", 0, chance) for _ in range(LENGTH))
            log_p = math.log(NOBODY) + math.fsum(one.log_p[0] for one in sentences)
            return Document("", sentences, log_p)
        group = 0 if chance.random() < self.shares[0] else 1
        unnamed = chance.random() < UNNAMED
        kinds = ("next" if unnamed else "opening", *("next",) * (LENGTH - 1))
        sentences = tuple(self._sentence(kind, group, chance) for kind in kinds)
        first, second = (
            math.log(weight) + math.fsum(one.log_p[side] for one in sentences)
            for side, weight in enumerate(self.shares)
        )
        log_p = float(np.logaddexp(first, second))
        log_p += math.log((1 - NOBODY) * (UNNAMED if unnamed else 1 - UNNAMED))
        return Document(self.groups[group], sentences, log_p)

    def _sentence(self, kind: str, group: int, chance: random.Random) -> Spoken:
        pattern = chance.choice(PATTERNS[kind]).split()
        slots = tuple(token[1:-1] if token.startswith("{") else "" for token in pattern)
        if self.variant == "adjacent":
            slots = self._apart(slots)
        words = [
            self._drawn(slot, group, chance) if slot in self.chances else token
            for token, slot in zip(pattern, slots, strict=True)
        ]
        told = tuple(
            article(after) if word == "{a}" else word
            for word, after in zip(words, (*words[1:], ""), strict=True)
        )
        log_p = tuple(
            (self.log_p(slot, word, 0), self.log_p(slot, word, 1))
            for slot, word in zip(slots, told, strict=True)
        )
        return Spoken(kind, told, slots, log_p)

    def _apart(self, slots: tuple[str, ...]) -> tuple[str, ...]:
        """The slots of a sentence; those of targets that no group word follows by another name."""
        return tuple(
            slot + APART if slot in self.targets and after not in self.marks else slot
            for slot, after in zip(slots, (*slots[1:], ""), strict=True)
        )

    def _drawn(self, slot: str, group: int, chance: random.Random) -> str:
        words, below = self._cumulated[slot][group]
        return chance.choices(words, cum_weights=below)[0]

    @cached_property
    def _cumulated(self) -> dict[str, tuple[tuple[tuple[str, ...], list[float]], ...]]:
        """The same as `chances`, as drawing takes it: words, and the probability up to each."""
        return {
            slot: tuple((tuple(words), list(accumulate(words.values()))) for words in sides)
            for slot, sides in self.chances.items()
        }

    def log_p(self, slot: str, word: str, group: int) -> float:
        """Log-probability of a word for a slot; 0 where the pattern or the next word decides it."""
        if slot not in self.chances:
            return 0.0
        p = self.chances[slot][group].get(word, 0.0)
        return math.log(p) if p else -math.inf

    @cached_property
    def chances(self) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
        """For every slot, the probability of each word if the person is of either group."""

        def evenly(words: Sequence[str], share: float = 1.0) -> dict[str, float]:
            return {word: share / len(words) for word in words if share}

        found = {slot: (evenly(a), evenly(b)) for slot, (a, b) in self.marks.items()}
        found |= {slot: (_by_rank(words),) * 2 for slot, words in self.neutral.items()}
        for slot, (a, b) in self.targets.items():
            shares = [self.first_side_share(slot, group) for group in (0, 1)]
            first, second = (evenly(a, share) | evenly(b, 1 - share) for share in shares)
            found[slot] = (first, second)
            if self.variant == "adjacent":
                found[slot + APART] = (evenly((*a, *b)),) * 2
        return found


def _by_rank(words: Sequence[str]) -> dict[str, float]:
    """Probabilities that fall with the rank (Zipf), as those of words do."""
    weights = [1 / (rank + 2) for rank in range(len(words))]
    return {word: weight / math.fsum(weights) for word, weight in zip(words, weights, strict=True)}


def _column(rows: Sequence[tuple[str, ...]], side: int) -> tuple[str, ...]:
    return tuple(row[side] for row in rows)
