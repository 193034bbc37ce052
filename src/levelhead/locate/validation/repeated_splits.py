"""Stability of located heads over repeated splits, by default twenty.

One split is one random sample. The choice on the discovery half and its effect on the confirmation
half are reported as median and range over many splits of the same items.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from scipy import stats

from levelhead.core.calibration import MeasureKey
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Record
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import backpropagate, compute_cotangents
from levelhead.locate.attribution.variants import read_variants
from levelhead.locate.head_map import head_label
from levelhead.locate.validation.split import split_items
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.locate.attribution.answer_index import AnswerIndex
    from levelhead.locate.attribution.gradient import CotangentsFor
    from levelhead.locate.attribution.variants import AblationResponses
    from levelhead.locate.head_map import SplitBy
    from levelhead.locate.validation.split import ItemSplit
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


class SplitRange(Record):
    """A number over splits."""

    name: str
    median: float
    low: float
    high: float
    """The smallest and the largest number."""
    n_splits: int

    @classmethod
    def from_values(cls, name: str, values: Sequence[float]) -> SplitRange:
        """Number of splits that have the number."""
        if not values:
            raise NotMeasurableError(f"no split has {name}", hint="give more items")
        return cls(
            name=name,
            median=float(np.median(values)),
            low=min(values),
            high=max(values),
            n_splits=len(values),
        )


class SplitStability(Record):
    """Choices and effects over repeated splits."""

    n_splits: int
    k: int
    joint_effect: SplitRange
    """Decrease of the measure on the confirmation half by masking the top k heads of the discovery
    half."""
    overlap: SplitRange
    """Number of heads, of k, that the top k of two splits share."""
    replication: SplitRange | None = None
    """Spearman's correlation of scores on the discovery half and effects on the confirmation
    half."""
    selection_counts: tuple[tuple[str, int], ...]
    """Number of splits in which each head is among the top k."""
    notes: tuple[str, ...] = ()
    measured_by: MeasureKey | None = None
    """Key of the measure with this type of model."""


@final
@dataclass(frozen=True)
class RepeatedSplitConfig:
    """Number and kind of splits, and number of heads chosen on each discovery half."""

    n_splits: int = 20
    split_by: SplitBy = "words"
    """What is split: words, or contexts."""
    k: int = 3
    """Number of heads that are masked together."""


def repeat_splits(
    lm: LM,
    measure: Measure,
    responses: Responses,
    *,
    config: RepeatedSplitConfig = RepeatedSplitConfig(),
    sign: int = 1,
    ablation_responses: AblationResponses | None = None,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> SplitStability:
    """Split, rank, choose and confirm repeatedly.

    Args:
        lm: The model.
        measure: The measure.
        responses: Responses to all items.
        config: Splits and choice.
        sign: Direction of bias, fixed on all items: the sign of a single split would only add
            noise.
        ablation_responses: Responses of the model without each head, with answers by block if
            contexts are split; for the rank correlation.
        inference: Seed.
        context: Store, threads, progress and cancellation.
    """
    n_splits, k = config.n_splits, config.k
    if not sign or config.split_by == "none":
        raise NotMeasurableError(
            f"nothing can be confirmed: {'no halves' if sign else 'sign undetermined'}",
            hint="give a sign, and enough words or contexts for two halves",
        )
    if n_splits < 2:
        raise LevelheadError("one split is no repetition", hint="give at least two")
    item_splits = [
        split_items(measure, responses, split_by=config.split_by, seed=inference.seed + i)
        for i in range(n_splits)
    ]
    answer_index = index_answers(lm, measure, responses)
    cotangents_by_split = [
        _half_cotangents(measure, responses, answer_index, item_split) for item_split in item_splits
    ]

    def stacked_cotangents(rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([split_cotangents(rows) for split_cotangents in cotangents_by_split])

    # All splits share one forward pass: they differ in cotangents only.
    contributions = backpropagate(
        lm, measure, answer_index, stacked_cotangents, n_items=len(responses), context=context
    )
    scores = sign * contributions["heads"].sum(1)
    top_sets = [_top_sites(grid, k) for grid in scores]
    distinct = list(dict.fromkeys(top_sets))
    variant_responses = read_variants(
        lm,
        measure,
        responses,
        [AblationVariant(site_set) for site_set in distinct],
        # A context's block does not depend on the seed, only which blocks are a half: one reading
        # serves all.
        block_of=item_splits[0].block_of,
        context=context,
    )
    joint_effects = []
    for item_split, top_set in zip(item_splits, top_sets, strict=True):
        base, masked = (
            float(measure.reduce(item_split.confirmation.select_variant(variant_responses, number)))
            for number in (None, distinct.index(top_set))
        )
        joint_effects.append(sign * (base - masked))
    overlaps = [float(len(set(a) & set(b))) for a, b in combinations(top_sets, 2)]
    counts = Counter(head_label(site) for top_set in top_sets for site in top_set)
    return SplitStability(
        n_splits=n_splits,
        k=k,
        joint_effect=SplitRange.from_values(f"effect of the top {k}", joint_effects),
        overlap=SplitRange.from_values(f"heads shared of {k}", overlaps),
        replication=_estimate_replication(measure, item_splits, scores, ablation_responses, sign)
        if ablation_responses
        else None,
        selection_counts=tuple(
            sorted(counts.items(), key=lambda head_count: (-head_count[1], head_count[0]))
        ),
        notes=(
            f"split by {item_splits[0].split_by}; "
            f"the same heads were chosen {n_splits - len(distinct)} times",
        ),
        measured_by=measure.measure_key(lm),
    )


def _half_cotangents(
    measure: Measure, responses: Responses, answer_index: AnswerIndex, item_split: ItemSplit
) -> CotangentsFor:
    """Derivative of the value on the discovery half by every answer; 0 outside of the half."""
    half = item_split.discovery.select(responses)
    value_cotangents = compute_cotangents(measure, half)
    row_of_item = {item.id: i for i, item in enumerate(half.items)}
    full_cotangents = torch.zeros_like(responses.values)
    for i, item in enumerate(responses.items):
        if item.id in row_of_item:
            full_cotangents[i] = value_cotangents[row_of_item[item.id]]
    blocks = item_split.discovery.blocks
    if blocks is None:
        return lambda rows: answer_index.answer_cotangents(full_cotangents, rows)
    # `[uses]`: an item is the mean over its contexts in this half, so theirs share its cotangent.
    is_inside = torch.tensor(
        [item_split.discovery.block_of(query) in blocks for query in answer_index.queries]
    ).double()
    count = torch.zeros(len(responses), dtype=torch.float64).index_add(
        0, answer_index.item, is_inside
    )
    # An item without a context in this half has count 0; its weights are 0 already.
    weight = is_inside / count[answer_index.item].clamp(min=1)
    return lambda rows: full_cotangents[answer_index.item[rows]] * weight[rows, None]


def _top_sites(grid: torch.Tensor, k: int) -> tuple[Site, ...]:
    """The k largest scores that are positive."""
    flat, heads = grid.flatten(), grid.shape[1]
    # A stable sort keeps ties in the order of heads, so that a selection is reproducible.
    order = [int(i) for i in flat.argsort(descending=True, stable=True)[:k] if flat[i] > 0]
    if not order:
        raise NotMeasurableError("no head has a positive score", hint="turn the sign round")
    return tuple(sorted(Site("head_out", i // heads, i % heads) for i in order))


def _estimate_replication(
    measure: Measure,
    item_splits: Sequence[ItemSplit],
    scores: torch.Tensor,
    ablation_responses: AblationResponses,
    sign: int,
) -> SplitRange:
    sites = [variant.sites[0] for variant in ablation_responses.variants]
    correlations = []
    for item_split, grid in zip(item_splits, scores, strict=True):
        base = float(
            measure.reduce(item_split.confirmation.select_variant(ablation_responses, None))
        )
        effects = [
            sign
            * (
                base
                - float(
                    measure.reduce(item_split.confirmation.select_variant(ablation_responses, i))
                )
            )
            for i in range(len(sites))
        ]
        site_scores = [float(grid[site.layer, site.head]) for site in sites]
        correlations.append(float(stats.spearmanr(site_scores, effects).statistic))
    return SplitRange.from_values("score on find, effect on confirm", correlations)
