"""Means of parts over all tokens that are asked: what mean ablation puts in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.answer_index import uses
from levelhead.measures.query_kinds import Question
from levelhead.measures.responses import questioned
from levelhead.models.queries.query import Reading, Readout, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.forward.forward_pass import Where
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site


@final
@dataclass(frozen=True, eq=False)
class TokenSums(Readout):
    """Sums of some sites' activations over the tokens of each row, padding aside."""

    sites: tuple[Site, ...]

    @property
    def watch(self) -> frozenset[Where]:
        """The sites' activations."""
        return frozenset((site.stream, site.layer) for site in self.sites)

    def __call__(self, result: Result) -> torch.Tensor:
        """Sites side by side."""
        width = result.batch.width
        lengths = torch.tensor(result.batch.lengths)
        real = (torch.arange(width)[None] < lengths[:, None]).double()
        found = []
        for site in self.sites:
            own = result.seen[site.stream, site.layer].double().cpu()
            own = own if site.head is None else own[..., site.head, :]
            found.append(torch.einsum("btd,bt->bd", own, real))
        return torch.cat(found, dim=1)


def means(
    lm: LM, measure: Measure, readouts: Readouts, sites: Sequence[Site]
) -> dict[Site, torch.Tensor]:
    """The mean activation at some sites, in one forward of what the measure asks.

    Over all tokens of the rows that are run: what words share of a text counts once.
    """
    asked = uses(lm, measure, readouts)
    question, _ = questioned(lm, asked.asked.verb, asked.asks, asked.asked.settings)
    if not isinstance(question, Question):
        raise LevelheadError("nothing is read here", mend="use a measure of readings")
    rows = question.reading.rows
    total, tokens = torch.zeros(1, dtype=torch.float64), sum(len(row.ids) for row in rows)
    for _, values in lm.batches(Reading(rows, TokenSums(tuple(sites)))):
        total = total + values.sum(0)
    sizes = [lm.anatomy.size(site) for site in sites]
    return dict(zip(sites, (total / tokens).split(sizes), strict=True))
