"""Uses: every question of every item, and where its answer goes in the readouts.

A question that two items share is run for each of them, so that what an item contributes is its
own, and contributions add up exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from levelhead.measures.base import Measure
    from levelhead.measures.items import Ask, Asked
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM


class Uses(NamedTuple):
    """The questions of some readouts, item by item."""

    asked: Asked
    asks: tuple[Ask, ...]
    item: torch.Tensor
    """`[uses]`: the item that asks."""
    slot: torch.Tensor
    """Which of its answers; 0 where they are averaged."""
    weight: torch.Tensor
    """1, or 1/n where n answers are averaged; float64."""

    def values(self, answers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The readouts' values of `[uses, r]` answers, differentiable; float64."""
        weighted = answers.double() * self.weight[:, None]
        if self.asked.averaged:
            return torch.zeros_like(like).index_add(0, self.item, weighted)
        return torch.zeros_like(like).index_put((self.item, self.slot), weighted)

    def cotangents(
        self, of_values: torch.Tensor, some: torch.Tensor | slice = slice(None)
    ) -> torch.Tensor:
        """`[..., uses, r]` the derivative by some answers, of `[..., items(, asks), r]` by value.

        The transpose of `values`.
        """
        item, slot, weight = self.item[some], self.slot[some], self.weight[some]
        if self.asked.averaged:
            return of_values[..., item, :] * weight[:, None]
        return of_values[..., item, slot, :] * weight[:, None]


def uses(lm: LM, measure: Measure, readouts: Readouts) -> Uses:
    """What a measure asked of a model for some readouts of its headline."""
    asked = measure.asked(lm)[0]
    if asked.verb == "sample":
        raise LevelheadError(
            f"{measure.name} is of sampled text: a mask changes what is sampled, not by a little",
            mend="locate by a measure of probabilities, such as cloze",
        )
    if asked.averaged:
        owner = torch.tensor(readouts.owner)
        count = owner.bincount(minlength=len(readouts))
        return Uses(asked, readouts.asks, owner, torch.zeros_like(owner), 1 / count[owner].double())
    asks = tuple(ask for item in readouts.items for ask in item.asks)
    each = torch.tensor([len(item.asks) for item in readouts.items])
    item = torch.repeat_interleave(torch.arange(len(readouts)), each)
    slot = torch.cat([torch.arange(int(n)) for n in each])
    return Uses(asked, asks, item, slot, torch.ones(len(asks), dtype=torch.float64))
