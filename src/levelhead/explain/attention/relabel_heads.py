"""The difference between groups of heads, compared with random groups.

Heads differ from each other, so any two groups of heads differ somewhat, and with enough sentences
the difference is significant. The difference of biased heads is worth reporting only if it is
larger than that of random groups, with as many heads in every layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.errors import NotMeasurableError
from levelhead.core.results import Interval, PValue, Record
from levelhead.stats.degenerate import is_constant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from levelhead.core.run_context import Inference
    from levelhead.explain.attention.head_groups import Group
    from levelhead.models.sites import Site


class HeadPermutationTest(Record):
    """The difference between groups of heads, compared with that of random groups."""

    difference: float
    """Mean change of biased heads less that of regular heads."""
    random_interval: Interval
    """Interval of the difference for random groups, with as many biased heads in every layer."""
    p: PValue
    """Two-sided: twice the share of random groups that are at least as extreme, on the nearer
    side."""


def permute_head_groups(
    changes: NDArray[np.float64],
    groups: Mapping[Group, Sequence[int]],
    sites: Sequence[Site],
    *,
    inference: Inference,
    name: str,
) -> HeadPermutationTest:
    """Permute the labels of the groups among the heads of each layer.

    `scipy.stats.permutation_test` permutes all heads, and cannot permute within layers. A
    difference of means under all permutations is one matrix product.

    Args:
        changes: `[sentences, heads]` changes.
        groups: Columns of the biased and of the regular heads.
        sites: The heads, by column.
        inference: Seed, permutations and level.
        name: Name of the number, which is part of the seed.
    """
    means = changes.mean(0)
    biased = np.zeros(len(sites), dtype=bool)
    biased[list(groups["biased"])] = True
    rng, layers = inference.rng(name, "relabelled"), np.array([site.layer for site in sites])
    permuted = np.empty((inference.permutations, len(sites)), dtype=bool)
    for layer in np.unique(layers):
        layer_columns = np.flatnonzero(layers == layer)
        # Labels are permuted within a layer, because attention changes may differ between layers.
        permuted[:, layer_columns] = rng.permuted(
            np.tile(biased[layer_columns], (inference.permutations, 1)), axis=1
        )
    count = biased.sum()
    weights = np.where(permuted, 1 / count, -1 / (len(sites) - count))
    null = weights @ means
    # Without a layer of both groups, labels have nothing to exchange, and p would be 1.
    if is_constant(null):
        raise NotMeasurableError(
            "no layer has heads of both groups that change: their labels cannot be permuted",
            hint="give heads of both groups in one layer",
        )
    value = float(means[biased].mean() - means[~biased].mean())
    # Equal differences that differ by rounding count as ties, which is conservative.
    slack = 1e-12 * abs(value)
    sides = [(null >= value - slack).sum(), (null <= value + slack).sum()]
    tail = (1 - inference.level) / 2
    low, high = np.quantile(null, [tail, 1 - tail])
    return HeadPermutationTest(
        difference=value,
        random_interval=Interval(
            low=float(low),
            high=float(high),
            level=inference.level,
            method="quantiles of heads relabelled within layers",
        ),
        p=PValue(
            # Twice the smaller tail, as the null need not be symmetric; + 1 counts the observed
            # labels among the permutations.
            value=min(1.0, 2 * (float(min(sides)) + 1) / (len(null) + 1)),
            method="heads relabelled within layers",
            alternative="two-sided",
            n_resamples=len(null),
        ),
    )
