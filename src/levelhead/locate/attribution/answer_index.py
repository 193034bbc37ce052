"""Index of answers: every query of every item, and the position of its answer in the responses.

A query that two items share is run for each of them, so that the contributions of the items are
separate and add up exactly.
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
    """The queries of some responses, item by item."""

    query_set: QuerySet
    queries: tuple[QueryArgs, ...]
    item: torch.Tensor
    """`[answers]` index of the item."""
    slot: torch.Tensor
    """Index of the answer within its item; 0 if answers are averaged."""
    weight: torch.Tensor
    """Weight of the answer: 1, or 1/n if n answers are averaged; float64."""

    def values(self, answers: torch.Tensor, template: torch.Tensor) -> torch.Tensor:
        """The values of the responses from `[answers, r]` answers, differentiable; float64."""
        weighted = answers.double() * self.weight[:, None]
        if self.query_set.average_answers:
            # Out-of-place forms, because autograd must follow the answers into the readouts.
            return torch.zeros_like(template).index_add(0, self.item, weighted)
        return torch.zeros_like(template).index_put((self.item, self.slot), weighted)

    def answer_cotangents(
        self, value_cotangents: torch.Tensor, rows: torch.Tensor | slice = slice(None)
    ) -> torch.Tensor:
        """`[..., answers, r]` derivatives by answers from `[..., items(, queries), r]` by values.

        This is the transpose of `values`.
        """
        item, slot, weight = self.item[rows], self.slot[rows], self.weight[rows]
        if self.query_set.average_answers:
            return value_cotangents[..., item, :] * weight[:, None]
        return value_cotangents[..., item, slot, :] * weight[:, None]


def index_answers(lm: LM, measure: Measure, responses: Responses) -> AnswerIndex:
    """Index the answers behind the responses to a measure's primary metric."""
    query_set = measure.queries(lm)[0]
    # A sampled token is a step function of the mask: its gradient would be 0, "no head matters".
    if query_set.query_kind in ("sample", "generate"):
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
