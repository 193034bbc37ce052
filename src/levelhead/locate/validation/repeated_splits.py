"""Found and confirmed again and again: twenty splits instead of one.

One split is one draw of chance. What is chosen on the find half, and what it does on the confirm
half, is told as median and range over many splits of the same items.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.answer_index import uses
from levelhead.locate.attribution.gradient import cotangents, pushed_back
from levelhead.locate.attribution.variants import vary
from levelhead.locate.head_map import label
from levelhead.locate.validation.split import halves
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.attribution.answer_index import Uses
    from levelhead.locate.attribution.gradient import Wanted
    from levelhead.locate.attribution.variants import Variants
    from levelhead.locate.head_map import SplitBy
    from levelhead.locate.validation.split import Split
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM


class Spread(Record):
    """A number over splits."""

    name: str
    median: float
    low: float
    high: float
    """The least and the largest."""
    splits: int

    @classmethod
    def of(cls, name: str, values: Sequence[float]) -> Spread:
        """Of the splits that have it."""
        if not values:
            raise NotMeasurable(f"no split has {name}", mend="give more items")
        return cls(
            name=name,
            median=float(np.median(values)),
            low=min(values),
            high=max(values),
            splits=len(values),
        )


class Repeated(Record):
    """What twenty splits find and confirm."""

    splits: int
    k: int
    joint: Spread
    """What masking the top k of a find half takes from the measure on its confirm half."""
    overlap: Spread
    """Heads that the top k of two splits share, of k."""
    replication: Spread | None = None
    """Spearman's correlation of scores on the find half and effects on the confirm half."""
    chosen: tuple[tuple[str, int], ...]
    """How often each head was among the top k."""
    notes: tuple[str, ...] = ()
    measured_by: Ruler | None = None
    """What it is measured by."""


def repeated(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    *,
    k: int = 3,
    splits: int = 20,
    by: SplitBy = "words",
    sign: int = 1,
    ablated: Variants | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Repeated:
    """Split, rank, choose and confirm anew, as often as wanted.

    Args:
        lm: the model.
        measure: what is located.
        readouts: of all items.
        k: heads that are masked together.
        splits: how many.
        by: words, or contexts.
        sign: which way is bias, fixed on all items: one split's sign would only add noise.
        ablated: the model without each head, with `blocks` where contexts are split; for the
            rank correlation.
        inference: seed.
        context: store, threads, progress and cancellation.
    """
    if not sign or by == "none":
        raise NotMeasurable(
            f"nothing can be confirmed: {'no halves' if sign else 'sign undetermined'}",
            mend="give a sign, and enough words or contexts for two halves",
        )
    if splits < 2:
        raise LevelheadError("one split is no repetition", mend="give at least two")
    cuts = [halves(measure, readouts, by=by, seed=inference.seed + i) for i in range(splits)]
    asked = uses(lm, measure, readouts)
    each = [_of_half(measure, readouts, asked, cut) for cut in cuts]

    def wanted(some: torch.Tensor) -> torch.Tensor:
        return torch.stack([own(some) for own in each])

    shares = pushed_back(lm, measure, asked, wanted, items=len(readouts), context=context)
    scores = sign * shares["heads"].sum(1)
    tops = [_top(grid, k) for grid in scores]
    distinct = list(dict.fromkeys(tops))
    varied = vary(
        lm,
        measure,
        readouts,
        [Variant(own) for own in distinct],
        blocks=cuts[0].block,
        context=context,
    )
    joint = []
    for cut, top in zip(cuts, tops, strict=True):
        base, masked = (
            float(measure.reduce(cut.confirm.varied(varied, number)))
            for number in (None, distinct.index(top))
        )
        joint.append(sign * (base - masked))
    overlap = [float(len(set(a) & set(b))) for a, b in combinations(tops, 2)]
    counts = Counter(label(site) for top in tops for site in top)
    return Repeated(
        splits=splits,
        k=k,
        joint=Spread.of(f"effect of the top {k}", joint),
        overlap=Spread.of(f"heads shared of {k}", overlap),
        replication=_replication(measure, cuts, scores, ablated, sign) if ablated else None,
        chosen=tuple(sorted(counts.items(), key=lambda one: (-one[1], one[0]))),
        notes=(
            f"split by {cuts[0].by}; the same heads were chosen {splits - len(distinct)} times",
        ),
        measured_by=measure.ruler(lm),
    )


def _of_half(measure: Measure, readouts: Readouts, asked: Uses, cut: Split) -> Wanted:
    """The derivative of the find half's value by every answer; 0 outside of it."""
    half = cut.find.of(readouts)
    of_values = cotangents(measure, half)
    place = {item.id: i for i, item in enumerate(half.items)}
    whole = torch.zeros_like(readouts.values)
    for i, item in enumerate(readouts.items):
        if item.id in place:
            whole[i] = of_values[place[item.id]]
    blocks = cut.find.blocks
    if blocks is None:
        return lambda some: asked.cotangents(whole, some)
    inside = torch.tensor([cut.find.block(ask) in blocks for ask in asked.asks]).double()
    count = torch.zeros(len(readouts), dtype=torch.float64).index_add(0, asked.item, inside)
    weight = inside / count[asked.item].clamp(min=1)
    return lambda some: whole[asked.item[some]] * weight[some, None]


def _top(grid: torch.Tensor, k: int) -> tuple[Site, ...]:
    """The k largest scores, as far as they are positive."""
    flat, heads = grid.flatten(), grid.shape[1]
    order = [int(i) for i in flat.argsort(descending=True, stable=True)[:k] if flat[i] > 0]
    if not order:
        raise NotMeasurable("no head has a positive score", mend="turn the sign round")
    return tuple(sorted(Site("head_out", i // heads, i % heads) for i in order))


def _replication(
    measure: Measure, cuts: Sequence[Split], scores: torch.Tensor, ablated: Variants, sign: int
) -> Spread:
    sites = [variant.sites[0] for variant in ablated.variants]
    found = []
    for cut, grid in zip(cuts, scores, strict=True):
        base = float(measure.reduce(cut.confirm.varied(ablated, None)))
        effects = [
            sign * (base - float(measure.reduce(cut.confirm.varied(ablated, i))))
            for i in range(len(sites))
        ]
        own = [float(grid[site.layer, site.head]) for site in sites]
        found.append(float(stats.spearmanr(own, effects).statistic))
    return Spread.of("score on find, effect on confirm", found)
