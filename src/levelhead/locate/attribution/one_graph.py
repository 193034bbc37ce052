"""The same gradient in a single graph: one forward of everything, then one backward.

Two forwards' work instead of three, where all activations fit in memory at once. It is also the
literal form that the two passes are tested against.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.answer_index import uses
from levelhead.locate.attribution.gradient import Contributions, ones, refuse_flat
from levelhead.measures.metric import refuse_step
from levelhead.measures.query_kinds import Question
from levelhead.measures.responses import questioned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.head_map import Part
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM


def one_graph(
    lm: LM, measure: Measure, readouts: Readouts, *, parts: Sequence[Part] = ("heads",)
) -> Contributions:
    """Shares of every item, as `gradient` gives them.

    Args:
        lm: the model.
        measure: what is differentiated.
        readouts: which items; their values are read anew.
        parts: whose masks.
    """
    refuse_step(measure.headline)
    asked = uses(lm, measure, readouts)
    question, dropped = questioned(lm, asked.asked.verb, asked.asks, asked.asked.settings)
    if dropped or not isinstance(question, Question):
        raise LevelheadError(
            "a question that was answered before cannot be asked now",
            mend="use the model and the tokenizer that were read",
        )
    lm.anatomy.ranks.refuse_heads("single graph")
    reading = question.reading
    of_row = torch.tensor(reading.items or range(len(reading.rows)))
    order: list[int] = []
    answers: list[torch.Tensor] = []
    masks: list[list[torch.Tensor]] = []

    def once(indices: Sequence[int]) -> torch.Tensor:
        gates = ones(lm.anatomy, parts, len(indices))
        with torch.enable_grad():
            found = lm.answer(reading, indices, gates=gates).values
        masks.append(list(gates.values()))  # not before: memory may not suffice, and it is halved
        return found

    for indices, values in lm.batching.over(reading.rows, once):
        order.extend(indices)
        answers.append(values)
    own = of_row[order]
    rows = torch.cat(answers)
    total = torch.zeros(len(asked.asks), *rows.shape[1:], dtype=rows.dtype)
    said = question.joined(total.index_add(0, own, rows))
    level = measure.reduce(replace(readouts, values=asked.values(said, readouts.values)))
    flat = [gate for gates in masks for gate in gates]
    back = torch.autograd.grad(level, flat)
    item = asked.item[own]
    shares: dict[Part, torch.Tensor] = {}
    for number, part in enumerate(parts):
        each = torch.cat(back[number :: len(parts)])
        empty = torch.zeros(len(readouts), *each.shape[1:], dtype=torch.float64)
        shares[part] = empty.index_add(0, item, each)
    refuse_flat(torch.cat([own.flatten() for own in shares.values()]), measure, "the masks")
    return Contributions(tuple(one.id for one in readouts.items), shares)
