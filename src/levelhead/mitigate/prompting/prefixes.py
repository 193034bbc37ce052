"""Counterexamples that are put before any prompt: candidates, made of some occupations only.

A prefix names occupations of both sides, each with the group that does not dominate it, so that it
can stand before a question about any occupation and gives no group more room than the other.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.counteracts import Prompt, counteracts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.prompts.counteracts import Set

Frame = Literal["syntactic", "semantic", "neutral"]
KINDS: dict[Frame, str] = {
    "syntactic": "target_counter_syntactic_similar",
    "semantic": "target_counter_semantic_similar",
    "neutral": "target_neutral",
}
UNRELATED = ("The dog is in a chair.", "The cup is on a shelf.", "The leaf is under a stone.",
             "The key is in a box.")  # fmt: skip
"""As many sentences about nothing cost something, too: what a prefix is compared with."""


class Prefix(NamedTuple):
    """Sentences that are put before a prompt."""

    name: str
    text: str
    sentences: int


class Halves(NamedTuple):
    """Occupations to choose on, and occupations to report on."""

    train: tuple[Prompt, ...]
    held: tuple[Prompt, ...]
    """Base prompts; their occupations stand in no prefix."""


def halves(which: Set, *, seed: int) -> Halves:
    """The occupations in two, alternately within their side in a random order."""
    rng = random.Random(seed)  # noqa: S311  # no secret
    found: tuple[list[Prompt], list[Prompt]] = ([], [])
    bases = [one for one in counteracts(which, backgrounds=1) if one.kind == "base"]
    for group in dict.fromkeys(one.dominated for one in bases):
        own = [one for one in bases if one.dominated == group]
        rng.shuffle(own)
        for i, one in enumerate(own):
            found[i % 2].append(one)
    return Halves(tuple(found[0]), tuple(found[1]))


def candidates(
    which: Set,
    occupations: Sequence[str],
    *,
    frames: Sequence[Frame] = get_args(Frame),
    sizes: Sequence[int] = (2, 4),
    each: int = 3,
    seed: int,
) -> tuple[Prefix, ...]:
    """Prefixes of counterexamples, some of each frame and size.

    Args:
        which: the set of prompts that the sentences are of.
        occupations: those that may be named.
        frames: kinds of counterexamples.
        sizes: sentences in a prefix; even numbers, half of them for each side.
        each: how many are drawn of each frame and size.
        seed: of the draws.
    """
    if not sizes or any(size < 2 or size % 2 for size in sizes) or each < 1:
        raise LevelheadError(
            f"prefixes of {list(sizes)} sentences, {each} of each",
            mend="give even sizes of at least 2, half for each side, and at least one of each",
        )
    rng = random.Random(seed)  # noqa: S311
    told = [one for one in counteracts(which, backgrounds=1) if one.occupation in set(occupations)]
    found = []
    for frame in frames:
        own = [one for one in told if one.kind == KINDS[frame]]
        sides = [
            [one for one in own if one.dominated == group]
            for group in dict.fromkeys(one.dominated for one in own)
        ]
        most = 2 * min(map(len, sides))
        if max(sizes) > most:
            raise LevelheadError(
                f"a prefix of {max(sizes)} sentences, and occupations for {most}",
                mend=f"give sizes of at most {most}",
            )
        for size in sizes:
            for draw in range(each):
                picked = [rng.sample(side, size // 2) for side in sides]
                mixed = [one for pair in zip(*picked, strict=True) for one in pair]
                text = " ".join(one.knowledge for one in mixed)
                found.append(Prefix(f"{frame} {size}/{draw + 1}", text, size))
    return tuple(found)


def unrelated(sentences: int) -> Prefix:
    """As many sentences about nothing."""
    text = " ".join(UNRELATED[i % len(UNRELATED)] for i in range(sentences))
    return Prefix(f"unrelated {sentences}", text, sentences)


def after(prefix: Prefix, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Base prompts behind a prefix."""
    return tuple(
        one._replace(id=f"{one.occupation}/{prefix.name}", kind=prefix.name, knowledge=prefix.text)
        for one in prompts
    )


def otherwise(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """The same base prompts in other words, which no candidate was chosen by."""
    return tuple(
        one._replace(base=one.base.replace("works as", "has just found a job as"))
        for one in prompts
    )
