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
    from levelhead.measures.items import QueryArgs, QuerySet
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


class AnswerIndex(NamedTuple):
    """The questions of some readouts, item by item."""

    query_set: QuerySet
    queries: tuple[QueryArgs, ...]
    item: torch.Tensor
    """`[uses]`: the item that asks."""
    slot: torch.Tensor
    """Which of its answers; 0 where they are averaged."""
    weight: torch.Tensor
    """1, or 1/n where n answers are averaged; float64."""

    def values(self, answers: torch.Tensor, template: torch.Tensor) -> torch.Tensor:
        """The readouts' values of `[uses, r]` answers, differentiable; float64."""
        weighted = answers.double() * self.weight[:, None]
        if self.query_set.average_answers:
            # Out-of-place forms, because autograd must follow the answers into the readouts.
            return torch.zeros_like(template).index_add(0, self.item, weighted)
        return torch.zeros_like(template).index_put((self.item, self.slot), weighted)

    def answer_cotangents(
        self, value_cotangents: torch.Tensor, rows: torch.Tensor | slice = slice(None)
    ) -> torch.Tensor:
        """`[..., uses, r]` the derivative by some answers, of `[..., items(, asks), r]` by value.

        The transpose of `values`.
        """
        item, slot, weight = self.item[rows], self.slot[rows], self.weight[rows]
        if self.query_set.average_answers:
            return value_cotangents[..., item, :] * weight[:, None]
        return value_cotangents[..., item, slot, :] * weight[:, None]


def index_answers(lm: LM, measure: Measure, responses: Responses) -> AnswerIndex:
    """Index the answers behind some readouts of a measure's primary metric."""
    query_set = measure.queries(lm)[0]
    # A sampled token is a step function of the mask: its gradient would be 0, "no head matters".
    if query_set.query_kind == "sample":
        raise LevelheadError(
            f"{measure.name} is of sampled text: a mask changes what is sampled, not by a little",
            hint="locate by a measure of probabilities, such as cloze",
        )
    if query_set.average_answers:
        owner = torch.tensor(responses.owner)
        count = owner.bincount(minlength=len(responses))
        return AnswerIndex(
            query_set, responses.queries, owner, torch.zeros_like(owner), 1 / count[owner].double()
        )
    queries = tuple(query for item in responses.items for query in item.queries)
    queries_per_item = torch.tensor([len(item.queries) for item in responses.items])
    item = torch.repeat_interleave(torch.arange(len(responses)), queries_per_item)
    slot = torch.cat([torch.arange(int(n)) for n in queries_per_item])
    return AnswerIndex(
        query_set, queries, item, slot, torch.ones(len(queries), dtype=torch.float64)
    )
