"""Choose heads on one half of the items and confirm them on the other.

Heads chosen on all items look better than they are, because the choice uses the noise. So the sign,
the ranking and every choice come from the discovery half; intervals, p-values and controls come
from the confirmation half.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.measures.embedding.word_contexts import surroundings_hash

if TYPE_CHECKING:
    from levelhead.locate.attribution.variants import AblationResponses
    from levelhead.locate.head_map import SplitBy
    from levelhead.measures.base import Measure
    from levelhead.measures.items import QueryArgs
    from levelhead.measures.responses import Responses

MIN_WORDS_PER_SIDE = 25
"""Minimum number of words a side for a split by words."""
CONTEXT_BLOCKS = 8
"""Number of blocks into which contexts are split, by hash; half of the blocks are one half."""
CLAIM_OF_SPLIT: dict[SplitBy, str] = {
    "words": "found on one half of the words, confirmed on the other",
    "contexts": "for these words: found in one half of their contexts, confirmed in the other",
    "none": "exploratory: found and tested on the same items",
}


@final
@dataclass(frozen=True, eq=False)
class SplitHalf:
    """Some of the items, or some blocks of the contexts of all items."""

    items: frozenset[str] | None = None
    blocks: frozenset[int] | None = None
    is_matched: bool = False
    """Whether a context is used with both members of a pair, which must stay together."""

    def block_of(self, query: QueryArgs) -> int:
        """The block of a context: by its text, or by the text around the word."""
        # Both members of a pair have the same surroundings and so the same block; by their full
        # text, they could be in different halves and would no longer be matched.
        if self.is_matched and len(query) == 3:
            return int(surroundings_hash(query)[:8], 16) % CONTEXT_BLOCKS
        return int(_hash(str(query[0]))[:8], 16) % CONTEXT_BLOCKS

    def select(self, responses: Responses) -> Responses:
        """The responses to this half."""
        if self.blocks is not None:
            return self._select_blocks(responses, self.blocks)
        items = self.items
        return responses if items is None else responses.select(lambda item: item.id in items)

    def select_variant(
        self, ablation_responses: AblationResponses, number: int | None
    ) -> Responses:
        """The responses of a variant to this half."""
        return replace(self, blocks=None).select(
            ablation_responses.responses_of(number, self.blocks)
        )

    def _select_blocks(self, responses: Responses, blocks: frozenset[int]) -> Responses:
        """Average items over the contexts of some blocks; items without one are left out."""
        context_numbers = [
            i for i, query in enumerate(responses.queries) if self.block_of(query) in blocks
        ]
        if not context_numbers:
            raise NotMeasurableError(
                "a half has no contexts", hint="give more contexts, or split='none'"
            )
        item_numbers = sorted({responses.owner[i] for i in context_numbers})
        row_of_item = {item: number for number, item in enumerate(item_numbers)}
        owner = torch.tensor([row_of_item[responses.owner[i]] for i in context_numbers])
        answers = responses.answers[context_numbers]
        total = torch.zeros(len(item_numbers), answers.shape[1], dtype=torch.float64)
        total = total.index_add(0, owner, answers.double())
        return replace(
            responses,
            items=tuple(responses.items[i] for i in item_numbers),
            # Averaged anew from single contexts: the stored mean is over both halves.
            values=total / owner.bincount(minlength=len(item_numbers))[:, None],
            answers=answers,
            owner=tuple(owner.tolist()),
            queries=tuple(responses.queries[i] for i in context_numbers),
        )


@final
@dataclass(frozen=True, eq=False)
class ItemSplit:
    """Two halves, and the scope of claims from them."""

    split_by: SplitBy
    seed: int
    discovery: SplitHalf
    confirmation: SplitHalf

    @property
    def claim(self) -> str:
        """Scope of claims about confirmed heads."""
        return CLAIM_OF_SPLIT[self.split_by]

    def require_two_halves(self) -> None:
        """Raise an error if there is only one half: a test must not use the items of the choice."""
        if self.split_by == "none":
            raise NotMeasurableError(
                "nothing can be confirmed: there are no two halves",
                hint="give enough words or contexts for two halves",
            )

    def block_of(self, query: QueryArgs) -> int:
        """The block of a context, if contexts are split."""
        return self.discovery.block_of(query) if self.discovery.blocks is not None else 0


def split_items(
    measure: Measure,
    responses: Responses,
    *,
    split_by: Literal["auto"] | SplitBy = "auto",
    seed: int = 0,
) -> ItemSplit:
    """Split by words if there are enough words a side, otherwise by their contexts.

    Args:
        measure: The measure, which decides the sampled items; other items are in both halves.
        responses: Responses to all items.
        split_by: "words", "contexts", "none"; "auto" chooses.
        seed: Seed of the split.
    """
    require_option("split", split_by, ("auto", *CLAIM_OF_SPLIT))
    if split_by == "none":
        return ItemSplit("none", seed, SplitHalf(), SplitHalf())
    sampled = measure.select_sampled(responses)
    factor = measure.design(responses, measure.primary_metric).factors[0]
    min_words = min(map(len, factor.strata))
    if split_by == "words" or (split_by == "auto" and min_words >= MIN_WORDS_PER_SIDE):
        return _split_by_words(measure, responses, seed)
    # Items that are not averaged are compared with each other (twins, templates): a half of them
    # would tear comparisons apart.
    if len(sampled.owner) <= factor.n_units:
        if split_by == "auto":
            return ItemSplit("none", seed, SplitHalf(), SplitHalf())
        raise LevelheadError(
            f"the {factor.n_units} {factor.name} have no contexts that could be halved",
            hint="give more contexts, or split='none': what is found is then exploratory",
        )
    order = sorted(range(CONTEXT_BLOCKS), key=lambda number: _hash(f"{seed} {number}"))
    discovery_blocks, confirmation_blocks = (
        frozenset(order[: CONTEXT_BLOCKS // 2]),
        frozenset(order[CONTEXT_BLOCKS // 2 :]),
    )
    is_matched = getattr(measure, "contexts", None) == "matched"
    split_halves = (
        SplitHalf(blocks=blocks, is_matched=is_matched)
        for blocks in (discovery_blocks, confirmation_blocks)
    )
    return ItemSplit("contexts", seed, *split_halves)


def _split_by_words(measure: Measure, responses: Responses, seed: int) -> ItemSplit:
    """Assign units of the first factor to alternate halves, per side, in an order by hash."""
    sampled = measure.select_sampled(responses)
    factor = measure.design(responses, measure.primary_metric).factors[0]
    factor_index = responses.factors.index(factor.name) if factor.name in responses.factors else 0
    word_of_unit = {
        int(unit): item.units[factor_index]
        for unit, item in zip(factor.unit_of_item, sampled.items, strict=True)
    }
    discovery_units: set[int] = set()
    for stratum in factor.strata:
        # By hash of the word, so that the order of a list does not decide who is in which half.
        order = sorted(stratum.tolist(), key=lambda unit: _hash(f"{seed} {word_of_unit[unit]}"))
        discovery_units.update(order[::2])
    discovery_ids = {
        item.id
        for unit, item in zip(factor.unit_of_item, sampled.items, strict=True)
        if int(unit) in discovery_units
    }
    # Attribute words define the measure: both halves need all of them.
    unsampled_ids = {item.id for item in responses.items if not measure.is_sampled(item)}
    confirmation_ids = {item.id for item in sampled.items} - discovery_ids
    if not discovery_ids or not confirmation_ids:
        raise NotMeasurableError(
            f"{factor.n_units} {factor.name} cannot be split", hint="give more, or split='none'"
        )
    return ItemSplit(
        "words",
        seed,
        SplitHalf(frozenset(discovery_ids | unsampled_ids)),
        SplitHalf(frozenset(confirmation_ids | unsampled_ids)),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
