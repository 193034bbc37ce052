"""Find on one half, confirm on the other.

Heads chosen on all items look better than they are: the choice uses the noise. So sign, ranking and
every choice come from the find half, and intervals, p-values and controls from the confirm half.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.measures.embedding.seat import around

if TYPE_CHECKING:
    from levelhead.locate.attribution.variants import Variants
    from levelhead.locate.head_map import SplitBy
    from levelhead.measures.base import Measure
    from levelhead.measures.items import Ask
    from levelhead.measures.responses import Readouts

FEWEST = 25
"""Words a side below which words are not split."""
BLOCKS = 8
"""Into which contexts are cut, by hash; half of them is a half."""
CLAIM: dict[SplitBy, str] = {
    "words": "found on one half of the words, confirmed on the other",
    "contexts": "for these words: found in one half of their contexts, confirmed in the other",
    "none": "exploratory: found and judged on the same items",
}


@final
@dataclass(frozen=True, eq=False)
class Half:
    """Some of the items, or some blocks of the contexts of all of them."""

    items: frozenset[str] | None = None
    blocks: frozenset[int] | None = None
    matched: bool = False
    """Whether a context is used with both members of a pair, which must stay together."""

    def block(self, ask: Ask) -> int:
        """A context's block: by its text, or by what stands around the word."""
        if self.matched and len(ask) == 3:
            return int(around(ask)[:8], 16) % BLOCKS
        return int(_hash(str(ask[0]))[:8], 16) % BLOCKS

    def of(self, readouts: Readouts) -> Readouts:
        """The readouts of this half."""
        if self.blocks is not None:
            return self._of_blocks(readouts, self.blocks)
        items = self.items
        return readouts if items is None else readouts.some(lambda item: item.id in items)

    def varied(self, variants: Variants, number: int | None) -> Readouts:
        """The same of a variant."""
        return replace(self, blocks=None).of(variants.of(number, self.blocks))

    def _of_blocks(self, readouts: Readouts, blocks: frozenset[int]) -> Readouts:
        """Items averaged over the contexts of some blocks; an item without any is left out."""
        kept = [i for i, ask in enumerate(readouts.asks) if self.block(ask) in blocks]
        if not kept:
            raise NotMeasurable(
                "a half has no contexts", mend="give more contexts, or split='none'"
            )
        held = sorted({readouts.owner[i] for i in kept})
        place = {item: number for number, item in enumerate(held)}
        owner = torch.tensor([place[readouts.owner[i]] for i in kept])
        answers = readouts.answers[kept]
        total = torch.zeros(len(held), answers.shape[1], dtype=torch.float64)
        total = total.index_add(0, owner, answers.double())
        return replace(
            readouts,
            items=tuple(readouts.items[i] for i in held),
            values=total / owner.bincount(minlength=len(held))[:, None],
            answers=answers,
            owner=tuple(owner.tolist()),
            asks=tuple(readouts.asks[i] for i in kept),
        )


@final
@dataclass(frozen=True, eq=False)
class Split:
    """Two halves, and what may be claimed of them."""

    by: SplitBy
    seed: int
    find: Half
    confirm: Half

    @property
    def claim(self) -> str:
        """What a confirmed head may be said to do."""
        return CLAIM[self.by]

    def refuse_one(self) -> None:
        """Refuse to judge on the items on which was chosen: there is one half, not two."""
        if self.by == "none":
            raise NotMeasurable(
                "nothing can be confirmed: there are no two halves",
                mend="give enough words or contexts for two halves",
            )

    def block(self, ask: Ask) -> int:
        """A context's block, where contexts are split."""
        return self.find.block(ask) if self.find.blocks is not None else 0


def halves(
    measure: Measure,
    readouts: Readouts,
    *,
    by: Literal["auto"] | SplitBy = "auto",
    seed: int = 0,
) -> Split:
    """Split by words where there are enough of them a side, otherwise by their contexts.

    Args:
        measure: what decides which items are sampled; the others are in both halves.
        readouts: what could be read.
        by: "words", "contexts", "none"; "auto" chooses.
        seed: another seed, another split.
    """
    if by not in ("auto", *CLAIM):
        raise UnknownName("split", str(by), ("auto", *CLAIM))
    if by == "none":
        return Split("none", seed, Half(), Half())
    sampled = measure.sampled(readouts)
    factor = measure.design(readouts, measure.headline).factors[0]
    fewest = min(map(len, factor.strata))
    if by == "words" or (by == "auto" and fewest >= FEWEST):
        return _by_words(measure, readouts, seed)
    # Items that are not averaged are compared with each other (twins, templates): a half of them
    # would tear comparisons apart.
    if len(sampled.owner) <= factor.units:
        if by == "auto":
            return Split("none", seed, Half(), Half())
        raise LevelheadError(
            f"the {factor.units} {factor.name} have no contexts that could be halved",
            mend="give more contexts, or split='none': what is found is then exploratory",
        )
    order = sorted(range(BLOCKS), key=lambda number: _hash(f"{seed} {number}"))
    find, confirm = (frozenset(order[: BLOCKS // 2]), frozenset(order[BLOCKS // 2 :]))
    matched = getattr(measure, "contexts", None) == "matched"
    halved = (Half(blocks=own, matched=matched) for own in (find, confirm))
    return Split("contexts", seed, *halved)


def _by_words(measure: Measure, readouts: Readouts, seed: int) -> Split:
    """Units of the first factor, dealt alternately within their side in an order by hash."""
    sampled = measure.sampled(readouts)
    factor = measure.design(readouts, measure.headline).factors[0]
    at = readouts.factors.index(factor.name) if factor.name in readouts.factors else 0
    label = {
        int(unit): item.units[at] for unit, item in zip(factor.unit, sampled.items, strict=True)
    }
    first: set[int] = set()
    for stratum in factor.strata:
        order = sorted(stratum.tolist(), key=lambda unit: _hash(f"{seed} {label[unit]}"))
        first.update(order[::2])
    found = {
        item.id for unit, item in zip(factor.unit, sampled.items, strict=True) if int(unit) in first
    }
    always = {item.id for item in readouts.items if not measure.samples(item)}
    others = {item.id for item in sampled.items} - found
    if not found or not others:
        raise NotMeasurable(
            f"{factor.units} {factor.name} cannot be split", mend="give more, or split='none'"
        )
    return Split("words", seed, Half(frozenset(found | always)), Half(frozenset(others | always)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
