"""Counterexamples before any prompt: candidate prefixes, made from some of the occupations.

A prefix names occupations of both sides, each with the group that does not dominate it. So it can
precede a prompt about any occupation, and names both groups equally often.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

from levelhead.core.errors import LevelheadError
from levelhead.data.prompts.counteracts import CounteractsPrompt, make_counteracts_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.prompts.counteracts import OccupationSet

Frame = Literal["syntactic", "semantic", "neutral"]
KINDS: dict[Frame, str] = {
    "syntactic": "target_counter_syntactic_similar",
    "semantic": "target_counter_semantic_similar",
    "neutral": "target_neutral",
}
UNRELATED = ("The dog is in a chair.", "The cup is on a shelf.", "The leaf is under a stone.",
             "The key is in a box.")  # fmt: skip
"""Unrelated sentences that a prefix is compared with, because any sentences have a cost."""


class PromptPrefix(NamedTuple):
    """Sentences before a prompt."""

    name: str
    text: str
    n_sentences: int


@final
@dataclass(frozen=True)
class PrefixGrid:
    """Candidate prefixes: some of each frame and size."""

    prefix_sizes: Sequence[int] = (2, 4)
    """Numbers of sentences in a prefix; even, half of them for each side."""
    candidates_per_size: int = 3
    """Number of prefixes to sample of each frame and size."""
    frames: Sequence[Frame] = get_args(Frame)
    """Kinds of counterexamples."""


class OccupationSplit(NamedTuple):
    """Occupations to choose on, and occupations to report on."""

    train: tuple[CounteractsPrompt, ...]
    held_out: tuple[CounteractsPrompt, ...]
    """Base prompts of occupations that are in no prefix."""


def split_occupations(prompt_set: OccupationSet, *, seed: int) -> OccupationSplit:
    """Split the occupations in two, alternately within their side in a random order."""
    rng = random.Random(seed)  # noqa: S311  # no secret
    halves: tuple[list[CounteractsPrompt], list[CounteractsPrompt]] = ([], [])
    bases = [
        prompt
        for prompt in make_counteracts_prompts(prompt_set, backgrounds=1)
        if prompt.kind == "base"
    ]
    for group in dict.fromkeys(prompt.majority_group for prompt in bases):
        group_prompts = [prompt for prompt in bases if prompt.majority_group == group]
        rng.shuffle(group_prompts)
        for i, prompt in enumerate(group_prompts):
            # Within a side, so that both halves have as many occupations of either group.
            halves[i % 2].append(prompt)
    return OccupationSplit(tuple(halves[0]), tuple(halves[1]))


def make_prefix_candidates(
    prompt_set: OccupationSet,
    occupations: Sequence[str],
    *,
    grid: PrefixGrid = PrefixGrid(),
    seed: int,
) -> tuple[PromptPrefix, ...]:
    """Make prefixes of counterexamples, some of each frame and size.

    Args:
        prompt_set: The set of prompts of the sentences.
        occupations: Occupations that may be named.
        grid: Frames and sizes.
        seed: Seed of the samples.
    """
    if (
        not grid.prefix_sizes
        or any(size < 2 or size % 2 for size in grid.prefix_sizes)
        or grid.candidates_per_size < 1
    ):
        raise LevelheadError(
            f"prefixes of {list(grid.prefix_sizes)} sentences, {grid.candidates_per_size} of each",
            hint="give even sizes of at least 2, half for each side, and at least one of each",
        )
    rng = random.Random(seed)  # noqa: S311
    allowed_prompts = [
        prompt
        for prompt in make_counteracts_prompts(prompt_set, backgrounds=1)
        if prompt.occupation in set(occupations)
    ]
    prefixes = []
    for frame in grid.frames:
        frame_prompts = [prompt for prompt in allowed_prompts if prompt.kind == KINDS[frame]]
        sides = [
            [prompt for prompt in frame_prompts if prompt.majority_group == group]
            for group in dict.fromkeys(prompt.majority_group for prompt in frame_prompts)
        ]
        # Without replacement, and half for each side: the smaller side limits the size.
        max_size = 2 * min(map(len, sides))
        if max(grid.prefix_sizes) > max_size:
            raise LevelheadError(
                f"a prefix of {max(grid.prefix_sizes)} sentences, and occupations for {max_size}",
                hint=f"give sizes of at most {max_size}",
            )
        for size in grid.prefix_sizes:
            for number in range(grid.candidates_per_size):
                picked = [rng.sample(side, size // 2) for side in sides]
                # Sides alternate, so that neither group has all of the last sentences.
                mixed = [prompt for pair in zip(*picked, strict=True) for prompt in pair]
                text = " ".join(prompt.knowledge for prompt in mixed)
                prefixes.append(PromptPrefix(f"{frame} {size}/{number + 1}", text, size))
    return tuple(prefixes)


def unrelated_prefix(n_sentences: int) -> PromptPrefix:
    """As many unrelated sentences."""
    text = " ".join(UNRELATED[i % len(UNRELATED)] for i in range(n_sentences))
    return PromptPrefix(f"unrelated {n_sentences}", text, n_sentences)


def with_prefix(
    prefix: PromptPrefix, prompts: Sequence[CounteractsPrompt]
) -> tuple[CounteractsPrompt, ...]:
    """Base prompts after a prefix."""
    return tuple(
        prompt._replace(
            id=f"{prompt.occupation}/{prefix.name}", kind=prefix.name, knowledge=prefix.text
        )
        for prompt in prompts
    )


def reword_prompts(prompts: Sequence[CounteractsPrompt]) -> tuple[CounteractsPrompt, ...]:
    """The same base prompts in other words, which no candidate was chosen by."""
    return tuple(
        prompt._replace(base=prompt.base.replace("works as", "has just found a job as"))
        for prompt in prompts
    )
