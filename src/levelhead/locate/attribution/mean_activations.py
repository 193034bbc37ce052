"""Mean activations over all tokens of the queries, which replace outputs in mean ablation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.measures.query_kinds import LocalQuery
from levelhead.measures.responses import build_query
from levelhead.models.queries.query import ForwardOutput, Query, Readout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site, StreamLayer


@final
@dataclass(frozen=True, eq=False)
class TokenSums(Readout):
    """Sums of the activations of some sites over the tokens of each row, without padding."""

    sites: tuple[Site, ...]

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """The activations of the sites."""
        return frozenset((site.stream, site.layer) for site in self.sites)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """The activations of the sites, concatenated."""
        width = output.batch.width
        lengths = torch.tensor(output.batch.lengths)
        # Padding would pull the mean towards the activations of no token.
        is_token = (torch.arange(width)[None] < lengths[:, None]).double()
        sums = []
        for site in self.sites:
            activation = output.captured[site.stream, site.layer].double().cpu()
            activation = activation if site.head is None else activation[..., site.head, :]
            # Sums, not means by row: texts differ in length, and every token counts once in the
            # mean.
            sums.append(torch.einsum("btd,bt->bd", activation, is_token))
        return torch.cat(sums, dim=1)


def compute_mean_activations(
    lm: LM, measure: Measure, responses: Responses, sites: Sequence[Site]
) -> dict[Site, torch.Tensor]:
    """Mean activation of some sites, in one forward pass over the queries of the measure.

    The mean is over all tokens of the rows that are run; the part that several words of a text
    share counts once.
    """
    answer_index = index_answers(lm, measure, responses)
    local_query, _ = build_query(
        lm, answer_index.query_set.query_kind, answer_index.queries, answer_index.query_set.settings
    )
    if not isinstance(local_query, LocalQuery):
        raise LevelheadError("nothing is read here", hint="use a measure of readings")
    rows = local_query.query.rows
    total, n_tokens = torch.zeros(1, dtype=torch.float64), sum(len(row.ids) for row in rows)
    for _, values in lm.iterate_batches(Query(rows, TokenSums(tuple(sites)))):
        total = total + values.sum(0)
    sizes = [lm.layout.site_width(site) for site in sites]
    return dict(zip(sites, (total / n_tokens).split(sizes), strict=True))
