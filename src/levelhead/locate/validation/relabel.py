"""Permuted labels: the map under the null hypothesis that the groups have no meaning.

Targets are assigned to the sides at random, with complete units and sides of the same size.
Counterfactuals are exchanged at random. If a measure has pairs of attribute words (SEAT), the
members of a pair change sides at random. Answers stay the same, so no model is run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Responses

    Values = Callable[[Responses], torch.Tensor]


def sample_relabelling(
    measure: Measure, responses: Responses, rng: np.random.Generator
) -> tuple[Callable[[Responses], Responses], Values]:
    """Draw one relabelling: functions that relabel responses, and compute their per-item values.

    It is the same for the model and all its variants.
    """
    metric = measure.primary_metric
    # The same null as the measure's own test: which labels are exchangeable is the measure's to
    # say.
    if metric.null == "permute_units":
        groups = _permute_groups(measure, responses, rng)
        return (
            lambda variant_responses: _with_groups(variant_responses, groups)
        ), metric.per_item_values
    if metric.null == "sign_flip":
        factor = measure.design(responses, metric).factors[0]
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], factor.n_units))[
            torch.from_numpy(factor.unit_of_item)
        ]
        return (lambda variant_responses: variant_responses), (
            lambda variant_responses: metric.flip(metric.per_item_values(variant_responses), signs)
        )
    raise LevelheadError(
        f"{measure.name} has no labels that could be permuted",
        hint="describe a map of a measure that compares groups",
    )


def _permute_groups(
    measure: Measure, responses: Responses, rng: np.random.Generator
) -> dict[str, str]:
    """A new group for every item, by id."""
    sampled = measure.select_sampled(responses)
    factor = measure.design(responses, measure.primary_metric).factors[0]
    # Units are permuted, not items: the sentences of a word keep one side, as in the measure's
    # test.
    group_of_unit = np.empty(factor.n_units, dtype=object)
    for unit, item in zip(factor.unit_of_item, sampled.items, strict=True):
        group_of_unit[unit] = item.group
    permuted = rng.permutation(group_of_unit)
    groups = {
        item.id: str(permuted[unit])
        for unit, item in zip(factor.unit_of_item, sampled.items, strict=True)
    }
    group_of_item = {item.id: item.group for item in responses.items}
    pairs = measure.attribute_pairs(responses)
    if pairs:
        fixed = [item.id for item in responses.items if not measure.is_sampled(item)]
        names = sorted({group_of_item[name] for name in fixed})
        opposite_group = dict(zip(names, reversed(names), strict=True))
        # A word whose counterpart was not read changes sides by itself.
        linked_items = _merge_linked_pairs(
            [*pairs, *((name, name) for name in fixed)], group_of_item
        )
        new_groups = {name: group_of_item[name] for name in fixed}
        while True:
            for members in linked_items:
                group_mapping = (
                    opposite_group if rng.random() < 0.5 else {name: name for name in names}
                )
                new_groups |= {name: group_mapping[group_of_item[name]] for name in members}
            if len(set(new_groups.values())) == len(names):  # no side may be left without words
                break
        groups |= new_groups
    return group_of_item | groups


def _merge_linked_pairs(
    pairs: Sequence[tuple[str, str]], group_of_item: Mapping[str, str]
) -> list[set[str]]:
    """Groups of pairs that share a word, which change sides together."""
    clusters: list[set[str]] = []
    for pair in pairs:
        if not set(pair) <= group_of_item.keys():
            continue
        overlapping = [cluster for cluster in clusters if cluster & set(pair)]
        clusters = [cluster for cluster in clusters if not cluster & set(pair)]
        clusters.append(set(pair).union(*overlapping))
    return clusters


def _with_groups(responses: Responses, groups: Mapping[str, str]) -> Responses:
    items = tuple(item._replace(group=groups[item.id]) for item in responses.items)
    return replace(responses, items=items)
