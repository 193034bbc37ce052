"""The gradient integrated along a path on which all masks go from 0 to 1 together.

C(p) = integral over t of dL/dm(p) at m = t for all parts. These contributions add up to L(1) -
L(0), the joint effect of the parts (integrated gradients, Sundararajan et al. 2017, with masks as
inputs). Eq. 4 of Yang et al. 2025 is the end of the path, at t = 1. The integral is computed by
Gauss-Legendre quadrature, with more nodes until the sum is reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import (
    STREAM_OF_COMPONENT,
    compute_cotangents,
    gate_shape,
)
from levelhead.measures.metric import require_differentiable
from levelhead.measures.query_kinds import LocalQuery
from levelhead.measures.responses import build_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.attribution.answer_index import AnswerIndex
    from levelhead.locate.head_map import Component
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.sites import Stream

# The count doubles until contributions are complete, so that a smooth path needs 16 only.
NODE_COUNTS = (16, 32, 64, 128)
# Allowed gap of completeness: contributions sum to L(1) - L(0) (Sundararajan et al. 2017).
TOLERANCE = 1e-3


@final
@dataclass(frozen=True, eq=False)
class PathAttribution:
    """Contributions that add up to the joint effect of the parts."""

    scores: dict[Component, torch.Tensor]
    """`[layers, heads]` contributions, for each part."""
    full_value: float
    """L(1): the value of the unedited model."""
    masked_value: float
    """L(0): the value with all these parts masked."""
    n_nodes: int

    @property
    def gap(self) -> float:
        """Sum of the contributions less (L(1) - L(0))."""
        total = sum(float(component_scores.sum()) for component_scores in self.scores.values())
        return total - (self.full_value - self.masked_value)


def integrate_masks(
    lm: LM, measure: Measure, responses: Responses, *, components: Sequence[Component] = ("heads",)
) -> PathAttribution:
    """Integrate the gradient over masks from 0 to 1.

    Args:
        lm: The model.
        measure: The measure to differentiate.
        responses: Responses to the items.
        components: Parts to mask, without the embeddings: if these are masked, all words have the
            same vector.
    """
    require_differentiable(measure.primary_metric)
    if "embeddings" in components:
        raise LevelheadError(
            "without embeddings all words are one vector: the path has no beginning",
            hint="integrate over heads and mlp; take the embeddings' gradient",
        )
    answer_index = index_answers(lm, measure, responses)
    local_query, dropped = build_query(
        lm, answer_index.query_set.query_kind, answer_index.queries, answer_index.query_set.settings
    )
    if dropped or not isinstance(local_query, LocalQuery):
        raise LevelheadError(
            "a query that was answered before cannot be built now",
            hint="use the model and the tokenizer that were read",
        )
    try:
        # Without heads a blank sees no context: all items may give the same answer, and an
        # effect size then has no value at the beginning of the path.
        masked_value = float(
            _evaluate_at(lm, measure, responses, answer_index, local_query, components, 0.0)[0]
        )
    except NotMeasurableError as error:
        raise NotMeasurableError(
            f"without {' and '.join(components)} {measure.name} has no value, so no path leads "
            f"there: {error.problem}",
            hint="use by='gradient', or a measure of words in their contexts",
        ) from error
    end_values = (
        masked_value,
        float(_evaluate_at(lm, measure, responses, answer_index, local_query, components, 1.0)[0]),
    )
    path = None
    for n_nodes in NODE_COUNTS:
        # Gauss-Legendre integrates polynomials of degree 2n - 1 exactly, so it needs fewer forward
        # passes than a Riemann sum of the same accuracy.
        positions, weights = np.polynomial.legendre.leggauss(n_nodes)
        scores = {
            component: torch.zeros(gate_shape(lm.layout, component), dtype=torch.float64)
            for component in components
        }
        # The rule is for [-1, 1]: nodes move to [0, 1], which halves the weights.
        for position, weight in zip((positions + 1) / 2, weights / 2, strict=True):
            _, gradients = _evaluate_at(
                lm, measure, responses, answer_index, local_query, components, float(position)
            )
            for component, component_gradient in gradients.items():
                scores[component] += float(weight) * component_gradient
        path = PathAttribution(
            scores, full_value=end_values[1], masked_value=end_values[0], n_nodes=n_nodes
        )
        # Relative to large differences only: where masks change hardly anything, rounding in
        # float32 can exceed a thousandth of the difference.
        if abs(path.gap) <= TOLERANCE * max(1.0, abs(end_values[1] - end_values[0])):
            return path
    assert path is not None  # noqa: S101
    raise NotMeasurableError(
        f"with {NODE_COUNTS[-1]} nodes contributions still miss L(1) - L(0) = "
        f"{end_values[1] - end_values[0]:.4g} by {path.gap:.2g}",
        hint="load the model with dtype='float64'; a measure of a top share has corners along the "
        "path: take all items (top=1.0), or by='gradient'",
    )


def _evaluate_at(
    lm: LM,
    measure: Measure,
    responses: Responses,
    answer_index: AnswerIndex,
    local_query: LocalQuery,
    components: Sequence[Component],
    mask_value: float,
) -> tuple[torch.Tensor, dict[Component, torch.Tensor]]:
    """The value of the measure with all masks at t, and its gradient there, in two passes."""
    query = local_query.query
    query_of_row = torch.tensor(query.items or range(len(query.rows)))

    def make_gates(*, requires_grad: bool) -> dict[Stream, torch.Tensor]:
        return {
            STREAM_OF_COMPONENT[component]: torch.full(
                gate_shape(lm.layout, component),
                mask_value,
                dtype=torch.float64,
                requires_grad=requires_grad,
            )
            for component in components
        }

    # Two passes: the derivative of the measure needs all answers, but keeping all their graphs
    # takes much memory. The second pass runs batch by batch with the known cotangents.
    def read_batch(indices: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return lm.run_rows(query, indices, gates=make_gates(requires_grad=False)).values

    batches = list(lm.batching.run_batches(query.rows, read_batch))
    # Batches are sorted by length: rows return to their questions by number, not by position.
    order = [i for indices, _ in batches for i in indices]
    rows = torch.cat([values for _, values in batches])
    total = torch.zeros(len(answer_index.queries), *rows.shape[1:], dtype=rows.dtype)
    answers = local_query.join_columns(total.index_add(0, query_of_row[order], rows))
    masked_responses = replace(responses, values=answer_index.values(answers, responses.values))
    upstream = answer_index.answer_cotangents(compute_cotangents(measure, masked_responses))
    gradients = {
        component: torch.zeros(gate_shape(lm.layout, component), dtype=torch.float64)
        for component in components
    }
    for indices, _ in batches:
        masks = make_gates(requires_grad=True)
        with torch.enable_grad():
            answer = lm.run_rows(query, indices, gates=masks).values.flatten(1)[
                :, : local_query.n_columns
            ]
        batch_upstream = upstream[query_of_row[list(indices)], : answer.shape[1]].to(answer)
        batch_gradients = torch.autograd.grad(answer, list(masks.values()), batch_upstream)
        for component, component_gradient in zip(components, batch_gradients, strict=True):
            gradients[component] += (
                lm.layout.parallel.sum_gates(component_gradient)
                if component == "heads"
                else component_gradient
            )
    return measure.reduce(masked_responses), gradients
