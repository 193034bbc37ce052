"""The gradient in a single graph: one forward of everything, then one backward.

The literal form of what `locate.attribution.gradient` computes in two passes, which it is tested
against. All activations must fit in memory at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import (
    Contributions,
    make_unit_gates,
    require_nonzero_gradient,
)
from levelhead.measures.metric import require_differentiable
from levelhead.measures.query_kinds import LocalQuery
from levelhead.measures.responses import build_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.head_map import Component
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


def compute_gradient_in_one_graph(
    lm: LM, measure: Measure, responses: Responses, *, components: Sequence[Component] = ("heads",)
) -> Contributions:
    """Shares of every item, as `gradient` gives them.

    Args:
        lm: the model.
        measure: what is differentiated.
        responses: which items; their values are read again.
        components: whose masks.
    """
    require_differentiable(measure.primary_metric)
    answer_index = index_answers(lm, measure, responses)
    local_query, dropped = build_query(
        lm, answer_index.query_set.query_kind, answer_index.queries, answer_index.query_set.settings
    )
    if dropped or not isinstance(local_query, LocalQuery):
        raise LevelheadError(
            "a query that was answered before cannot be built now",
            hint="use the model and the tokenizer that were read",
        )
    lm.layout.parallel.forbid_split_heads("a single graph")
    query = local_query.query
    query_of_row = torch.tensor(query.items or range(len(query.rows)))
    order: list[int] = []
    answers: list[torch.Tensor] = []
    masks: list[list[torch.Tensor]] = []

    def forward_batch(indices: Sequence[int]) -> torch.Tensor:
        gates = make_unit_gates(lm.layout, components, len(indices))
        with torch.enable_grad():
            answer_values = lm.run_rows(query, indices, gates=gates).values
        masks.append(list(gates.values()))  # not before: memory may not suffice, and it is halved
        return answer_values

    for indices, values in lm.batching.run_batches(query.rows, forward_batch):
        order.extend(indices)
        answers.append(values)
    query_numbers = query_of_row[order]
    rows = torch.cat(answers)
    total = torch.zeros(len(answer_index.queries), *rows.shape[1:], dtype=rows.dtype)
    answer_matrix = local_query.join_columns(total.index_add(0, query_numbers, rows))
    metric_value = measure.reduce(
        replace(responses, values=answer_index.values(answer_matrix, responses.values))
    )
    all_masks = [gate for gates in masks for gate in gates]
    gradients = torch.autograd.grad(metric_value, all_masks)
    item = answer_index.item[query_numbers]
    by_component: dict[Component, torch.Tensor] = {}
    for number, component in enumerate(components):
        # Masks are listed batch by batch, with the components of each batch in turn.
        component_gradients = torch.cat(gradients[number :: len(components)])
        empty = torch.zeros(len(responses), *component_gradients.shape[1:], dtype=torch.float64)
        by_component[component] = empty.index_add(0, item, component_gradients)
    require_nonzero_gradient(
        torch.cat(
            [component_contributions.flatten() for component_contributions in by_component.values()]
        ),
        measure,
        "the masks",
    )
    return Contributions(tuple(query_item.id for query_item in responses.items), by_component)
