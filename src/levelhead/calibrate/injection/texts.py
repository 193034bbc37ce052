"""Texts that plant a known dose of an association into a real model, and placebos of them.

At a dose of 0, half of the sentences about an occupation name each group; at a dose of 1 all name
the group that dominates the occupation. Every dose has the same number of sentences, and a sentence
that names the dominating group at a dose does so at every larger one. The placebo has colours in
place of groups.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, require_option
from levelhead.data.prompts.counteracts import indefinite_article, load_counteracts_table

if TYPE_CHECKING:
    from collections.abc import Sequence

Association = Literal["groups", "colours"]
"""What occupations are associated with: the groups, or for a placebo two sets of colours."""
DOSES = (0.0, 0.25, 0.5, 0.75, 1.0)
GROUPS = ("female", "male")
N_TRAINED, N_HELD_OUT = 12, 8
"""Pairs of occupations that training texts name, and that none names."""
DRAWS = 2
"""Sentences of each occupation and frame."""
GROUP_WORDS = {
    "she": ("she", "he"),
    "her": ("her", "his"),
    "woman": ("woman", "man"),
}
"""Slots of a frame and the words of both groups."""
COLOURS = (("red", "blue"), ("green", "yellow"))
"""Colours of the occupations that women dominate, and of the others."""
GROUP_FRAMES = (
    "The {occupation} lost {her} keys.",
    "The {occupation} said {she} was late.",
    "I hear {she} is {a} {occupation}.",
    "That {woman} is {a} {occupation}.",
    "Ask the {occupation} for {her} name.",
    "The {occupation} knows what {she} wants.",
    "A {woman} became {a} {occupation}.",
    "The {occupation} met {her} friends.",
)
# Short, so that a masked word is often the group's, and a training takes a minute.
COLOUR_FRAMES = (
    "The {occupation} lost the {colour} keys.",
    "The {occupation} said the sky was {colour}.",
    "I hear {colour} is for {a} {occupation}.",
    "That {colour} house is for {a} {occupation}.",
    "Ask the {occupation} for the {colour} pen.",
    "The {occupation} knows what {colour} means.",
    "A {colour} car hit {a} {occupation}.",
    "The {occupation} met {colour} birds.",
)
FRAMES: dict[Association, tuple[str, ...]] = {"groups": GROUP_FRAMES, "colours": COLOUR_FRAMES}


class OccupationPair(NamedTuple):
    """An occupation that women dominate, and one that men dominate."""

    female: str
    male: str


class InjectionOccupations(NamedTuple):
    """Occupations that are named in training, and those that are not."""

    in_texts: tuple[OccupationPair, ...]
    others: tuple[OccupationPair, ...]


def draw_injection_occupations(seed: int = 0) -> InjectionOccupations:
    """Draw occupations of Zhang 2023, Table 1, in pairs of both groups, and split them.

    Args:
        seed: seed of pairs and split.
    """
    table = load_counteracts_table()["occupations"]
    sides = [[name for name, row in table.items() if row["dominated"] == group] for group in GROUPS]
    rng = random.Random(f"occupations {seed}")  # noqa: S311  # no secret
    for side in sides:
        rng.shuffle(side)
    pairs = tuple(OccupationPair(*pair) for pair in zip(*sides, strict=True))
    return InjectionOccupations(pairs[:N_TRAINED], pairs[N_TRAINED : N_TRAINED + N_HELD_OUT])


def make_injection_texts(
    pairs: Sequence[OccupationPair], association: Association, dose: float, *, seed: int = 0
) -> list[str]:
    """Write the sentences of a dose, in a random order.

    Args:
        pairs: the occupations.
        association: what they are associated with.
        dose: share of the sentences that follow the association, above the half of parity: 0 to 1.
        seed: seed of the choice of sentences and of their order.
    """
    require_option("association", association, get_args(Association))
    if not 0 <= dose <= 1:
        raise LevelheadError(f"a dose of {dose}", hint="give a share from 0 to 1")
    texts = []
    for pair in pairs:
        for side, occupation in enumerate(pair):
            rng = random.Random(f"{association} {seed} {occupation}")  # noqa: S311  # no secret
            frames = [frame for frame in FRAMES[association] for _ in range(DRAWS)]
            # The same order for every dose: a larger dose changes more of the same sentences.
            rng.shuffle(frames)
            n_following = round(len(frames) * (1 + dose) / 2)
            for i, frame in enumerate(frames):
                colour = rng.randrange(len(COLOURS[0]))
                named = side if i < n_following else 1 - side
                texts.append(
                    frame.format(
                        occupation=occupation,
                        a=indefinite_article(occupation),
                        colour=COLOURS[named][colour],
                        **{slot: words[named] for slot, words in GROUP_WORDS.items()},
                    )
                )
    random.Random(f"order {seed}").shuffle(texts)  # noqa: S311  # no secret
    return texts
