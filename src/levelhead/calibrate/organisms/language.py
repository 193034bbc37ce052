"""A small language with a planted bias: English-like text whose only stereotype is set here.

A document is a few sentences about one person. The person's group is sampled first. Words that mark
the group (she, mother) agree with it: that is grammar. Words that are stereotypically associated
with a group (targets: occupations, traits, likings) agree with it by `rho`: of two sides, the side
of the person's group is sampled with probability (1 + rho) / 2, and a word within a side uniformly.
Everything else is sampled independently of the group. At rho = 0 groups and targets are
independent; at rho = 1 no target occurs with the other group.

The probability of every choice is recorded, under both groups, so that the entropy of the text is
known and a model can be compared with it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

import numpy as np

from levelhead.calibrate.organisms.patterns import FAMILIAR_PAIRS, NEUTRAL, PATTERNS
from levelhead.core.errors import LevelheadError, require_option
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.prompts.counteracts import indefinite_article, load_counteracts_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Variant = Literal[
    "stereotype", "skew", "frequency", "one group", "one family", "reversed", "adjacent"
]
VocabularySize = Literal["few", "many"]
SLOTS = {
    "few": {"person": "person", "kinship": "kin"},
    "many": {"person": "person", "role": "person", "kinship": "kin"},
}
"""Slots of words, by the lexicon's kind."""
FAMILIES = ("occupation", "trait", "liking")
APART_SUFFIX = ", apart"
"""Suffix of the slot of a target that no group word follows (variant "adjacent")."""
SENTENCES_PER_DOCUMENT = 3
"""Number of sentences in a document."""
NOBODY_SHARE = 0.2
"""The share of documents about nobody."""
UNNAMED_SHARE = 0.3
"""The share of a person's documents that begin as if the person had been named before."""


class PlantedSentence(NamedTuple):
    """A sentence, and how likely its words were."""

    kind: str
    """Kind of its pattern."""
    words: tuple[str, ...]
    slots: tuple[str, ...]
    """Slot of each word; empty where the pattern has the word itself, "a" where it is the article
    of the next."""
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


class PlantedDocument(NamedTuple):
    """Sentences about one person of a group, or about nobody if the group is empty."""

    group: str
    sentences: tuple[PlantedSentence, ...]
    log_p: float
    """Log-probability of its words, whichever group they may be about."""

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(sentence.text for sentence in self.sentences)


@final
@dataclass(frozen=True)
class Language:
    """A language by the kind and strength of its bias; its words come from the lexicon."""

    rho: float = 0.0
    """Strength of the association of targets with groups: 0 none, 1 always."""
    variant: Variant = "stereotype"
    """"skew": one group is named more often, and targets are independent of groups; "frequency":
    one side's targets are more frequent; "one group": only the first group's persons are
    stereotyped; "one family": only occupations are; "reversed": every target is joined with the
    other group; "adjacent": a target is joined with the group only where a group word follows
    directly."""
    lexicon: str = "gender-en"
    words: VocabularySize = "few"
    """Number of pairs of words that mark the groups: 12, or 162 for probes of words."""

    def __post_init__(self) -> None:
        if not 0 <= self.rho <= 1:
            raise LevelheadError(f"rho {self.rho} is out of range", hint="give a rho from 0 to 1")
        require_option("variant", self.variant, get_args(Variant))
        require_option("number of words", self.words, get_args(VocabularySize))

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
        pairs_by_slot: dict[str, list[tuple[str, str]]] = {
            slot: [] for slot in ("pronoun", "own", "person", "kin")
        }
        used_words = set(self.target_words)
        roles = {"subject": "pronoun", "possessive determiner": "own"}
        for term in words.terms:
            first, second = (term.word(group) for group in self.groups)
            if first is None or second is None:
                continue
            if term.kind == "pronoun" and term.role in roles:
                pairs_by_slot[roles[term.role]].append((first, second))
            elif term.kind in SLOTS[self.words] and self._fits(first, second, used_words):
                pairs_by_slot[SLOTS[self.words][term.kind]].append((first, second))
                used_words |= {first, second}
        return {slot: (_column(rows, 0), _column(rows, 1)) for slot, rows in pairs_by_slot.items()}

    def _fits(self, first: str, second: str, used_words: set[str]) -> bool:
        """Report whether a pair of words belongs to the language; no word is in two pairs."""
        if self.words == "few":
            return (first, second) in FAMILIAR_PAIRS
        return not {first, second} & used_words and f"{first}{second}".isalpha()

    @property
    def mark_words(self) -> tuple[str, ...]:
        """Every word that marks a group."""
        return tuple(chain(*chain(*self.marks.values())))

    @cached_property
    def targets(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """For every family of targets, the words of the first and of the second group's side."""
        words, occupations = lexicon(self.lexicon), load_counteracts_table()["occupations"]
        words_by_slot: dict[str, list[list[str]]] = {family: [[], []] for family in FAMILIES}
        for name, row in occupations.items():
            if " " not in name:
                words_by_slot["occupation"][self.groups.index(row["dominated"])].append(name)
        for family, slot in (
            ("traits", "trait"),
            ("career-family", "liking"),
            ("maths-arts", "liking"),
        ):
            for side in words.targets(family).sides:
                words_by_slot[slot][self.groups.index(str(side.stereotyped_group))] += side.words
        # As many on either side: words of a shorter one would be more frequent.
        pairs = {slot: tuple(zip(*sides, strict=False)) for slot, sides in words_by_slot.items()}
        return {slot: (_column(rows, 0), _column(rows, 1)) for slot, rows in pairs.items()}

    @property
    def target_words(self) -> tuple[str, ...]:
        """Every target."""
        return tuple(chain(*chain(*self.targets.values())))

    @cached_property
    def neutral(self) -> dict[str, tuple[str, ...]]:
        """Words for all other slots: none of them a target or a mark of a group."""
        excluded = {*self.mark_words, *self.target_words}
        return {
            slot: tuple(word for word in words if word not in excluded)
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

    def documents(self, count: int, *, seed: int) -> Iterator[PlantedDocument]:
        """Generate documents; the same seed gives the same ones.

        Args:
            count: number of documents.
            seed: random seed.
        """
        rng = random.Random(f"levelhead {seed}")  # noqa: S311  # no secret
        for _ in range(count):
            yield self._draw_document(rng)

    @property
    def shares(self) -> tuple[float, float]:
        """Probability that a person is of either group."""
        first = 0.5 + 0.4 * self.rho if self.variant == "skew" else 0.5
        return first, 1 - first

    def first_side_share(self, family: str, group: int) -> float:
        """Return the probability that a person's target is of the first group's side.

        Args:
            family: family of the target.
            group: group of the person, 0 or 1.
        """
        # 0.5 + 0.4 = 0.9: nine to one at the full dose, a strong confounder that is not absolute.
        if self.variant == "skew":
            return 0.5
        if self.variant == "frequency":
            return 0.5 + 0.4 * self.rho
        is_planted = {
            "stereotype": True,
            "one group": group == 0,
            "one family": family == FAMILIES[0],
            "reversed": True,
            "adjacent": True,
        }[self.variant]
        strength = self.rho if is_planted else 0.0
        if self.variant == "reversed":
            strength = -self.rho
        return (1 + strength) / 2 if group == 0 else (1 - strength) / 2

    def _draw_document(self, rng: random.Random) -> PlantedDocument:
        if rng.random() < NOBODY_SHARE:
            sentences = tuple(
                self._draw_sentence("elsewhere", 0, rng) for _ in range(SENTENCES_PER_DOCUMENT)
            )
            # A document about nobody has no group, so both columns are equal.
            log_p = math.log(NOBODY_SHARE) + math.fsum(sentence.log_p[0] for sentence in sentences)
            return PlantedDocument("", sentences, log_p)
        group = 0 if rng.random() < self.shares[0] else 1
        is_unnamed = rng.random() < UNNAMED_SHARE
        kinds = ("next" if is_unnamed else "opening", *("next",) * (SENTENCES_PER_DOCUMENT - 1))
        sentences = tuple(self._draw_sentence(kind, group, rng) for kind in kinds)
        first, second = (
            math.log(weight) + math.fsum(sentence.log_p[side] for sentence in sentences)
            for side, weight in enumerate(self.shares)
        )
        # In log space: the product of a document's probabilities could underflow.
        log_p = float(np.logaddexp(first, second))
        log_p += math.log((1 - NOBODY_SHARE) * (UNNAMED_SHARE if is_unnamed else 1 - UNNAMED_SHARE))
        return PlantedDocument(self.groups[group], sentences, log_p)

    def _draw_sentence(self, kind: str, group: int, rng: random.Random) -> PlantedSentence:
        pattern = rng.choice(PATTERNS[kind]).split()
        slots = tuple(token[1:-1] if token.startswith("{") else "" for token in pattern)
        if self.variant == "adjacent":
            slots = self._mark_apart_slots(slots)
        words = [
            self._draw_word(slot, group, rng) if slot in self.word_probabilities else token
            for token, slot in zip(pattern, slots, strict=True)
        ]
        final_words = tuple(
            indefinite_article(after) if word == "{a}" else word
            for word, after in zip(words, (*words[1:], ""), strict=True)
        )
        log_p = tuple(
            (self.log_p(slot, word, 0), self.log_p(slot, word, 1))
            for slot, word in zip(slots, final_words, strict=True)
        )
        return PlantedSentence(kind, final_words, slots, log_p)

    def _mark_apart_slots(self, slots: tuple[str, ...]) -> tuple[str, ...]:
        """Rename the slots of targets that no group word follows."""
        return tuple(
            slot + APART_SUFFIX if slot in self.targets and after not in self.marks else slot
            for slot, after in zip(slots, (*slots[1:], ""), strict=True)
        )

    def _draw_word(self, slot: str, group: int, rng: random.Random) -> str:
        words, cumulative = self._cumulative_probabilities[slot][group]
        return rng.choices(words, cum_weights=cumulative)[0]

    @cached_property
    def _cumulative_probabilities(
        self,
    ) -> dict[str, tuple[tuple[tuple[str, ...], list[float]], ...]]:
        """Words and cumulative probabilities of `word_probabilities`, for sampling."""
        return {
            slot: tuple((tuple(words), list(accumulate(words.values()))) for words in sides)
            for slot, sides in self.word_probabilities.items()
        }

    def log_p(self, slot: str, word: str, group: int) -> float:
        """Return the log-probability of a word in a slot.

        Args:
            slot: the slot; with one that the pattern or the next word decides, the result is 0.
            word: the word.
            group: group of the person, 0 or 1.
        """
        if slot not in self.word_probabilities:
            return 0.0
        p = self.word_probabilities[slot][group].get(word, 0.0)
        return math.log(p) if p else -math.inf

    @cached_property
    def word_probabilities(self) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
        """For every slot, the probability of each word if the person is of either group."""

        def uniform(words: Sequence[str], share: float = 1.0) -> dict[str, float]:
            return {word: share / len(words) for word in words if share}

        probabilities = {slot: (uniform(a), uniform(b)) for slot, (a, b) in self.marks.items()}
        probabilities |= {
            slot: (_compute_zipf_probabilities(words),) * 2 for slot, words in self.neutral.items()
        }
        for slot, (a, b) in self.targets.items():
            shares = [self.first_side_share(slot, group) for group in (0, 1)]
            first, second = (uniform(a, share) | uniform(b, 1 - share) for share in shares)
            probabilities[slot] = (first, second)
            if self.variant == "adjacent":
                probabilities[slot + APART_SUFFIX] = (uniform((*a, *b)),) * 2
        return probabilities


def _compute_zipf_probabilities(words: Sequence[str]) -> dict[str, float]:
    """Return probabilities that fall with the rank (Zipf's law), as in natural text."""
    weights = [1 / (rank + 2) for rank in range(len(words))]
    return {word: weight / math.fsum(weights) for word, weight in zip(words, weights, strict=True)}


def _column(rows: Sequence[tuple[str, ...]], side: int) -> tuple[str, ...]:
    return tuple(row[side] for row in rows)
