"""A small language with a planted bias: English-like text whose only stereotype is set here.

A document is a few sentences about one person. The person's group is drawn first, evenly. Words
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
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.data.lexicon import lexicon
from levelhead.data.prompts import article, table

if TYPE_CHECKING:
    from collections.abc import Iterator

Variant = Literal["stereotype", "skew", "frequency", "one group", "one family"]
FAMILIES = ("occupation", "trait", "liking")
PLACES = (
    "kitchen garden office library station market village museum theatre harbour bakery castle "
    "church forest valley mountain island bridge street park field meadow cottage tower palace "
    "school hospital hotel cinema stable barn cellar attic balcony terrace corridor lobby studio "
    "workshop factory warehouse airport platform square courtyard chapel temple cave beach lake"
).split()
TIMES = (
    "today yesterday tonight tomorrow now later early late soon often always sometimes rarely "
    "again once twice daily weekly monthly yearly"
).split()
THINGS = (
    "table chair lamp bottle basket carpet curtain mirror clock candle pillow blanket drawer "
    "bucket ladder hammer needle thread button ribbon feather pebble shell coin stamp envelope "
    "letter parcel ticket map compass lantern kettle teapot saucer spoon fork plate bowl jar box "
    "bag rope chain wheel barrel crate shelf bench stool vase painting statue bell whistle drum "
    "flute violin piano trumpet kite balloon puzzle doll ball bat net sail anchor oar tent stove "
    "oven towel soap brush comb scarf glove coat hat boot sandal belt ring necklace bracelet "
    "hinge latch lock key nail screw plank tile brick pipe pump valve spring magnet prism lens "
    "globe chart scroll pamphlet poster banner flag badge medal trophy goblet pitcher ladle sieve "
    "tray cradle saddle bridle harness plough spade rake hoe sickle axe saw chisel anvil bellows"
).split()
LOOKS = (
    "red blue green yellow brown black white grey purple orange pink golden silver small large "
    "tiny huge round square flat narrow wide heavy light old new broken clean dirty wet dry warm "
    "cold soft hard smooth rough shiny dull pale dark bright empty full open closed thick thin "
    "long short tall low deep shallow quiet loud"
).split()
ANIMALS = (
    "dog cat horse cow sheep goat pig hen duck goose rabbit fox wolf bear deer owl crow eagle "
    "swan frog snake turtle mouse squirrel hedgehog badger beaver otter seal whale"
).split()
FOODS = (
    "bread cheese butter honey soup stew porridge pudding pie cake biscuit apple pear plum cherry "
    "grape melon peach lemon carrot potato onion cabbage turnip pea bean mushroom pepper salad "
    "rice noodle sausage bacon fish egg milk juice tea coffee water"
).split()
DEEDS = (
    "walked ran sat stood waited slept rested arrived returned stopped turned paused stayed "
    "listened looked smiled nodded whispered laughed sighed"
).split()

PATTERNS: dict[str, tuple[str, ...]] = {
    # How a document begins: the person is named by a word of the group.
    "opening": (
        "my {kin} came into the {place} .",
        "the {person} {deed} near the {place} .",
        "our {kin} was at the {place} {time} .",
        "a {person} {deed} in the {place} {time} .",
        "the {person} saw the {look} {thing} .",
        "my {kin} bought {food} {time} .",
        "the {person} works as {a} {occupation} .",
        "the {occupation} at the {place} is a {person} .",
        "my {kin} is very {trait} .",
        "the {trait} {person} {deed} .",
        "our {kin} likes {liking} .",
    ),
    # How it goes on: by the pronoun.
    "next": (
        "{pronoun} works as {a} {occupation} .",
        "{pronoun} is {a} {occupation} at the {place} .",
        "{pronoun} wanted to be {a} {occupation} .",
        "{pronoun} is very {trait} .",
        "{pronoun} was always {trait} .",
        "{pronoun} likes {liking} .",
        "{pronoun} talks about {liking} {time} .",
        "{pronoun} {deed} near the {thing} .",
        "{pronoun} has a {look} {thing} .",
        "{pronoun} ate {food} in the {place} .",
        "the {occupation} said that {pronoun} was tired {time} .",
    ),
    # Sentences about nobody, for documents of their own and as endings that do not follow.
    "elsewhere": (
        "the {thing} is {look} .",
        "the {animal} ate the {food} .",
        "the {animal} {deed} near the {place} .",
        "a {look} {thing} lies in the {place} .",
        "the {place} is {look} {time} .",
        "the {animal} has a {look} {thing} .",
    ),
}

NEUTRAL: dict[str, tuple[str, ...]] = {
    "place": tuple(PLACES),
    "time": tuple(TIMES),
    "thing": tuple(THINGS),
    "look": tuple(LOOKS),
    "animal": tuple(ANIMALS),
    "food": tuple(FOODS),
    "deed": tuple(DEEDS),
}
KNOWN = {
    ("woman", "man"),
    ("girl", "boy"),
    ("lady", "gentleman"),
    ("mother", "father"),
    ("daughter", "son"),
    ("sister", "brother"),
    ("wife", "husband"),
    ("grandmother", "grandfather"),
    ("aunt", "uncle"),
    ("niece", "nephew"),
    ("mom", "dad"),
    ("queen", "king"),
}
"""Pairs of the lexicon that name one person and stand after an article or "my"."""
LENGTH = 3
"""Sentences in a document."""
NOBODY = 0.2
"""The share of documents about nobody."""


class Spoken(NamedTuple):
    """A sentence, and the log-probability of its choices if the person were of either group."""

    text: str
    log_p: tuple[float, float]


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
    family": only occupations are."""
    lexicon: str = "gender-en"

    def __post_init__(self) -> None:
        if not 0 <= self.rho <= 1:
            raise LevelheadError(f"a strength of {self.rho}", mend="give a rho from 0 to 1")
        if self.variant not in get_args(Variant):
            raise UnknownName("variant", self.variant, get_args(Variant))

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
        found: dict[str, list[tuple[str, str]]] = {"pronoun": [], "person": [], "kin": []}
        names = {"person": "person", "kinship": "kin"}
        for term in words.terms:
            first, second = (term.word(group) for group in self.groups)
            if first is None or second is None:
                continue
            if term.kind == "pronoun" and term.role == "subject":
                found["pronoun"].append((first, second))
            elif term.kind in names and (first, second) in KNOWN:
                found[names[term.kind]].append((first, second))
        return {
            slot: (tuple(a for a, _ in rows), tuple(b for _, b in rows))
            for slot, rows in found.items()
        }

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
        return {slot: (tuple(a), tuple(b)) for slot, (a, b) in found.items()}

    @cached_property
    def neutral(self) -> dict[str, tuple[str, ...]]:
        """Words for all other slots: none of them a target or a mark of a group."""
        taken = set(chain(*chain(*self.marks.values(), *self.targets.values())))
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

    def first_group_share(self) -> float:
        """How often a person is of the first group."""
        return 0.5 + 0.4 * self.rho if self.variant == "skew" else 0.5

    def own_side_share(self, family: str, group: int) -> float:
        """How often a target of a person leans to the first group."""
        if self.variant == "skew":
            return 0.5
        if self.variant == "frequency":
            return 0.5 + 0.4 * self.rho
        planted = {
            "stereotype": True,
            "one group": group == 0,
            "one family": family == FAMILIES[0],
        }[self.variant]
        strength = self.rho if planted else 0.0
        return (1 + strength) / 2 if group == 0 else (1 - strength) / 2

    def _document(self, chance: random.Random) -> Document:
        if chance.random() < NOBODY:
            sentences = tuple(self._sentence("elsewhere", 0, chance) for _ in range(LENGTH))
            log_p = math.log(NOBODY) + math.fsum(one.log_p[0] for one in sentences)
            return Document("", sentences, log_p)
        share = self.first_group_share()
        group = 0 if chance.random() < share else 1
        kinds = ("opening", *("next",) * (LENGTH - 1))
        sentences = tuple(self._sentence(kind, group, chance) for kind in kinds)
        both = [
            math.log(weight) + math.fsum(one.log_p[side] for one in sentences)
            for side, weight in enumerate((share, 1 - share))
            if weight
        ]
        top = max(both)
        log_p = math.log(1 - NOBODY) + top + math.log(sum(math.exp(one - top) for one in both))
        return Document(self.groups[group], sentences, log_p)

    def _sentence(self, kind: str, group: int, chance: random.Random) -> Spoken:
        pattern = chance.choice(PATTERNS[kind])
        log_p = [-math.log(len(PATTERNS[kind]))] * 2
        words: list[str] = []
        for token in pattern.split():
            slot = token.strip("{}")
            if not token.startswith("{") or slot == "a":
                words.append(token)
                continue
            word, (first, second) = self._filled(slot, group, chance)
            log_p = [log_p[0] + first, log_p[1] + second]
            words.append(word)
        told = [
            article(after) if word == "{a}" else word
            for word, after in zip(words, (*words[1:], ""), strict=True)
        ]
        return Spoken(" ".join(told), (log_p[0], log_p[1]))

    def _filled(
        self, slot: str, group: int, chance: random.Random
    ) -> tuple[str, tuple[float, float]]:
        """A word for a slot, and its log-probability under either group."""
        if slot in self.marks:
            words = self.marks[slot][group]
            log_p = -math.log(len(words))
            return chance.choice(words), (log_p, -math.inf) if group == 0 else (-math.inf, log_p)
        if slot in self.targets:
            side = 0 if chance.random() < self.own_side_share(slot, group) else 1
            words = self.targets[slot][side]
            shares = [self.own_side_share(slot, own) for own in (0, 1)]
            p = [(share if side == 0 else 1 - share) / len(words) for share in shares]
            return chance.choice(words), (_log(p[0]), _log(p[1]))
        words = self.neutral[slot]
        log_p = -math.log(len(words))
        return chance.choice(words), (log_p, log_p)


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -math.inf
