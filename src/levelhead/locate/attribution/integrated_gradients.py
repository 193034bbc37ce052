"""The gradient integrated along a path: masks from 0 to 1 together.

C(p) = integral over t of dL/dm(p) at m = t for all parts: contributions that add up to
L(1) - L(0), what the parts do together (integrated gradients, Sundararajan et al. 2017, with masks
as the inputs). Eq. 4 of Yang et al. 2025 is its end at t = 1. Gauss and Legendre's rule, with more
nodes until the sum is met.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.locate.attribution.answer_index import uses
from levelhead.locate.attribution.gradient import STREAM, cotangents, gate_shape
from levelhead.measures.metric import refuse_step
from levelhead.measures.query_kinds import Question
from levelhead.measures.responses import questioned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.attribution.answer_index import Uses
    from levelhead.locate.head_map import Part
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.models.sites import Stream

NODES = (16, 32, 64, 128)
CLOSE = 1e-3


@final
@dataclass(frozen=True, eq=False)
class Path:
    """Contributions that add up to what the parts do together."""

    scores: dict[Part, torch.Tensor]
    """`[layers, heads]` for each part."""
    whole: float
    """L(1): the measure of the model as it is."""
    without: float
    """L(0): with all these parts masked."""
    nodes: int

    @property
    def gap(self) -> float:
        """Sum of contributions less L(1) - L(0)."""
        total = sum(float(one.sum()) for one in self.scores.values())
        return total - (self.whole - self.without)


def along_path(
    lm: LM, measure: Measure, readouts: Readouts, *, parts: Sequence[Part] = ("heads",)
) -> Path:
    """Integrate the gradient over masks from 0 to 1.

    Args:
        lm: the model.
        measure: what is differentiated.
        readouts: which items.
        parts: whose masks; not the embeddings: without them all words are the same vector.
    """
    refuse_step(measure.headline)
    if "embeddings" in parts:
        raise LevelheadError(
            "without embeddings all words are one vector: the path has no beginning",
            mend="integrate over heads and mlp; take the embeddings' gradient",
        )
    asked = uses(lm, measure, readouts)
    question, dropped = questioned(lm, asked.asked.verb, asked.asks, asked.asked.settings)
    if dropped or not isinstance(question, Question):
        raise LevelheadError(
            "a question that was answered before cannot be asked now",
            mend="use the model and the tokenizer that were read",
        )
    try:
        without = float(_at(lm, measure, readouts, asked, question, parts, 0.0)[0])
    except NotMeasurable as error:
        raise NotMeasurable(
            f"without {' and '.join(parts)} {measure.name} has no value, so no path leads there: "
            f"{error.what}",
            mend="use by='gradient', or a measure of words in their contexts",
        ) from error
    ends = without, float(_at(lm, measure, readouts, asked, question, parts, 1.0)[0])
    path = None
    for nodes in NODES:
        places, weights = np.polynomial.legendre.leggauss(nodes)
        scores = {
            part: torch.zeros(gate_shape(lm.anatomy, part), dtype=torch.float64) for part in parts
        }
        for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
            _, back = _at(lm, measure, readouts, asked, question, parts, float(place))
            for part, own in back.items():
                scores[part] += float(weight) * own
        path = Path(scores, whole=ends[1], without=ends[0], nodes=nodes)
        if abs(path.gap) <= CLOSE * max(1.0, abs(ends[1] - ends[0])):
            return path
    assert path is not None  # noqa: S101
    raise NotMeasurable(
        f"with {NODES[-1]} nodes contributions still miss L(1) - L(0) = {ends[1] - ends[0]:.4g} by "
        f"{path.gap:.2g}",
        mend="load the model with dtype='float64'; a measure of a top share has corners along the "
        "path: take all items (top=1.0), or by='gradient'",
    )


def _at(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    asked: Uses,
    question: Question,
    parts: Sequence[Part],
    t: float,
) -> tuple[torch.Tensor, dict[Part, torch.Tensor]]:
    """The measure with all masks at t, and its gradient there: two passes."""
    reading = question.reading
    of_row = torch.tensor(reading.items or range(len(reading.rows)))

    def gates(*, wanting: bool) -> dict[Stream, torch.Tensor]:
        return {
            STREAM[part]: torch.full(
                gate_shape(lm.anatomy, part), t, dtype=torch.float64, requires_grad=wanting
            )
            for part in parts
        }

    def read(indices: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return lm.answer(reading, indices, gates=gates(wanting=False)).values

    batches = list(lm.batching.over(reading.rows, read))
    order = [i for indices, _ in batches for i in indices]
    rows = torch.cat([values for _, values in batches])
    total = torch.zeros(len(asked.asks), *rows.shape[1:], dtype=rows.dtype)
    said = question.joined(total.index_add(0, of_row[order], rows))
    here = replace(readouts, values=asked.values(said, readouts.values))
    wanted = asked.cotangents(cotangents(measure, here))
    found = {part: torch.zeros(gate_shape(lm.anatomy, part), dtype=torch.float64) for part in parts}
    for indices, _ in batches:
        masks = gates(wanting=True)
        with torch.enable_grad():
            answer = lm.answer(reading, indices, gates=masks).values.flatten(1)[:, : question.width]
        pushed = wanted[of_row[list(indices)], : answer.shape[1]].to(answer)
        back = torch.autograd.grad(answer, list(masks.values()), pushed)
        for part, own in zip(parts, back, strict=True):
            found[part] += lm.anatomy.ranks.summed(own) if part == "heads" else own
    return measure.reduce(here), found
